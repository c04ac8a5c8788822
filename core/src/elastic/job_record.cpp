// The record of a job without an agent, over the same ledger and the same snapshots.
#include "pliant/job_record.hpp"

#include <fmt/format.h>

#include <optional>
#include <system_error>
#include <utility>

#include "base/result.hpp"
#include "data/input_file.hpp"
#include "data/lengths_file.hpp"
#include "elastic/assignment_record.hpp"
#include "elastic/best_snapshot.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "elastic/snapshot.hpp"

namespace pliant {

namespace {

namespace fs = std::filesystem;

std::string hex_of_batches(const Batches& batches) {
  return fmt::format("{:016x}", batches.fingerprint());
}

[[noreturn]] void refuse_record(const std::string& why) {
  throw Error(Status::kFailedPrecondition, why, Origin::kInput);
}

void check_same_job(const elastic::RunDirectory& directory, const elastic::JobFacts& facts, const Plan& plan) {
  if (facts.global_batch == plan.global_batch && facts.granule == plan.granule) return;
  refuse_record(
      fmt::format("cannot go on with {}: the job is pinned to global batch {} in granules of {}; the plan has {} in "
                  "granules of {}",
                  directory.path().string(), facts.global_batch, facts.granule, plan.global_batch, plan.granule));
}

int64_t rows_of(const Assignment& assignment) {
  int64_t rows = 0;
  for (const RowRange& block : assignment.blocks) rows += block.count;
  return rows;
}

}  // namespace

struct JobRecord::State {
  elastic::RunDirectory directory;
  elastic::DirectoryLock lock;
  elastic::Ledger ledger;
  std::string run_id;
  std::string config_digest;
  RunOptions run;                                       ///< how many snapshots are kept, and which
  std::optional<elastic::GenerationRecord> generation;  ///< that was begun by this process

