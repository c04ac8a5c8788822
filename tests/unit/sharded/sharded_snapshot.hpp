// A small model's snapshot in parts, whose every element says where it is from.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "scratch_folder.hpp"
#include "sharded/snapshot_parts.hpp"

namespace pliant::sharded {

inline SnapshotContent small_content(int32_t world_size, int64_t step = 20) {
  SnapshotContent content;
  content.run_id = "run-1";
  content.step = step;
  content.params = {{"embed", {30, 100}}, {"scale", {}}, {"none", {0}}, {"layers.0.weight", {7, 500}}};
  content.kinds = {"weight", "moment1"};
  content.ownership = *Ownership::deal(content.layout()->chunks(), world_size);
  return content;
}

/// Element `element` of the flat space of an array; padding is 0.
inline float element_at(const ShardLayout& layout, size_t kind, int64_t element) {
  if (layout.pieces_of(FlatRange{element, 1}).empty()) return 0;
  return static_cast<float>(element) + 0.25F * static_cast<float>(kind + 1);
}

inline std::vector<float> elements_of(const ShardLayout& layout, size_t kind, FlatRange range) {
  std::vector<float> elements;
  for (int64_t i = range.first; i < range.end(); ++i) elements.push_back(element_at(layout, kind, i));
  return elements;
}

/// The shard of one rank, in the order of its chunks.
inline std::vector<float> shard_of(const SnapshotContent& content, size_t kind, int32_t rank) {
  const ShardLayout layout = *content.layout();
  std::vector<float> shard;
  for (const OwnedRun& run : content.ownership.runs_of(rank)) {
    const auto elements = elements_of(layout, kind, layout.range_of(run.chunks));
    shard.insert(shard.end(), elements.begin(), elements.end());
  }
  return shard;
}

inline Result<SnapshotPart> write_rank(const std::filesystem::path& folder, const SnapshotContent& content,
                                       int32_t rank) {
  std::vector<std::vector<float>> shards;
  for (size_t kind = 0; kind < content.kinds.size(); ++kind) shards.push_back(shard_of(content, kind, rank));
  std::vector<ShardReader> arrays;
  for (const auto& shard : shards) {
    arrays.emplace_back([&shard](int64_t first, int64_t count) {
      CHECK(first + count <= static_cast<int64_t>(shard.size()));
      return shard.data() + first;
    });
  }
  return write_part(folder, content, rank, arrays);
}

inline SnapshotIndex write_all_ranks(const std::filesystem::path& folder, const SnapshotContent& content) {
  SnapshotIndex index{content, {}};
  for (int32_t rank = 0; rank < content.ownership.world_size(); ++rank) {
    const auto part = write_rank(folder, content, rank);
    REQUIRE(part.has_value());
    index.parts.push_back(*part);
  }
  return index;
}

}  // namespace pliant::sharded
