// The record of a loop in C: what an audit finds in it, and what a restart goes on from.
#include <doctest/doctest.h>

#include "c_handles.hpp"
#include "scratch_folder.hpp"

using namespace pliant::test;

namespace {

using OwnedRecord = Owned<pliant_record_t, pliant_record_free>;

/// The job of the tests in a folder of its own.
struct RecordedJob : CJob {
  explicit RecordedJob(const ScratchFolder& folder) : CJob(toml_in(folder)), plan(plan_of(config.get())) {}
  static std::string toml_in(const ScratchFolder& folder) {
    std::string toml = kJob;
    return toml.insert(toml.find("epochs"), "log_dir = \"" + folder.path().string() + "\"\n");
  }
  [[nodiscard]] OwnedRecord begin() const {
    return made_by<OwnedRecord>(
        [&](auto to, auto error) { return pliant_record_begin(config.get(), plan.get(), batches.get(), to, error); });
  }
  /// Commits step `step` as three ranks that made it.
  void commit(pliant_record_t* record, int64_t step) const {
    const OwnedBatch batch = at_step(step);
    pliant_batch_size_t size = PLIANT_INIT(pliant_batch_size_t);
    REQUIRE(pliant_batch_size(batch.get(), &size, nullptr) == PLIANT_OK);
    const auto rate = made_by<OwnedRate>(
        [&](auto to, auto error) { return pliant_learning_rate_make(config.get(), nullptr, to, error); });
    pliant_scaling_t scaling = PLIANT_INIT(pliant_scaling_t);
    REQUIRE(pliant_learning_rate_scaling(rate.get(), step, &size, 0, &scaling, nullptr) == PLIANT_OK);
    const auto balancer =
        made_by<OwnedBalancer>([&](auto to, auto error) { return pliant_balancer_make(config.get(), to, error); });
    std::vector<int64_t> costs(static_cast<size_t>(size.rows));
    uint64_t rows = 0;
    REQUIRE(pliant_row_costs(batch.get(), 1, 0, costs.data(), costs.size(), &rows, nullptr) == PLIANT_OK);
    pliant_plan_facts_t facts = PLIANT_INIT(pliant_plan_facts_t);
    const OwnedPlan at_three = plan_of(config.get(), 3);
    REQUIRE(pliant_plan_look(at_three.get(), &facts, nullptr) == PLIANT_OK);
    pliant_sharing_t sharing = PLIANT_INIT(pliant_sharing_t);
    sharing.world_size = 3;
    sharing.micro_batch = facts.micro_batch;
    sharing.granule = facts.granule;
    const auto shares = made_by<OwnedAssignment>([&](auto to, auto error) {
      return pliant_balancer_assign(balancer.get(), costs.data(), rows, &sharing, to, error);
    });
    pliant_error_t error = PLIANT_INIT(pliant_error_t);
    const int32_t status = pliant_record_commit(record, batch.get(), shares.get(), 0.5, scaling.learning_rate, &error);
    CAPTURE(std::string(error.message));
    REQUIRE(status == PLIANT_OK);
  }

  OwnedPlan plan;
};

}  // namespace

TEST_CASE("a loop in C leaves a run that an audit finds whole, over a restart from its snapshot") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  OwnedRecord record = job.begin();
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  const std::string directory = facts.directory;
  REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
  for (int64_t step = 0; step < 3; ++step) job.commit(record.get(), step);
  const std::string state = "weights";
  REQUIRE(pliant_record_keep_snapshot(record.get(), state.data(), state.size(), "rate", 4, nullptr) == PLIANT_OK);
  job.commit(record.get(), 3);
  record.reset();

  record = made_by<OwnedRecord>([&](auto to, auto error) {
    return pliant_record_open(directory.c_str(), job.config.get(), job.plan.get(), job.batches.get(), to, error);
  });
  pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
  REQUIRE(pliant_record_restore(record.get(), &from, nullptr) == PLIANT_OK);
  CHECK(from.step == 3);
  CHECK(std::string(static_cast<const char*>(from.state), from.bytes) == state);
  CHECK(std::string(from.lr_state, from.lr_bytes) == "rate");
  REQUIRE(pliant_record_start_generation(record.get(), 3, "restarted", nullptr) == PLIANT_OK);
  for (int64_t step = 3; step < 6; ++step) job.commit(record.get(), step);

  pliant_audit_t audit = PLIANT_INIT(pliant_audit_t);
  REQUIRE(pliant_audit_run(directory.c_str(), &audit, nullptr) == PLIANT_OK);
  CHECK(audit.is_whole == 1);
  CHECK(audit.steps == 6);
  CHECK(audit.samples_used_once == audit.samples_expected);
  CHECK(audit.differences == 0);
}

TEST_CASE("a record that another one has open is refused") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  const OwnedRecord record = job.begin();
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  pliant_record_t* other = nullptr;
  CHECK(pliant_record_open(facts.directory, job.config.get(), job.plan.get(), job.batches.get(), &other, nullptr) ==
        PLIANT_FAILED_PRECONDITION);
  CHECK(other == nullptr);
}
