// Jobs that stop, change their world size and go on: what all ranks see together is the undisturbed list of rows.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "pliant/batches.hpp"
#include "pliant/error.hpp"
#include "pliant/plan.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

const std::vector<std::string> kResizedSamplers{
    "[sampler]\nuse = \"fixed\"\n[sampler.fixed]\norder = \"random\"\ntail = \"pad\"\n",
    "[sampler]\nuse = \"seqlen\"\n[sampler.seqlen]\nmax_tokens = 60\nstrict = true\n",
    "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 60\norder = \"random\"\n",
    "[sampler]\nuse = \"best_fit\"\n[sampler.best_fit]\nmax_tokens = 60\ntail = \"pad\"\n",
    "[sampler]\nuse = \"best_fit\"\n[sampler.best_fit]\nmax_tokens = 40\nover_long = \"split\"\ntail = \"pad\"\n",
    "[sampler]\nuse = \"streaming\"\n[sampler.streaming]\nmax_tokens = 60\nopen_packs = 4\n",
    "[sampler]\nuse = \"padded_budget\"\n[sampler.padded_budget]\nmax_tokens = 60\n",
    "[sampler]\nuse = \"bucketed\"\n[sampler.bucketed]\nmax_tokens = 60\nbuckets = 3\n",
    "[sampler]\nuse = \"concat\"\n[sampler.concat]\nmax_tokens = 50\n"};

struct Entry {
  int64_t epoch = 0;
  int64_t id = 0;
  Piece piece;
  bool operator==(const Entry&) const = default;
};

void append_rows(const Batch& batch, RowRange rows, std::vector<std::vector<Entry>>& to) {
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    auto& entries = to.emplace_back();
    for (size_t i = 0; i < batch.row(row).size(); ++i) {
      const Piece piece = batch.pieces.empty() ? Piece{} : batch.row_pieces(row)[i];
      entries.push_back({batch.epoch, batch.row(row)[i], piece});
    }
  }
}

struct Job {
  std::string toml;
  Plan plan;
  Dataset dataset;

  [[nodiscard]] Batches start(const Scratch& scratch) const { return {scratch.config(toml), plan, dataset}; }
};

Job random_job() {
  Job job;
  job.toml = kResizedSamplers[*rc::gen::inRange<size_t>(0, kResizedSamplers.size())] +
             "[run]\nepochs = 3\nseed = " + std::to_string(*rc::gen::inRange<int>(0, 100)) + "\n";
  job.plan.granule = *rc::gen::inRange<int64_t>(1, 4);
  job.plan.global_batch = job.plan.granule * *rc::gen::inRange<int64_t>(1, 9);
  job.dataset = {
      *rc::gen::container<std::vector<int32_t>>(*rc::gen::inRange<size_t>(1, 80), rc::gen::inRange<int32_t>(1, 60)),
      {}};
  return job;
}

}  // namespace

TEST_CASE("rows of all ranks together are the undisturbed ones after any history of resizes, each sample used once") {
  const Scratch scratch;
  CHECK(rc::check([&] {
    const Job job = random_job();
    std::vector<std::vector<Entry>> expected;
    Batches undisturbed = job.start(scratch);
    while (const auto batch = undisturbed.next()) append_rows(*batch, {0, batch->size.rows}, expected);

    std::vector<std::vector<Entry>> seen;
    std::string position = job.start(scratch).save();
    bool over = false;
    while (!over) {
      // One generation: each rank is a process of its own that goes on from the saved position.
      const auto world = *rc::gen::inRange<int64_t>(1, 17);
      const auto steps = *rc::gen::inRange<int>(1, 6);
      std::vector<Batches> ranks;
      for (int64_t rank = 0; rank < std::min<int64_t>(world, 3); ++rank) {
        ranks.push_back(job.start(scratch));
        ranks.back().load(position);
      }
      for (int step = 0; step < steps && !over; ++step) {
        std::vector<std::optional<Batch>> batches;
        for (Batches& rank : ranks) batches.push_back(rank.next());
        for (const auto& batch : batches) RC_ASSERT(batch.has_value() == batches.front().has_value());
        over = !batches.front();
        for (int64_t rank = 0; !over && rank < world; ++rank) {
          const Batch& own = *batches[static_cast<size_t>(rank) % batches.size()];
          append_rows(own, share_of(own.size.rows, job.plan.granule, world, rank), seen);
        }
      }
      position = ranks.front().save();
    }
    RC_ASSERT(seen == expected);
    std::map<std::pair<int64_t, int64_t>, int64_t> tokens;
    for (const auto& row : seen) {
      for (const Entry& entry : row) {
        const int64_t length = job.dataset.lengths[static_cast<size_t>(entry.id)];
        tokens[{entry.epoch, entry.id}] += entry.piece.count == 0 ? length : entry.piece.count;
      }
    }
    RC_ASSERT(tokens.size() == 3 * job.dataset.lengths.size());
    for (const auto& [sample, count] : tokens)
      RC_ASSERT(count == job.dataset.lengths[static_cast<size_t>(sample.second)]);
  }));
}

TEST_CASE("a position says by name what is not as it was, and a refused one changes nothing") {
  const Scratch scratch;
  Job job{kResizedSamplers[2] + "[run]\nseed = 3\n", {}, {{5, 6, 7, 8, 9, 10, 11, 12}, {}, "data/lengths.npy"}};
  job.plan.global_batch = 1;
  Batches first = job.start(scratch);
  static_cast<void>(first.next());
  const std::string saved = first.save();
  const auto refusal = [&](const Job& other, const std::string& bytes) {
    Batches batches = other.start(scratch);
    while (batches.next()) {
    }
    const int64_t before = batches.next_step();
    try {
      batches.load(bytes);
    } catch (const Error& error) {
      CHECK(error.origin() == Origin::kInput);
      CHECK(batches.next_step() == before);
      return error.message();
    }
    return std::string("nothing was refused");
  };
  const auto has = [](const std::string& text, const std::string& part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  Job changed = job;
  changed.dataset.lengths = {5, 6, 7, 8, 9, 10, 11, 13};
  has(refusal(changed, saved), "data/lengths.npy has changed since the position was saved: 8 sequences");
  changed = job;
  changed.dataset.content = 5;
  has(refusal(changed, saved), "data/lengths.npy has changed since the position was saved");
  changed = job;
  changed.toml = kResizedSamplers[3] + "[run]\nseed = 3\n";
  has(refusal(changed, saved), "saved with sampler next_fit 0.1.0; the config has best_fit 0.2.0");
  changed = job;
  changed.toml = kResizedSamplers[2] + "[run]\nseed = 4\n";
  has(refusal(changed, saved), "saved with seed 3; the config has 4");
  changed = job;
  changed.plan.global_batch = 2;
  has(refusal(changed, saved), "saved with batches of 1 rows; the plan has 2");
  changed = job;
  changed.toml =
      "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 61\norder = \"random\"\n[run]\nseed = 3\n";
  has(refusal(changed, saved), "other sampler options");
  for (size_t size = 0; size < saved.size(); ++size) has(refusal(job, saved.substr(0, size)), "not a saved position");
  for (size_t i = 0; i < saved.size(); ++i) {
    std::string flipped = saved;
    flipped[i] = static_cast<char>(flipped[i] ^ 4);
    has(refusal(job, flipped), "not a saved position");
  }
  has(refusal(job, "\x7f\x45\x4c\x46\n00000000\n"), "not a saved position");
  CHECK(saved.size() < 512);
}
