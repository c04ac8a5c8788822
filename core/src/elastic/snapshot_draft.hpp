// SnapshotDraft: a snapshot that the ranks of a sharded job write side by side, each what it owns. Once all have, one
// of them finishes it: it is a snapshot like any other then, and any world size, sharded or not, can begin from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/spool.hpp"
#include "sharded/shards/ownership.hpp"

namespace pliant::elastic {

/// What the ranks of one generation write together for the snapshot `file`. Agents count generations from 1 again, and
/// workers of one that is gone may still write: `agent` is a word without dots that no other agent has.
std::filesystem::path draft_of(const std::filesystem::path& file, int64_t generation, const std::string& agent);

/// Removes all drafts in a folder of snapshots; for an agent that takes a run up, before its workers start.
void remove_drafts(const std::filesystem::path& folder);

/// Of what one rank owns and so writes, whatever its number and the rest of the map: where each writes what one map
/// says of it, there is no hole.
uint64_t digest_of_cut(std::span<const sharded::OwnedRun> own);

class SnapshotDraft {
 public:
  /// Opens it, or makes it. kResourceExhausted for a full disk, as all below.
  static Result<SnapshotDraft> open(const std::filesystem::path& draft);
  /// Writes `bytes` bytes at `offset` of the file.
  Result<> write(uint64_t offset, const void* data, uint64_t bytes);
  /// What was written is on disk when it returns.
  Result<> sync();

 private:
  SnapshotDraft(std::filesystem::path file, FileDescriptor fd) : file_(std::move(file)), fd_(std::move(fd)) {}
  std::filesystem::path file_;
  FileDescriptor fd_;
};

/// Writes head and end around the `array_bytes` (0: none) that the ranks have written behind the head, takes the
/// checksum and puts the file in its place. `rest` is what follows the arrays. Removes what is left of drafts of this
/// and earlier steps; those of later steps may be under way and stay. On failure nothing is left but older snapshots.
/// O(bytes of the file).
Result<> finish_draft(const std::filesystem::path& draft, const std::filesystem::path& file,
                      const SnapshotHeader& header, uint64_t array_bytes, const Spool& rest);

}  // namespace pliant::elastic
