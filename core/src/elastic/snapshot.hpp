// Snapshot: parameters, optimizer, RNG, learning-rate state and the step count of a job as one file that is whole or
// absent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace pliant::elastic {

struct SnapshotHeader {
  int64_t step = 0;  ///< committed steps it holds
  std::string
      fingerprint;       ///< of the job (Batches::fingerprint, hex): its data and the options that decide its batches
  std::string lr_state;  ///< LearningRate::save
  std::string run_id{};  ///< of the run that wrote it; empty in files of format 1, which did not say
  std::string arrays{};  ///< StateArrays::layout; empty where the program has none, and in files before format 3
  std::string parameters{};   ///< of a sharded job: sharded::ParameterIndex of each array; empty before format 5
  std::string coordinator{};  ///< of a sharded job: what its coordinator had learnt; empty: nothing
  std::string model{};        ///< in files of format 4: digest of the parameters of a sharded job, hex; not written
};

/// Reads the whole state.
using StateReader = std::function<void(std::istream& state, const SnapshotHeader& header)>;

/// Whose state a reader will take.
struct SnapshotOwner {
  std::string run_id;
  std::string fingerprint;
};

inline constexpr const char* kSnapshotExtension = ".snapshot";

/// `snapshots/step-00000020.snapshot` below the run directory.
std::filesystem::path snapshot_file(int64_t step);

/// Writes under another name, syncs, renames, syncs the folder. `write_state` streams the state. On failure
/// (a full disk: kResourceExhausted) nothing is left and older snapshots are untouched. Throws nothing.
Result<> write_snapshot(const std::filesystem::path& file, const SnapshotHeader& header,
                        const std::function<void(std::ostream&)>& write_state);

/// The pieces of a file in order, for those who write one side by side (snapshot_draft.hpp): head, state, what comes
/// after it but for the last piece, the checksum of all before. The coordinator's part is in the end alone: heads of
/// ranks that differ in that are the same.
std::string head_of_snapshot(const SnapshotHeader& header);
std::string end_of_snapshot(const SnapshotHeader& header, uint64_t state_bytes);
std::string checksum_of_snapshot(uint64_t checksum);

/// Checks magic, version, sizes, checksum and, where given, the owner before `read_state` sees a byte. kDataLoss when
/// damaged, kNotFound when absent, kFailedPrecondition (kInput) when it is another run's.
Result<SnapshotHeader> read_snapshot(const std::filesystem::path& file, const StateReader& read_state,
                                     const std::optional<SnapshotOwner>& owner = {});

}  // namespace pliant::elastic
