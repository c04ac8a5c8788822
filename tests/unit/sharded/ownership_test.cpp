// Who owns which chunk: dealing, looking up, tables of gathers, and the text that it is kept as.
#include "sharded/shards/ownership.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "sharded/shards/segments.hpp"

namespace pliant::sharded {
namespace {

Ownership map_of(const std::vector<Ownership::Run>& runs, int32_t world_size, int64_t epoch = 0) {
  auto map = Ownership::of_runs(runs, world_size, epoch);
  REQUIRE(map.has_value());
  return *map;
}

/// Random runs over `world_size` ranks.
rc::Gen<std::vector<Ownership::Run>> some_runs(int32_t world_size) {
  return rc::gen::container<std::vector<Ownership::Run>>(
      rc::gen::build<Ownership::Run>(rc::gen::set(&Ownership::Run::count, rc::gen::inRange(1, 9)),
                                     rc::gen::set(&Ownership::Run::owner, rc::gen::inRange(0, world_size))));
}

TEST_CASE("world sizes, chunks, epochs and owners that cannot be are refused") {
  const std::vector<Ownership::Run> one{{1, 0}};
  const std::vector<Ownership::Run> stranger{{1, 2}};
  const std::vector<Ownership::Run> negative{{1, -1}};
  const std::vector<Ownership::Run> empty{{0, 0}};
  const std::vector<Ownership::Run> many{{FlatLayout::kMostChunks, 0}, {1, 1}};
  for (const auto& refused :
       {Ownership::deal(10, 0), Ownership::deal(10, -1), Ownership::deal(-1, 2),
        Ownership::deal(FlatLayout::kMostChunks + 1, 2), Ownership::deal(1, Ownership::kMostRanks + 1),
        Ownership::of_runs(one, 0, 0), Ownership::of_runs(one, 1, -1), Ownership::of_runs(stranger, 2, 0),
        Ownership::of_runs(negative, 2, 0), Ownership::of_runs(empty, 1, 0), Ownership::of_runs(many, 2, 0)}) {
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kInvalidArgument);
  }
}

TEST_CASE("text that is no map of owners is data loss, and the message says what is wrong with it") {
  for (const auto& damaged : std::vector<std::pair<std::string, std::string>>{
           {"", "does not begin with a map's header"},
           {"pliant-ownership", "its format is not 1"},
           {"pliant-ownership 2 epoch 0 ranks 1 chunks 1 runs 1:0", "its format is not 1"},
           {"pliant-ownership 1 epoch -1 ranks 1 chunks 1 runs 1:0", "are missing"},
           {"pliant-ownership 1 epoch 0 ranks 1 chunks 1", "are missing"},
           {"pliant-ownership 1 epoch 0 ranks 01 chunks 1 runs 1:0", "are missing"},
           {"pliant-ownership 1 epoch 0 ranks 0 chunks 1 runs 1:0", "world size 0 cannot"},
           {"pliant-ownership 1 epoch 0 ranks 99999999999 chunks 1 runs 1:0", "world size 99999999999 cannot"},
           {"pliant-ownership 1 epoch 0 ranks 1 chunks 9999999 runs 1:0", "9999999 chunks"},
           {"pliant-ownership 1 epoch 0 ranks 1 chunks 1 runs 1:1", "'1:1' is not a run"},
           {"pliant-ownership 1 epoch 0 ranks 1 chunks 1 runs 1", "'1' is not a run"},
           {"pliant-ownership 1 epoch 0 ranks 1 chunks 1 runs 1:0 ", "'' is not a run"},
           {"pliant-ownership 1 epoch 0 ranks 1 chunks 3 runs 0:0 3:0", "a run of 0 chunks"},
           {"pliant-ownership 1 epoch 0 ranks 2 chunks 3 runs 3:0 3:1", "hold 6 of 3"},
           {"pliant-ownership 1 epoch 0 ranks 2 chunks 3 runs 1:0 1:1", "hold 2 of 3"},
           {"pliant-ownership 1 epoch 0 ranks 2 chunks 3 runs 1:0 2:0", "two adjacent runs have the same owner"},
       }) {
    const auto& text = damaged.first;
    const auto& reason = damaged.second;
    CAPTURE(text);
    const auto refused = Ownership::load(text);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kDataLoss);
    CHECK(refused.error().message().find(reason) != std::string::npos);
  }
}

TEST_CASE("the first dealing is contiguous and balanced within one chunk") {
  const Ownership map = *Ownership::deal(10, 4);
  CHECK(map.epoch() == 0);
  CHECK(map.chunks() == 10);
  CHECK(map.world_size() == 4);
  CHECK(map.runs() ==
        std::vector<OwnedRun>{
            {{ChunkId{0}, 2}, 0, 0}, {{ChunkId{2}, 2}, 1, 0}, {{ChunkId{4}, 3}, 2, 0}, {{ChunkId{7}, 3}, 3, 0}});
  CHECK(map.owner_of(ChunkId{5}) == 2);
  CHECK(map.slot_of(ChunkId{5}) == 1);
  const Ownership few = *Ownership::deal(2, 5);
  CHECK(few.runs().size() == 2);
  CHECK(few.chunks_of(0) == 0);
  CHECK(Ownership::deal(0, 3)->runs().empty());
}

