// Whatever the layout, all ranks together hold each row of an epoch once; one shape is one shape.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <type_traits>

#include "pliant/micro_batches.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

const std::vector<std::string> kMicroBatchSamplers{
    "[sampler]\nuse = \"fixed\"\n", "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 60\n",
    "[sampler]\nuse = \"concat\"\n[sampler.concat]\nmax_tokens = 25\n",
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 60\nstrict = true\n"
    "required_microbatches_of_same_size = true\n"};

struct Case {
  Dataset dataset;
  std::vector<Batch> batches;
  Layout layout;
};

Case random_case(const Scratch& scratch) {
  Case made;
  const auto count = *rc::gen::inRange<size_t>(8, 60);
  std::vector<std::decay_t<decltype(Dataset().lengths[0])>> lengths;
  while (lengths.size() < count) lengths.push_back(*rc::gen::inRange(1, 60));
  made.dataset.lengths = lengths;
  Plan plan;
  plan.global_batch = *rc::gen::inRange<int64_t>(1, 6);
  const auto which = *rc::gen::inRange<size_t>(0, kMicroBatchSamplers.size());
  Batches all(scratch.config(kMicroBatchSamplers[which]), plan, made.dataset);
  for (int64_t i = 0; i < all.epoch(0).batches; ++i) made.batches.push_back(all.batch(0, i));
  made.layout.world_size = *rc::gen::inRange<int64_t>(1, 6);
  made.layout.micro_batch = *rc::gen::inRange<int64_t>(1, 4);
  made.layout.granule = *rc::gen::inRange<int64_t>(1, 4);
  made.layout.rows = *rc::gen::element(RowMap::kContiguous, RowMap::kInterleaved);
  made.layout.padding.line = *rc::gen::element(Line::kSequence, Line::kRow);
  made.layout.padding.to = *rc::gen::element(PadTo::kNothing, PadTo::kMicroBatch, PadTo::kBatch);
  made.layout.padding.multiple = *rc::gen::inRange<int64_t>(1, 9);
  made.layout.one_shape = *rc::gen::arbitrary<bool>();
  return made;
}

int64_t tokens_of(const std::vector<Batch>& batches) {
  int64_t tokens = 0;
  for (const Batch& batch : batches) tokens += batch.size.tokens;
  return tokens;
}

}  // namespace

TEST_CASE("all ranks together hold each row of an epoch once, and no line is shorter than what it holds") {
  const Scratch scratch;
  CHECK(rc::check([&] {
    const Case given = random_case(scratch);
    std::vector<int64_t> rows;
    int64_t tokens = 0;
    int64_t entries = 0;
    for (int64_t rank = 0; rank < given.layout.world_size; ++rank) {
      for (const auto& one : padded_micro_batches(given.batches, given.dataset, given.layout, rank)) {
        rows.insert(rows.end(), one.rows.begin(), one.rows.end());
        tokens += one.tokens;
        entries += static_cast<int64_t>(one.ids.size());
        const size_t full = given.layout.padding.line == Line::kRow ? one.rows.size() : one.ids.size();
        RC_ASSERT(one.lengths.size() == full + static_cast<size_t>(one.empty_lines));
        RC_ASSERT(std::accumulate(one.lengths.begin(), one.lengths.end(), int64_t{0}) >= one.tokens);
        RC_ASSERT(one.pieces.empty() || one.pieces.size() == one.ids.size());
        for (const int64_t length : one.lengths) RC_ASSERT(length % given.layout.padding.multiple == 0);
      }
    }
    std::sort(rows.begin(), rows.end());
    int64_t expected_entries = 0;
    int64_t expected_rows = 0;
    for (const Batch& batch : given.batches) {
      expected_entries += static_cast<int64_t>(batch.ids.size());
      expected_rows += batch.size.rows;
    }
    RC_ASSERT(static_cast<int64_t>(rows.size()) == expected_rows);
    for (size_t i = 0; i < rows.size(); ++i) RC_ASSERT(rows[i] == static_cast<int64_t>(i));
    RC_ASSERT(entries == expected_entries);
    RC_ASSERT(tokens == tokens_of(given.batches));
  }));
}

TEST_CASE("under one shape all micro-batches of a batch have one number of lines and one length") {
  const Scratch scratch;
  CHECK(rc::check([&] {
    Case given = random_case(scratch);
    given.layout.one_shape = true;
    for (const Batch& batch : given.batches) {
      std::set<std::vector<int64_t>> shapes;
      std::set<size_t> counts;
      for (int64_t rank = 0; rank < given.layout.world_size; ++rank) {
        const auto mine = padded_micro_batches(batch, given.dataset, given.layout, rank);
        counts.insert(mine.size());
        for (const auto& one : mine) shapes.insert(one.lengths);
      }
      RC_ASSERT(counts.size() == 1U);
      RC_ASSERT(shapes.size() == 1U);
      RC_ASSERT(std::set<int64_t>(shapes.begin()->begin(), shapes.begin()->end()).size() == 1U);
    }
  }));
}
