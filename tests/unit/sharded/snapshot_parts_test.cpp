// Parts of a sharded snapshot: read at any world size, and exchanged with arrays of replicated models.
#include "sharded/snapshot_parts.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <numeric>

#include "elastic/state_digest.hpp"
#include "sharded/chunk_digest.hpp"
#include "sharded/dense.hpp"
#include "sharded/moves.hpp"
#include "sharded_snapshot.hpp"

namespace pliant::sharded {
namespace {

using test::ScratchFolder;

/// A map of owners over as many chunks as the content has, after a few changes.
Ownership some_map(int32_t chunks) {
  Ownership map = *Ownership::deal(chunks, *rc::gen::inRange(1, 7));
  const int changes = *rc::gen::inRange(0, 4);
  for (int change = 0; change < changes; ++change) {
    const int32_t after = *rc::gen::inRange(1, 7);
    std::vector<int32_t> becomes;
    for (int32_t rank = 0; rank < map.world_size(); ++rank) {
      const int32_t place = map.world_size() - 1 - rank;
      becomes.push_back(place < after ? place : kLeaves);
    }
    map = plan_moves(map, after, becomes)->to;
  }
  return map;
}

TEST_CASE("parts are read at any world size, whoever owned what when they were written") {
  const bool held = rc::check([] {
    const ScratchFolder folder;
    SnapshotContent content = small_content(1);
    const ShardLayout layout = *content.layout();
    content.ownership = some_map(layout.chunks());
    const SnapshotIndex index = write_all_ranks(folder.path(), content);
    const Ownership now = some_map(layout.chunks());
    for (int32_t rank = 0; rank < now.world_size(); ++rank) {
      auto reader = PartsReader::open(folder.path(), *SnapshotIndex::load(index.save()));
      RC_ASSERT(reader.has_value());
      for (const OwnedRun& run : now.runs_of(rank)) {
        const FlatRange range = layout.range_of(run.chunks);
        std::vector<float> elements(static_cast<size_t>(range.count), -1);
        for (size_t kind = 0; kind < content.kinds.size(); ++kind) {
          RC_ASSERT(reader->read(content.kinds[kind], range, elements.data()).has_value());
          RC_ASSERT(elements == elements_of(layout, kind, range));
        }
      }
    }
  });
  CHECK(held);
}

TEST_CASE("a range that begins and ends inside chunks is read as it is, and a range that is none is refused") {
  const ScratchFolder folder;
  const SnapshotIndex index = write_all_ranks(folder.path(), small_content(3));
  auto reader = PartsReader::open(folder.path(), index);
  REQUIRE(reader.has_value());
  const ShardLayout& layout = reader->layout();
  for (const FlatRange range : {FlatRange{1000, 3000}, FlatRange{5, 1}, FlatRange{1023, 2}, FlatRange{0, 0},
                                layout.range_of(ParamId{3}), FlatRange{layout.flat_elements(), 0}}) {
    std::vector<float> elements(static_cast<size_t>(range.count) + 1, -7);
    REQUIRE(reader->read("moment1", range, elements.data()).has_value());
    CHECK(elements.back() == -7);
    elements.pop_back();
    CHECK(elements == elements_of(layout, 1, range));
  }
  float none = 0;
  CHECK(reader->read("moment1", {-1, 1}, &none).error().status() == Status::kOutOfRange);
  CHECK(reader->read("moment1", {0, -1}, &none).error().status() == Status::kOutOfRange);
  CHECK(reader->read("moment1", {layout.flat_elements(), 1}, &none).error().status() == Status::kOutOfRange);
  CHECK(reader->read("moment2", {0, 1}, &none).error().status() == Status::kNotFound);
}

TEST_CASE("more ranks than chunks, and a model without elements, have parts as well") {
  const ScratchFolder folder;
  const SnapshotIndex many = write_all_ranks(folder / "many", small_content(11));
  CHECK(PartsReader::open(folder / "many", many).has_value());
  SnapshotContent nothing = small_content(2);
  nothing.params.clear();
  nothing.ownership = *Ownership::deal(0, 2);
  const SnapshotIndex empty = write_all_ranks(folder / "empty", nothing);
  auto reader = PartsReader::open(folder / "empty", *SnapshotIndex::load(empty.save()));
  REQUIRE(reader.has_value());
  CHECK(reader->read("weight", {0, 0}, nullptr).has_value());
}

TEST_CASE("what no index lists is removed, and a listed part never") {
  const ScratchFolder folder;
  const auto parts = parts_folder(folder / "step-00000020.snapshot");
  CHECK(parts.filename() == "step-00000020.snapshot.parts");
  const SnapshotIndex index = write_all_ranks(parts, small_content(2));
  REQUIRE(write_rank(parts, index.content, 1).has_value());
  test::write_all(parts / "rank-0-of-2.0123456789ab.4711-0.tmp", "draft");
  remove_unlisted(parts, index);
  CHECK(folder.names("step-00000020.snapshot.parts").size() == 2);
  CHECK(PartsReader::open(parts, index).has_value());
  remove_parts(parts);
  remove_parts(parts);
  CHECK(folder.names().empty());
}

TEST_CASE("the digests of chunks add up to that of the array over the flat space") {
  const ShardLayout layout = *small_content(1).layout();
  const auto elements = elements_of(layout, 0, {0, layout.flat_elements()});
  elastic::DigestOfBytes whole;
  whole.add(elements.data(), elements.size() * sizeof(float));
  uint64_t sum = 0;
  for (int32_t chunk = 0; chunk < layout.chunks(); ++chunk)
    sum += digest_of_chunk(layout, ChunkId{chunk}, elements.data() + chunk * layout.chunk_elements());
  CHECK(sum == whole.finish());
}

TEST_CASE("dense arrays go into the flat space and back, range by range") {
  const bool held = rc::check([] {
    const auto counts = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 3000));
    const ShardLayout layout = *ShardLayout::create(counts);
    std::vector<float> dense(static_cast<size_t>(layout.param_elements()));
    std::iota(dense.begin(), dense.end(), 1.0F);
    std::vector<float> back(dense.size(), -1);
    const Ownership map = *Ownership::deal(layout.chunks(), *rc::gen::inRange(1, 9));
    for (const OwnedRun& run : map.runs()) {
      const FlatRange range = layout.range_of(run.chunks);
      std::vector<float> flat(static_cast<size_t>(range.count), -1);
      from_dense(layout, dense, range, flat.data());
      for (int64_t i = 0; i < range.count; ++i) {
        const auto pieces = i % 97 == 0 ? layout.pieces_of(FlatRange{range.first + i, 1}) : std::vector<ParamPiece>{};
        if (pieces.empty()) continue;
        const int64_t at = layout.dense_offset_of(pieces[0].param) + pieces[0].first;
        RC_ASSERT(flat[static_cast<size_t>(i)] == dense[static_cast<size_t>(at)]);
      }
      to_dense(layout, flat.data(), range, back);
    }
    RC_ASSERT(back == dense);
    if (dense.empty()) return;
    const auto first = *rc::gen::inRange<int64_t>(0, layout.param_elements());
    const auto count = *rc::gen::inRange<int64_t>(0, layout.param_elements() - first + 1);
    int64_t next = first;
    for (const DenseRun& run : flat_runs_of(layout, first, count)) {
      RC_ASSERT(run.dense == next);
      const auto pieces = layout.pieces_of(FlatRange{run.offset, run.count});
      RC_ASSERT(layout.dense_offset_of(pieces[0].param) + pieces[0].first == next);
      next += run.count;
    }
    RC_ASSERT(next == first + count);
  });
  CHECK(held);
}

TEST_CASE("padding is zero in the flat space and nowhere in the dense order") {
  const ShardLayout layout = *ShardLayout::create(std::vector<int64_t>{3, 0, 256, 2});
  std::vector<float> flat(static_cast<size_t>(layout.flat_elements()), -1);
  const std::vector<float> dense(261, 5.0F);
  from_dense(layout, dense, {0, layout.flat_elements()}, flat.data());
  CHECK(std::accumulate(flat.begin(), flat.end(), 0.0F) == 261 * 5.0F);
  CHECK(flat[3] == 0);
  CHECK(dense_runs_of(layout, {0, layout.flat_elements()}) == std::vector<DenseRun>{{0, 0, 3}, {3, 256, 258}});
  CHECK(flat_runs_of(layout, 2, 2) == std::vector<DenseRun>{{2, 2, 1}, {3, 256, 1}});
  CHECK(flat_runs_of(layout, 2, 0).empty());
}

}  // namespace
}  // namespace pliant::sharded
