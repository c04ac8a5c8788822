// Snapshots of a job, for programs that are none: load_snapshot() reads the state, to evaluate its weights, say, and
// export_snapshot() writes its arrays, whole and by name, as a .safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "pliant/error.hpp"
#include "pliant/metric.hpp"
#include "pliant/training_state.hpp"

namespace pliant {

/// What a snapshot holds.
struct SnapshotContent {
  int64_t step = 0;    ///< committed steps in the state
  std::string run_id;  ///< of the run that wrote it; empty in files of the first format
  /// As TrainingState::arrays gave them; data is nullptr. None in old files. Of a sharded job what it keeps of each
  /// parameter, f32 and whole: "weights/layers.0.weight", and for each state of its optimizer
  /// "exp_avg/layers.0.weight".
  std::vector<StateArray> arrays;
  bool is_sharded = false;
};

/// Reads `file`. All of it is checked first. Then `place` sets the data of the arrays that are wanted, each to host
/// memory of its type and shape; the others are left out. They are filled, and then `load` reads what
/// TrainingState::save wrote; empty: it is not read. Returns the content with these places. Throws (kInput) kNotFound
/// where there is no file, kDataLoss for a damaged one, kFailedPrecondition for one of a newer release and for one of a
/// sharded job that an earlier release wrote without the names of parameters; what `place` and `load` throw, with the
/// name of the file before it.
SnapshotContent load_snapshot(const std::filesystem::path& file, const std::function<void(SnapshotContent&)>& place,
                              const std::function<void(std::istream&)>& load = {});

/// Which snapshot of a run: the newest that is there, unless one of these says otherwise.
struct SnapshotChoice {
  bool best = false;            ///< the best by [run] keep_best
  std::optional<int64_t> step;  ///< the one with so many committed steps
};

struct SnapshotExport {
  std::filesystem::path snapshot;    ///< that was read
  std::string run_id;                ///< of the run that wrote it; empty: by a release that did not say
  int64_t step = 0;                  ///< committed steps that it holds
  std::optional<BestSnapshot> best;  ///< what makes it the best one, where that was asked for
  int64_t tensors = 0;               ///< that were written
  uint64_t bytes = 0;                ///< of their elements
};

/// Writes `file`, whole or not at all. `from` is the directory of a run, at which a job may be at work, or a snapshot
/// itself, and then `which` is empty. Of a sharded job the file has its parameters, f32 and by name, as
/// ShardedModel::export_safetensors writes them; of another one all arrays of its TrainingState. Its metadata have
/// `run_id` and `step` and, of the best one, `metric` and `value`.
///
/// `replace`: an existing file may be replaced. Throws (kInput) kNotFound where there is no such run or snapshot, or no
/// snapshot has a value of keep_best, kFailedPrecondition where the run keeps no best one, the snapshot has no arrays
/// or there is a file already, kInvalidArgument for a choice that cannot be made and for a file without a name;
/// kDataLoss for a damaged snapshot or ledger; what writing a file throws.
SnapshotExport export_snapshot(const std::filesystem::path& from, const SnapshotChoice& which,
                               const std::filesystem::path& file, bool replace = false);

}  // namespace pliant
