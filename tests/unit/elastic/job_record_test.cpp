// The record of a job without an agent: what an audit finds in it, what a restart goes on from, and what is refused.
#include "pliant/job_record.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <istream>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "pliant/audit.hpp"
#include "pliant/error.hpp"
#include "pliant/learning_rate.hpp"
#include "scratch_folder.hpp"

using namespace pliant;
using test::ScratchFolder;

namespace {

/// A job of 50 sequences whose only weight is what it has learnt so far.
struct SoloJob {
  explicit SoloJob(const ScratchFolder& folder, const std::string& more = "")
      : config(open(folder, more)), plan(Planner(config).plan()) {
    std::vector<int32_t> tokens(50);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(3 + i * 7 % 29);
    batches.emplace(config, plan, Dataset{std::move(tokens), {}});
    rate.emplace(config, batches->epoch(0).mean_batch());
  }
  static Config open(const ScratchFolder& folder, const std::string& more) {
    ConfigOverrides overrides;
    overrides.read_environment = false;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
    const std::string log_dir = (folder.path() / "runs").string();
    return Config::parse(
        "config_version = 1\n[run]\nepochs = 2\nname = \"solo\"\nlog_dir = \"" + log_dir + "\"\n" + more +
            "[elasticity]\nuse = \"exact\"\n[elasticity.exact]\nmax_train_batch_size = 8\n"
            "micro_batch_sizes = [2]\nmax_gpus = 4\n[sampler]\nuse = \"fixed\"\n[lr]\nuse = \"sqrt\"\n",
        {"elasticity", "sampler", "lr", "balancer"}, overrides);
  }

  [[nodiscard]] Assignment shared_out(const Batch& batch, int64_t world_size) const {
    return Balancer(config).assign(row_costs(batch, batches->dataset(), Balancer(config).rates()),
                                   {.world_size = world_size, .micro_batch = 2, .granule = plan.granule});
  }
  /// Commits steps up to `end` at that world size.
  void work(JobRecord& record, int64_t end, int64_t world_size) {
    for (int64_t step = record.steps(); step < end && batches->has_step(step); ++step) {
      const Batch batch = batches->at_step(step);
      record.commit(batch, shared_out(batch, world_size), 1.0 / static_cast<double>(step + 1),
                    rate->at(step, batch.size));
      rate->commit(step, batch.size);
      for (const int64_t id : batch.ids) weight = weight * 31 + static_cast<uint64_t>(id);
    }
  }
  [[nodiscard]] auto writer() const {
    return [this](std::ostream& out) { out << weight; };
  }
  auto reader() {
    return [this](std::istream& in) { in >> weight; };
  }
  void go_on_from(const Restored& from) {
    if (!from.lr_state.empty()) rate->load(from.lr_state);
    if (from.step == 0) weight = 0;
  }

  Config config;
  Plan plan;
  std::optional<Batches> batches;
  std::optional<LearningRate> rate;
  uint64_t weight = 0;
};

std::string refused(const std::function<void()>& call, Status status) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.status() == status);
    return error.message();
  }
  FAIL("nothing was refused");
  return {};
}

}  // namespace

TEST_CASE("a loop without an agent leaves a run that an audit finds whole") {
  const ScratchFolder folder;
  SoloJob job(folder);
  JobRecord record = JobRecord::begin(job.config, job.plan, *job.batches);
  record.start_generation(2, "start");
  CHECK(record.position() == BatchPosition{0, 0});
  job.work(record, 1000, 2);
  CHECK(record.position() == BatchPosition{1, job.batches->epoch(1).batches});
  const RunAudit audit = audit_run(record.directory());
  CHECK(audit.is_whole());
  CHECK(audit.steps == record.steps());
  CHECK(audit.samples_used_once == 100);
  CHECK(audit.learning_rates == audit.steps);
  CHECK(audit.assignments == audit.steps);
  CHECK(std::filesystem::exists(folder.path() / "runs/solo/latest"));
}

