// JobRecord: what a job leaves behind that has no agent, such as a loop of one's own under torchrun: config, lengths,
// ledger and snapshots in a run directory, as `pliant run` leaves them. `pliant audit`, `report` and `snapshot` read
// it.
//
//   pliant::JobRecord record = pliant::JobRecord::begin(config, plan, batches);      // on rank 0 alone
//   record.start_generation(world_size, "start");
//   while (const auto batch = batches.next()) {
//     ...                                       // forward, backward, all-reduce, on all ranks
//     record.commit(*batch, assignment, loss, rate);  // on disk when it returns; now the optimizers apply
//   }
//
// The launcher restarts the group, at whatever world size; rank 0 opens the record and says where it goes on:
//
//   pliant::JobRecord record = pliant::JobRecord::open(run, config, plan, batches);
//   const pliant::Restored from = record.restore([&](std::istream& in) { model.load(in); });
//   record.start_generation(world_size, "restarted");
//   for (int64_t step = from.step; batches.has_step(step); ++step) ...
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <memory>
#include <string>

#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/plan.hpp"

namespace pliant {

/// What a job goes on from.
struct Restored {
  int64_t step = 0;      ///< the next one
  std::string lr_state;  ///< LearningRate::save as it was then; empty at step 0
};

/// A place among the batches of a job.
struct BatchPosition {
  int64_t epoch = 0;
  int64_t index = 0;  ///< of the batch within the epoch; the number of its batches: behind the last one
  bool operator==(const BatchPosition&) const = default;
};

/// One process of the job has it, and no other process writes in its directory meanwhile. One thread at a time. What it
/// cannot write it throws (kResourceExhausted for a full disk), and what is on disk stays as it was. Movable.
class JobRecord {
 public:
  /// A new run below [run] log_dir. `plan` and `batches` are those of the job, made from `config`.
  static JobRecord begin(const Config& config, const Plan& plan, const Batches& batches);
  /// The run in `directory`, to go on with. Throws (kInput) kNotFound where there is none, kFailedPrecondition where
  /// another process writes to it or it is of other data, options of the sampler, seed, global batch or granule;
  /// kDataLoss for a damaged ledger. Other parts of the config may have changed; the record keeps both.
  static JobRecord open(const std::filesystem::path& directory, const Config& config, const Plan& plan,
                        const Batches& batches);
  ~JobRecord();
  JobRecord(JobRecord&&) noexcept;
  JobRecord& operator=(JobRecord&&) noexcept;

  [[nodiscard]] const std::filesystem::path& directory() const;
  /// Committed so far, on the lineage that survives: the number of the next step.
  [[nodiscard]] int64_t steps() const;
  /// Where the batch of step steps() is: behind that of the last step, so perhaps behind the last of its epoch. Batches
  /// has a batch by its place with one plan; Batches::at_step counts the batches of every epoch before it.
  [[nodiscard]] BatchPosition position() const;

  /// From here on `world_size` ranks work; before the first commit of each group.
  void start_generation(int64_t world_size, const std::string& reason);
  /// Step steps(), over `batch`, is final: all ranks have reduced it. `assignment`: the rows that each rank computed,
  /// those of share_out() or of the config's balancer, deterministic where [run] is, and then in turn where there is
  /// [coordinator], or an audit names the difference. Throws kFailedPrecondition without a generation, kInvalidArgument
  /// for an assignment to another number of ranks, or of other rows.
  void commit(const Batch& batch, const Assignment& assignment, double loss, double learning_rate);
  /// Keeps the state after steps() steps, whole or not at all; older ones than [run] keep_snapshots are removed, but
  /// for the best one ([run] keep_best, by the loss).
  void keep_snapshot(const std::string& lr_state, const std::function<void(std::ostream& out)>& write_state);
  /// Has `read_state` read the newest snapshot that is there, and takes what was committed after it for void: it will
  /// be computed again. At step 0, without a call, where there is none. Throws kDataLoss for a damaged one.
  Restored restore(const std::function<void(std::istream& in)>& read_state);

 private:
  struct State;
  explicit JobRecord(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pliant
