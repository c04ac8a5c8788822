// The flat space of a model: its chunks and who lies in which.
#include "sharded/layout.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>
#include <numeric>
#include <set>

namespace pliant::sharded {
namespace {

ShardLayout layout_of(const std::vector<int64_t>& counts) {
  auto layout = ShardLayout::create(counts);
  REQUIRE(layout.has_value());
  return *layout;
}

TEST_CASE("a negative count and a model that no memory holds are refused by the number of the parameter") {
  const auto negative = ShardLayout::create(std::vector<int64_t>{3, -1});
  REQUIRE_FALSE(negative.has_value());
  CHECK(negative.error().status() == Status::kInvalidArgument);
  CHECK(negative.error().message() == "parameter 1 has -1 elements; 0 is the least");
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{kMost}, {1, kMost}, {ShardLayout::kMostElements, 1}}) {
    const auto large = ShardLayout::create(counts);
    REQUIRE_FALSE(large.has_value());
    CHECK(large.error().status() == Status::kInvalidArgument);
  }
}

TEST_CASE("a model without parameters, or with empty ones only, has no chunks") {
  CHECK(layout_of({}).chunks() == 0);
  const ShardLayout empty = layout_of({0, 0});
  CHECK(empty.params() == 2);
  CHECK(empty.chunks() == 0);
  CHECK(empty.flat_elements() == 0);
  CHECK(empty.chunks_of(ParamId{1}).count == 0);
  CHECK(empty.pieces_of(FlatRange{0, 0}).empty());
}

TEST_CASE("parameters begin at multiples of 256 elements and chunks hold pieces of several") {
  const ShardLayout layout = layout_of({300, 0, 1, 2000});
  CHECK(layout.range_of(ParamId{0}) == FlatRange{0, 300});
  CHECK(layout.range_of(ParamId{1}) == FlatRange{512, 0});
  CHECK(layout.range_of(ParamId{2}) == FlatRange{512, 1});
  CHECK(layout.range_of(ParamId{3}) == FlatRange{768, 2000});
  CHECK(layout.dense_offset_of(ParamId{3}) == 301);
  CHECK(layout.param_elements() == 2301);
  CHECK(layout.chunk_elements() == 1024);
  CHECK(layout.chunks() == 3);
  CHECK(layout.flat_elements() == 3072);
  CHECK(layout.chunks_of(ParamId{3}) == ChunkRange{ChunkId{0}, 3});
  CHECK(layout.pieces_of(ChunkId{0}) ==
        std::vector<ParamPiece>{{ParamId{0}, 0, 300, 0}, {ParamId{2}, 0, 1, 512}, {ParamId{3}, 0, 256, 768}});
  CHECK(layout.pieces_of(ChunkId{2}) == std::vector<ParamPiece>{{ParamId{3}, 1280, 720, 2048}});
  CHECK(layout.pieces_of(FlatRange{299, 300}) ==
        std::vector<ParamPiece>{{ParamId{0}, 299, 1, 299}, {ParamId{2}, 0, 1, 512}});
}

TEST_CASE("chunks double until there are no more than 2^20") {
  constexpr int64_t kMost = int64_t{ShardLayout::kMostChunks} * ShardLayout::kSmallestChunk;
  CHECK(layout_of({kMost}).chunks() == ShardLayout::kMostChunks);
  CHECK(layout_of({kMost}).chunk_elements() == 1024);
  CHECK(layout_of({kMost + 1}).chunk_elements() == 2048);
  CHECK(layout_of({kMost + 1}).chunks() == ShardLayout::kMostChunks / 2 + 1);
  CHECK(layout_of({kMost / 2, kMost / 2 + 1}).chunk_elements() == 2048);
  CHECK(layout_of({ShardLayout::kMostElements}).chunks() == ShardLayout::kMostChunks);
}

TEST_CASE("layouts of different sizes have different digests") {
  const std::vector<std::vector<int64_t>> models{{}, {0}, {1}, {2}, {1, 2}, {2, 1}, {3}, {1, 0, 2}, {256, 256}, {512}};
  std::set<uint64_t> digests;
  for (const auto& counts : models) digests.insert(layout_of(counts).digest());
  CHECK(digests.size() == models.size());
  CHECK(layout_of({1, 2}) == layout_of({1, 2}));
  CHECK_FALSE(layout_of({1, 2}) == layout_of({2, 1}));
}

TEST_CASE("the pieces of all chunks are every element of every parameter once") {
  const bool held = rc::check([] {
    const auto counts = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 4000));
    const ShardLayout layout = *ShardLayout::create(counts);
    RC_ASSERT(layout.param_elements() == std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    std::vector<int64_t> seen(counts.size(), 0);
    int64_t last_end = 0;
    for (int32_t chunk = 0; chunk < layout.chunks(); ++chunk) {
      const auto pieces = layout.pieces_of(ChunkId{chunk});
      RC_ASSERT(!pieces.empty() || chunk + 1 < layout.chunks());
      for (const ParamPiece& piece : pieces) {
        const size_t param = index_of(piece.param);
        RC_ASSERT(piece.count > 0);
        RC_ASSERT(piece.first == seen[param]);
        RC_ASSERT(piece.offset >= last_end);
        RC_ASSERT(layout.chunk_of(piece.offset) == ChunkId{chunk});
        RC_ASSERT(layout.chunk_of(piece.offset + piece.count - 1) == ChunkId{chunk});
        RC_ASSERT(piece.offset == layout.range_of(piece.param).first + piece.first);
        seen[param] += piece.count;
        last_end = piece.offset + piece.count;
      }
    }
    RC_ASSERT(seen == counts);
    for (size_t param = 0; param < counts.size(); ++param)
      RC_ASSERT(layout.range_of(static_cast<ParamId>(param)).first % ShardLayout::kAlignment == 0);
  });
  CHECK(held);
}

}  // namespace
}  // namespace pliant::sharded
