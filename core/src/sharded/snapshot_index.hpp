// SnapshotIndex: what the parts of a sharded job's snapshot hold, and which files they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "sharded/layout.hpp"
#include "sharded/ownership.hpp"

namespace pliant::sharded {

struct SnapshotParam {
  std::string name;
  std::vector<int64_t> shape;  ///< row-major; {} is one element
  friend bool operator==(const SnapshotParam&, const SnapshotParam&) = default;
};

/// What a snapshot holds, the same in the view of all ranks.
struct SnapshotContent {
  std::string run_id;
  int64_t step = 0;                   ///< committed steps
  std::vector<SnapshotParam> params;  ///< in the order of their ids
  std::vector<std::string> kinds;     ///< arrays over the flat space, "weight", "moment1", in their order
  Ownership ownership;                ///< at the time of writing

  /// The layout of its parameters. kInvalidArgument where they have none.
  [[nodiscard]] Result<ShardLayout> layout() const;
  /// The same, once all holds together: a step from 0 on, names in UTF-8 of which none comes twice, owners of all
  /// chunks. kInvalidArgument where it does not.
  [[nodiscard]] Result<ShardLayout> checked_layout() const;
  friend bool operator==(const SnapshotContent&, const SnapshotContent&) = default;
};

/// A file that a rank wrote, once it is permanent.
struct SnapshotPart {
  std::string file;  ///< in the folder of parts; no path
  uint64_t bytes = 0;
  uint64_t digest = 0;  ///< of its header and of the digests of its chunks

  /// "rank-1-of-4.0123456789ab 4096 0123456789abcdef", for messages between ranks.
  [[nodiscard]] std::string save() const;
  /// kDataLoss for what save() did not give.
  static Result<SnapshotPart> load(std::string_view text);
  friend bool operator==(const SnapshotPart&, const SnapshotPart&) = default;
};

struct SnapshotIndex {
  SnapshotContent content;
  std::vector<SnapshotPart> parts;  ///< one of each rank that wrote, in their order

  /// JSON. It belongs into a file that is checked as a whole, such as a snapshot.
  [[nodiscard]] std::string save() const;
  /// Reads what save() gave and checks that it holds together. kDataLoss for anything else.
  static Result<SnapshotIndex> load(std::string_view text);
  /// kFailedPrecondition (exit 2), with the first difference, where the parameters are not those of this program.
  /// `file` names the snapshot.
  [[nodiscard]] Result<> require_params(std::span<const SnapshotParam> own, const std::filesystem::path& file) const;
  friend bool operator==(const SnapshotIndex&, const SnapshotIndex&) = default;
};

}  // namespace pliant::sharded