TEST_CASE("segments are each dealt to all ranks, and what is over goes to them in turn") {
  const Ownership three = *Ownership::deal(15, 3, 7, std::vector<int32_t>{7, 8, 15});
  CHECK(three.save() == "pliant-ownership 1 epoch 7 ranks 3 chunks 15 runs 2:0 2:1 3:2 1:1 3:0 2:1 2:2");
  for (const std::vector<int32_t>& ends : {std::vector<int32_t>{7, 8}, {8, 7, 15}, {7, 16}}) {
    CHECK(Ownership::deal(15, 3, 0, ends).error().status() == Status::kInvalidArgument);
  }
  const bool held = rc::check("no two ranks differ by more than a chunk in all, nor in a segment", [] {
    const int32_t world_size = *rc::gen::inRange(1, 65);
    std::vector<int32_t> ends = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange(0, 2000));
    std::sort(ends.begin(), ends.end());
    const int32_t chunks = ends.empty() ? 0 : ends.back();
    const Ownership map = *Ownership::deal(chunks, world_size, 0, ends);
    std::vector<int32_t> all;
    for (int32_t rank = 0; rank < world_size; ++rank) all.push_back(map.chunks_of(rank));
    RC_ASSERT(*std::max_element(all.begin(), all.end()) - *std::min_element(all.begin(), all.end()) <= 1);
    int32_t begin = 0;
    for (const int32_t end : ends) {
      std::vector<int32_t> of_ranks(static_cast<size_t>(world_size));
      for (const OwnedRun& run : map.runs_in({ChunkId{begin}, end - begin}))
        of_ranks[static_cast<size_t>(run.owner)] += run.chunks.count;
      RC_ASSERT(*std::max_element(of_ranks.begin(), of_ranks.end()) <=
                *std::min_element(of_ranks.begin(), of_ranks.end()) + 1);
      begin = end;
    }
  });
  CHECK(held);
}

TEST_CASE("a model's segments are its parameters, and small ones side by side") {
  ModelTables model;
  const auto add = [&model](const char* name, int64_t elements) {
    ParameterSpec spec;
    spec.name = name;
    spec.shape = {elements};
    spec.initialise = [](std::span<float>) {};
    model.add(std::move(spec));
  };
  add("embedding", 20 * 1024);
  add("norm", 100);
  add("up", 8 * 1024);
  add("bias", 1024);
  add("down", 8 * 1024);
  add("end", 50);
  const FlatLayout layout = *FlatLayout::create(static_cast<int64_t>(model.elements()));
  REQUIRE(layout.chunks() == 38);
  CHECK(segments_of(model, layout, 4) == std::vector<int32_t>{20, 28, 38});
  CHECK(segments_of(model, layout, 16) == std::vector<int32_t>{20, 38});
  CHECK(segments_of(model, layout, 64) == std::vector<int32_t>{38});
  CHECK(segments_of(ModelTables(), FlatLayout(), 4).empty());
  CHECK(dealt(model, layout, 4).runs_in({ChunkId{20}, 8}).size() == 4);
}

TEST_CASE("a gather's table follows the runs of owners and the places in their shards") {
  const FlatLayout layout = *FlatLayout::create(5512);
  const Ownership map = map_of({{1, 0}, {2, 1}, {2, 0}, {1, 1}}, 2);
  REQUIRE(layout.chunks() == map.chunks());
  CHECK(map.pieces_of(layout, {512, 5000}) ==
        std::vector<ShardPiece>{
            {{512, 512}, 0, 512}, {{1024, 2048}, 1, 0}, {{3072, 2048}, 0, 1024}, {{5120, 392}, 1, 2048}});
  CHECK(map.pieces_of(layout, {700, 0}).empty());
  CHECK(map.runs_of(0) == std::vector<OwnedRun>{{{ChunkId{0}, 1}, 0, 0}, {{ChunkId{3}, 2}, 0, 1}});
}

TEST_CASE("a map is read as it was written, and other maps have other digests") {
  const bool held = rc::check([] {
    const int32_t world_size = *rc::gen::inRange(1, 65);
    const auto epoch = *rc::gen::inRange<int64_t>(0, 1000);
    const Ownership map = *Ownership::of_runs(*some_runs(world_size), world_size, epoch);
    const auto read = Ownership::load(map.save());
    RC_ASSERT(read.has_value());
    RC_ASSERT(*read == map);
    const Ownership other = *Ownership::of_runs(*some_runs(world_size), world_size, epoch);
    RC_ASSERT((other == map) == (other.digest() == map.digest()));
    RC_ASSERT((other == map) == (other.save() == map.save()));
  });
  CHECK(held);
}

TEST_CASE("every chunk has one owner, and a shard holds its chunks in order without gaps") {
  const bool held = rc::check([] {
    const int32_t world_size = *rc::gen::inRange(1, 65);
    const Ownership map = *Ownership::of_runs(*some_runs(world_size), world_size, 0);
    std::vector<int32_t> next(static_cast<size_t>(world_size), 0);
    for (int32_t chunk = 0; chunk < map.chunks(); ++chunk) {
      const int32_t owner = map.owner_of(ChunkId{chunk});
      RC_ASSERT(map.slot_of(ChunkId{chunk}) == next[static_cast<size_t>(owner)]++);
    }
    for (int32_t rank = 0; rank < world_size; ++rank) RC_ASSERT(map.chunks_of(rank) == next[static_cast<size_t>(rank)]);
    if (map.chunks() == 0) return;
    const int32_t first = *rc::gen::inRange(0, map.chunks());
    const int32_t count = *rc::gen::inRange(0, map.chunks() - first + 1);
    int32_t chunk = first;
    for (const OwnedRun& run : map.runs_in({ChunkId{first}, count})) {
      RC_ASSERT(run.chunks.first == ChunkId{chunk});
      for (int32_t i = 0; i < run.chunks.count; ++i, ++chunk) {
        RC_ASSERT(map.owner_of(ChunkId{chunk}) == run.owner);
        RC_ASSERT(map.slot_of(ChunkId{chunk}) == run.slot + i);
      }
    }
    RC_ASSERT(chunk == first + count);
  });
  CHECK(held);
}

}  // namespace
}  // namespace pliant::sharded