  [[nodiscard]] const elastic::Lineage& lineage() const { return ledger.lineage(); }
  [[nodiscard]] int64_t steps() const { return static_cast<int64_t>(lineage().commits.size()); }
  [[nodiscard]] bool has(const elastic::SnapshotRecord& snapshot) const {
    std::error_code error;
    return fs::exists(directory.path() / snapshot.file, error);
  }
  void prune() const {
    const auto& all = lineage().snapshots;
    const auto best = elastic::best_snapshot(lineage(), run, [this](const auto& one) { return has(one); });
    int64_t kept = 0;
    for (auto newest = all.rbegin(); newest != all.rend(); ++newest) {
      if (!has(*newest) || ++kept <= run.keep_snapshots) continue;
      if (best && best->file == newest->file) continue;
      std::error_code ignored;  // one that stays costs room only
      fs::remove(directory.path() / newest->file, ignored);
    }
  }
};

JobRecord::JobRecord(std::unique_ptr<State> state) : state_(std::move(state)) {}
JobRecord::~JobRecord() = default;
JobRecord::JobRecord(JobRecord&&) noexcept = default;
JobRecord& JobRecord::operator=(JobRecord&&) noexcept = default;

JobRecord JobRecord::begin(const Config& config, const Plan& plan, const Batches& batches) {
  const elastic::JobFacts facts{elastic::fresh_run_id(), config.run().name, plan.global_batch, plan.granule};
  elastic::RunDirectory directory = or_throw(elastic::RunDirectory::create(config.run().log_dir, facts));
  elastic::DirectoryLock lock = or_throw(elastic::DirectoryLock::take(directory));
  const std::string resolved = config.resolved_toml();
  or_throw(directory.fill(facts, resolved));
  or_throw(data::write_dataset_once(directory.dataset(), batches.dataset()));
  elastic::Ledger ledger = or_throw(elastic::Ledger::create(directory.ledger(), facts.run_id, hex_of_batches(batches)));
  or_throw(directory.become_latest());
  return JobRecord(std::make_unique<State>(State{std::move(directory), std::move(lock), std::move(ledger), facts.run_id,
                                                 elastic::digest_of_config(resolved), config.run(), std::nullopt}));
}

JobRecord JobRecord::open(const fs::path& path, const Config& config, const Plan& plan, const Batches& batches) {
  elastic::RunDirectory directory = or_throw(elastic::RunDirectory::open(path));
  elastic::DirectoryLock lock = or_throw(elastic::DirectoryLock::take(directory));
  const elastic::JobFacts facts = or_throw(directory.read_facts());
  check_same_job(directory, facts, plan);
  elastic::Ledger ledger = or_throw(elastic::Ledger::open(directory.ledger()));
  if (const std::string own = hex_of_batches(batches); ledger.lineage().fingerprint != own) {
    refuse_record(
        fmt::format("cannot go on with {}: it was begun with other data, another seed or other sampler options "
                    "(fingerprint {}, now {})",
                    directory.path().string(), ledger.lineage().fingerprint, own));
  }
  const std::string resolved = config.resolved_toml();
  std::string before;
  if (const auto text = data::read_whole(directory.config())) before = (*text)->bytes();
  or_throw(directory.change_config(before, resolved));
  return JobRecord(std::make_unique<State>(State{std::move(directory), std::move(lock), std::move(ledger), facts.run_id,
                                                 elastic::digest_of_config(resolved), config.run(), std::nullopt}));
}

const fs::path& JobRecord::directory() const {
  return state_->directory.path();
}
int64_t JobRecord::steps() const {
  return state_->steps();
}
BatchPosition JobRecord::position() const {
  const auto& commits = state_->lineage().commits;
  if (commits.empty()) return {};
  return {commits.back().epoch, commits.back().batch_index + 1};
}

void JobRecord::start_generation(int64_t world_size, const std::string& reason) {
  if (world_size < 1)
    throw Error(Status::kInvalidArgument, fmt::format("a generation of {} ranks; at least 1", world_size));
  const auto& all = state_->lineage().generations;
  elastic::GenerationRecord record;
  record.generation = all.empty() ? 1 : all.back().generation + 1;
  record.world_size = world_size;
  record.next_step = state_->steps();
  record.reason = reason;
  record.config = state_->config_digest;
  or_throw(state_->ledger.append(record));
  state_->generation = record;
}

void JobRecord::commit(const Batch& batch, const Assignment& assignment, double loss, double learning_rate) {
  if (!state_->generation) refuse_record("no generation was started: JobRecord::start_generation comes first");
  if (assignment.world_size() != state_->generation->world_size || rows_of(assignment) != batch.size.rows) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("an assignment of {} rows to {} ranks; the batch has {} rows, and {} ranks work",
                    rows_of(assignment), assignment.world_size(), batch.size.rows, state_->generation->world_size));
  }
  elastic::CommitRecord record;
  record.step = state_->steps();
  record.generation = state_->generation->generation;
  record.epoch = batch.epoch;
  record.batch_index = batch.index;
  record.shares = elastic::rows_of_ranks(assignment);
  record.size = batch.size;
  record.digest = batch.digest;
  record.loss = loss;
  record.learning_rate = learning_rate;
  or_throw(state_->ledger.append(record));
}

void JobRecord::keep_snapshot(const std::string& lr_state, const std::function<void(std::ostream&)>& write_state) {
  elastic::SnapshotHeader header;
  header.step = state_->steps();
  header.fingerprint = state_->lineage().fingerprint;
  header.lr_state = lr_state;
  header.run_id = state_->run_id;
  const fs::path file = elastic::snapshot_file(header.step);
  or_throw(elastic::write_snapshot(state_->directory.path() / file, header, write_state));
  elastic::SnapshotRecord record;
  record.step = header.step;
  record.file = file.string();
  or_throw(state_->ledger.append(record));
  state_->prune();
}

Restored JobRecord::restore(const std::function<void(std::istream&)>& read_state) {
  Restored from;
  const auto& all = state_->lineage().snapshots;
  for (auto newest = all.rbegin(); newest != all.rend(); ++newest) {
    if (!state_->has(*newest)) continue;
    const elastic::SnapshotHeader header = or_throw(elastic::read_snapshot(
        state_->directory.path() / newest->file,
        [&read_state](std::istream& in, const elastic::SnapshotHeader&) { read_state(in); },
        elastic::SnapshotOwner{state_->run_id, state_->lineage().fingerprint}));
    from = {header.step, header.lr_state};
    break;
  }
  if (from.step < state_->steps()) or_throw(state_->ledger.append(elastic::RestartRecord{from.step}));
  state_->generation.reset();
  return from;
}

}  // namespace pliant
