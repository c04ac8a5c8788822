// Snapshot: parameters, optimizer, RNG, learning-rate state and the step count of a job as one file that is whole or
// absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>

#include "base/result.hpp"

namespace pliant::elastic {

struct SnapshotHeader {
  int64_t step = 0;         ///< committed steps it holds
  std::string fingerprint;  ///< of the job (Batches::fingerprint, hex)
  std::string lr_state;     ///< LearningRate::save
};

/// `snapshots/step-00000020.snapshot` below the run directory.
std::filesystem::path snapshot_file(int64_t step);

/// Writes under another name, syncs, renames, syncs the folder. `write_state` streams the program's state. On failure
/// (a full disk: kResourceExhausted) nothing is left and older snapshots are untouched. Throws nothing.
Result<> write_snapshot(const std::filesystem::path& file, const SnapshotHeader& header,
                        const std::function<void(std::ostream&)>& write_state);

/// Checks magic, version, sizes and checksum before `read_state` sees a byte. kDataLoss when damaged, kNotFound when
/// absent.
Result<SnapshotHeader> read_snapshot(const std::filesystem::path& file,
                                     const std::function<void(std::istream&)>& read_state);

}  // namespace pliant::elastic