TEST_CASE("a job that is restarted at other sizes goes on from its snapshot, and is whole and the same in the end") {
  const ScratchFolder folder;
  SoloJob undisturbed(folder);
  {
    JobRecord record = JobRecord::begin(undisturbed.config, undisturbed.plan, *undisturbed.batches);
    record.start_generation(1, "start");
    undisturbed.work(record, 1000, 1);
  }
  const ScratchFolder other;
  std::filesystem::path run;
  {
    SoloJob first(other);
    JobRecord record = JobRecord::begin(first.config, first.plan, *first.batches);
    run = record.directory();
    record.start_generation(4, "start");
    first.work(record, 5, 4);
    record.keep_snapshot(first.rate->save(), first.writer());
    first.work(record, 8, 4);  // three steps that no snapshot has
  }
  SoloJob second(other);
  JobRecord record = JobRecord::open(run, second.config, second.plan, *second.batches);
  CHECK(record.steps() == 8);
  const Restored from = record.restore(second.reader());
  CHECK(from.step == 5);
  CHECK(record.steps() == 5);
  const Batch last = second.batches->at_step(4);
  CHECK(record.position() == BatchPosition{last.epoch, last.index + 1});
  second.go_on_from(from);
  record.start_generation(3, "restarted");
  second.work(record, 1000, 3);
  CHECK(second.weight == undisturbed.weight);
  const RunAudit audit = audit_run(run);
  CHECK(audit.is_whole());
  CHECK(audit.samples_used_once == 100);
}

TEST_CASE("a job that was never kept goes back to its first step") {
  const ScratchFolder folder;
  SoloJob job(folder);
  JobRecord record = JobRecord::begin(job.config, job.plan, *job.batches);
  record.start_generation(2, "start");
  job.work(record, 3, 2);
  CHECK(record.restore(job.reader()).step == 0);
  CHECK(record.steps() == 0);
}

TEST_CASE("of snapshots those of the config's number are kept, the newest ones") {
  const ScratchFolder folder;
  SoloJob job(folder, "keep_snapshots = 2\n");
  JobRecord record = JobRecord::begin(job.config, job.plan, *job.batches);
  record.start_generation(1, "start");
  for (int64_t step = 1; step <= 4; ++step) {
    job.work(record, step, 1);
    record.keep_snapshot(job.rate->save(), job.writer());
  }
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(record.directory() / "snapshots"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step-00000003.snapshot", "step-00000004.snapshot"});
}

TEST_CASE("a record is written by one process, after a generation was started, of the rows that there are") {
  const ScratchFolder folder;
  SoloJob job(folder);
  JobRecord record = JobRecord::begin(job.config, job.plan, *job.batches);
  const Batch batch = job.batches->at_step(0);
  CHECK(refused([&] { record.commit(batch, job.shared_out(batch, 2), 1, 1); }, Status::kFailedPrecondition)
            .find("start_generation") != std::string::npos);
  record.start_generation(2, "start");
  refused([&] { record.commit(batch, job.shared_out(batch, 3), 1, 1); }, Status::kInvalidArgument);
  refused([&] { record.commit(batch, share_out(5, {.world_size = 2}), 1, 1); }, Status::kInvalidArgument);
  refused([&] { record.start_generation(0, "none"); }, Status::kInvalidArgument);
  CHECK(record.steps() == 0);
  refused([&] { static_cast<void>(JobRecord::open(record.directory(), job.config, job.plan, *job.batches)); },
          Status::kFailedPrecondition);
}

TEST_CASE("a record of another job is not gone on with, and says what differs") {
  const ScratchFolder folder;
  SoloJob job(folder);
  std::filesystem::path run;
  {
    JobRecord record = JobRecord::begin(job.config, job.plan, *job.batches);
    run = record.directory();
  }
  SoloJob other(folder, "seed = 9\n");
  CHECK(refused([&] { static_cast<void>(JobRecord::open(run, other.config, other.plan, *other.batches)); },
                Status::kFailedPrecondition)
            .find("another seed") != std::string::npos);
  Plan larger = job.plan;
  larger.global_batch = 16;
  CHECK(refused([&] { static_cast<void>(JobRecord::open(run, job.config, larger, *job.batches)); },
                Status::kFailedPrecondition)
            .find("pinned to global batch") != std::string::npos);
  refused([&] { static_cast<void>(JobRecord::open(folder.path() / "none", job.config, job.plan, *job.batches)); },
          Status::kNotFound);
}
