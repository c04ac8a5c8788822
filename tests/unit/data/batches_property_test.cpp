// The global batch is the same at every world size, and an epoch covers the data set exactly.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "pliant/batches.hpp"
#include "pliant/plan.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

const std::vector<std::string> kSamplers{
    "[sampler]\nuse = \"fixed\"\n[sampler.fixed]\norder = \"random\"\n",
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 60\nstrict = true\nsequence_picking_order = "
    "\"random\"\n",
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 50\nover_long = \"drop\"\nstrict = true\n"
    "sequence_picking_order = \"seqlen\"\n",
    "[sampler]\nuse = \"fixed\"\n[sampler.fixed]\nmax_tokens = 40\nover_long = \"drop\"\n"};

Dataset random_dataset() {
  std::vector<int32_t> lengths =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(1, 60)));
  lengths.push_back(7);  // so that no budget above drops everything
  return {std::move(lengths), {}};
}

Batches random_batches(const Scratch& scratch, int64_t global_batch) {
  const auto which = *rc::gen::inRange<size_t>(0, kSamplers.size());
  const auto seed = *rc::gen::inRange<int64_t>(0, 1000);
  Plan plan;
  plan.global_batch = global_batch;
  return {scratch.config(kSamplers[which] + "[run]\nseed = " + std::to_string(seed) + "\n"), plan, random_dataset()};
}

}  // namespace

TEST_CASE("every sequence of an epoch is used once or dropped once") {
  const Scratch scratch;
  CHECK(rc::check([&] {
    Batches made = random_batches(scratch, *rc::gen::inRange<int64_t>(1, 9));
    const int64_t epoch = *rc::gen::inRange<int64_t>(0, 4);
    const EpochSummary summary = made.epoch(epoch);
    std::vector<int64_t> seen = made.dropped(epoch);
    BatchSize sum;
    for (int64_t i = 0; i < summary.batches; ++i) {
      const Batch batch = made.batch(epoch, i);
      RC_ASSERT(i + 1 == summary.batches || batch.size.rows == made.batch(epoch, 0).size.rows);
      RC_ASSERT(batch.size.rows > 0);
      seen.insert(seen.end(), batch.ids.begin(), batch.ids.end());
      sum.rows += batch.size.rows;
      sum.sequences += batch.size.sequences;
      sum.tokens += batch.size.tokens;
    }
    RC_ASSERT(sum.rows == summary.rows);
    RC_ASSERT(sum.sequences == summary.sequences);
    RC_ASSERT(sum.tokens == summary.tokens);
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(made.dataset().lengths.size());
    std::iota(all.begin(), all.end(), 0);
    RC_ASSERT(seen == all);
  }));
}

TEST_CASE("the shares of all ranks put together are the global batch, at every world size up to 16") {
  const Scratch scratch;
  CHECK(rc::check([&] {
    const int64_t granule = *rc::gen::inRange<int64_t>(1, 4);
    Batches made = random_batches(scratch, granule * *rc::gen::inRange<int64_t>(1, 9));
    const int64_t count = made.epoch(0).batches;
    const Batch batch = made.batch(0, *rc::gen::inRange<int64_t>(0, count));
    for (int64_t world_size = 1; world_size <= 16; ++world_size) {
      std::vector<int64_t> ids;
      uint64_t digest = 0;
      for (int64_t rank = 0; rank < world_size; ++rank) {
        const RowRange share = share_of(batch.size.rows, granule, world_size, rank);
        for (int64_t row = share.first; row < share.first + share.count; ++row) {
          const auto sequences = batch.row(row);
          ids.insert(ids.end(), sequences.begin(), sequences.end());
          digest += sample_digest(batch.epoch, sequences);
        }
      }
      RC_ASSERT(ids == batch.ids);
      RC_ASSERT(digest == batch.digest);
    }
  }));
}
