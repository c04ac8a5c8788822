// EpochLog: where each epoch of a run begins, in a file of the run directory. A worker that joins in a later epoch
// finds there what it would have to plan all epochs before for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "pliant/batches.hpp"

namespace pliant::elastic {

/// Name of the file in the run directory: a line for each epoch that a rank 0 has begun, each with its check sum.
inline constexpr const char* kEpochsFile = "epochs.jsonl";

/// What is known of an epoch that has begun, and of the job.
struct BegunEpoch {
  int64_t epoch = 0;
  int64_t first_step = 0;
  std::string position;             ///< Batches::save, within the epoch
  BatchSize mean_batch;             ///< of epoch 0
  std::optional<JobLength> length;  ///< of a job of so many epochs and steps at most; nullopt: nobody asked
  int64_t epochs = 0;
  int64_t max_steps = 0;
};

std::string to_line(const BegunEpoch& epoch);
/// nullopt for a line that is cut off or damaged, and for one of another version.
std::optional<BegunEpoch> begun_epoch_of(std::string_view line);

/// Of the run in `directory`, in the order of the file; damaged lines are left out. Empty where there is no file.
std::vector<BegunEpoch> read_epochs(const std::filesystem::path& directory);
/// At the end of the file, on a line of its own. kFailedPrecondition, kResourceExhausted and the like where it cannot
/// be written.
Result<> append_epoch(const std::filesystem::path& directory, const BegunEpoch& epoch);

/// Leaves out epochs that begin after `step`: a run that goes back there begins them again.
Result<> drop_epochs_after(const std::filesystem::path& directory, int64_t step);

/// The last of those that begin at `step` or before; nullptr: none does.
const BegunEpoch* epoch_before(const std::vector<BegunEpoch>& epochs, int64_t step);

}  // namespace pliant::elastic
