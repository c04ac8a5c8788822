// The flat space of a model: its chunks and which of them hold what.
#include "sharded/shards/layout.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <limits>

namespace pliant::sharded {
namespace {

FlatLayout layout_of(int64_t elements) {
  auto layout = FlatLayout::create(elements);
  REQUIRE(layout.has_value());
  return *layout;
}

TEST_CASE("a negative number of elements and a model that no memory holds are refused") {
  for (const int64_t elements : {int64_t{-1}, FlatLayout::kMostElements + 1, std::numeric_limits<int64_t>::max()}) {
    const auto refused = FlatLayout::create(elements);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kInvalidArgument);
  }
}

TEST_CASE("a model without elements has no chunks, and a chunk has 1024 elements") {
  CHECK(layout_of(0).chunks() == 0);
  CHECK(layout_of(0).chunks_of({0, 0}).count == 0);
  const FlatLayout layout = layout_of(2301);
  CHECK(layout.chunk_elements() == 1024);
  CHECK(layout.chunks() == 3);
  CHECK(layout.chunks_of({301, 2000}) == ChunkRange{ChunkId{0}, 3});
  CHECK(layout.chunks_of({1024, 1}) == ChunkRange{ChunkId{1}, 1});
  CHECK(layout.range_of(ChunkRange{ChunkId{1}, 2}) == FlatRange{1024, 2048});
}

TEST_CASE("chunks double until there are no more than 2^20") {
  constexpr int64_t kMost = int64_t{FlatLayout::kMostChunks} * FlatLayout::kSmallestChunk;
  CHECK(layout_of(kMost).chunks() == FlatLayout::kMostChunks);
  CHECK(layout_of(kMost).chunk_elements() == 1024);
  CHECK(layout_of(kMost + 1).chunk_elements() == 2048);
  CHECK(layout_of(kMost + 1).chunks() == FlatLayout::kMostChunks / 2 + 1);
  CHECK(layout_of(FlatLayout::kMostElements).chunks() == FlatLayout::kMostChunks);
}

TEST_CASE("the chunks of a range are those of its first and last element, and all between") {
  const bool held = rc::check([] {
    const FlatLayout layout = *FlatLayout::create(*rc::gen::inRange<int64_t>(1, int64_t{1} << 40));
    const int64_t first = *rc::gen::inRange<int64_t>(0, layout.elements());
    const int64_t count = *rc::gen::inRange<int64_t>(1, layout.elements() - first + 1);
    const ChunkRange chunks = layout.chunks_of({first, count});
    RC_ASSERT(chunks.first == layout.chunk_of(first));
    RC_ASSERT(advanced(chunks.first, chunks.count - 1) == layout.chunk_of(first + count - 1));
    RC_ASSERT(layout.range_of(chunks).first <= first);
    RC_ASSERT(layout.range_of(chunks).end() >= first + count);
    RC_ASSERT(static_cast<int32_t>(chunks.first) + chunks.count <= layout.chunks());
  });
  CHECK(held);
}

}  // namespace
}  // namespace pliant::sharded
