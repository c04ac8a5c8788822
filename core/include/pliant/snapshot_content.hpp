// load_snapshot(): the state in a snapshot of a job, for a program that is no job: to evaluate its weights, say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "pliant/training_state.hpp"

namespace pliant {

/// What a snapshot holds of a state that is whole on every rank.
struct SnapshotContent {
  int64_t step = 0;                ///< committed steps in the state
  std::string run_id;              ///< of the run that wrote it; empty in files of the first format
  std::vector<StateArray> arrays;  ///< as TrainingState::arrays gave them; data is nullptr. None in old files
};

/// Reads `file`. All of it is checked first. Then `place` sets the data of the arrays that are wanted, each to host
/// memory of its type and shape; the others are left out. They are filled, and then `load` reads what
/// TrainingState::save wrote; empty: nobody does. Returns the content with these places. Throws (kInput) kNotFound
/// where there is no file, kDataLoss for a damaged one, kFailedPrecondition for one of a newer release and for a model
/// that is cut over the ranks; what `place` and `load` throw, with the name of the file before it.
SnapshotContent load_snapshot(const std::filesystem::path& file, const std::function<void(SnapshotContent&)>& place,
                              const std::function<void(std::istream&)>& load = {});

}  // namespace pliant
