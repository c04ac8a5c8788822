// A job in C without an agent that keeps a record in a folder of its own.
#pragma once

#include <string>
#include <vector>

#include "c_handles.hpp"
#include "scratch_folder.hpp"

namespace pliant::test {

/// The job of the tests in a folder of its own.
struct RecordedJob : CJob {
  explicit RecordedJob(const ScratchFolder& folder, const std::string& run_keys = "")
      : CJob(toml_in(folder, run_keys)), plan(plan_of(config.get())) {}
  static std::string toml_in(const ScratchFolder& folder, const std::string& run_keys) {
    std::string toml = kJob;
    return toml.insert(toml.find("epochs"), "log_dir = \"" + folder.path().string() + "\"\n" + run_keys);
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

}  // namespace pliant::test
