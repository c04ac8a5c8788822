// Batches that are looked at before next gives them, in the epoch in hand and in the one after it.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "long_job.hpp"
#include "pliant/batches.hpp"
#include "pliant/error.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

std::vector<Batch> all_of(const LongJob& job) {
  std::vector<Batch> all;
  Batches batches = job.start();
  while (auto next = batches.next()) all.push_back(std::move(*next));
  return all;
}

void same(const std::optional<Batch>& seen, const Batch& wanted) {
  REQUIRE(seen.has_value());
  CHECK(seen->epoch == wanted.epoch);
  CHECK(seen->index == wanted.index);
  CHECK(seen->ids == wanted.ids);
  CHECK(seen->offsets == wanted.offsets);
  CHECK(seen->digest == wanted.digest);
}

/// Looks `depth` steps ahead before each step of the job, from where `batches` are.
void go_through(Batches& batches, const std::vector<Batch>& all, int64_t depth) {
  const auto steps = static_cast<int64_t>(all.size());
  for (int64_t step = batches.next_step(); step < steps; ++step) {
    const int64_t in_hand = all[static_cast<size_t>(step == 0 ? 0 : step - 1)].epoch;
    for (int64_t ahead = 1; ahead <= depth; ++ahead) {
      CAPTURE(step);
      CAPTURE(ahead);
      const int64_t at = step + ahead - 1;
      const auto seen = batches.coming(ahead);
      if (at >= steps || all[static_cast<size_t>(at)].epoch > in_hand + 1) {
        CHECK_FALSE(seen.has_value());
      } else {
        same(seen, all[static_cast<size_t>(at)]);
      }
    }
    same(batches.next(), all[static_cast<size_t>(step)]);
  }
  CHECK_FALSE(batches.coming(1).has_value());
  CHECK_FALSE(batches.next().has_value());
}

}  // namespace

TEST_CASE("what is coming is what next gives, to the end of the next epoch or of the job") {
  const LongJob job;
  const std::vector<Batch> all = all_of(job);
  const auto epoch = static_cast<int64_t>(all.size()) / 6;
  for (const int64_t depth : {int64_t{1}, int64_t{3}, 2 * epoch + 3}) {
    CAPTURE(depth);
    Batches batches = job.start();
    go_through(batches, all, depth);
  }
}

TEST_CASE("max_steps ends what is coming, also within the next epoch") {
  LongJob unlimited;
  const auto epoch = static_cast<int64_t>(all_of(unlimited).size()) / 6;
  for (const int64_t most : {epoch - 1, epoch + 2}) {
    const LongJob job(kLongJob + ("max_steps = " + std::to_string(most)) + "\n");
    const std::vector<Batch> all = all_of(job);
    REQUIRE(std::ssize(all) == most);
    Batches batches = job.start();
    go_through(batches, all, 2 * epoch);
  }
}

TEST_CASE("an epoch that was looked into is planned once, and one that nobody looks into only when it begins") {
  const LongJob job(replaced(kCounting, "DIR", DATA_TEST_PLUGIN_DIR));
  const std::vector<Batch> all = all_of(job);
  const int64_t epoch = std::ssize(all) / 6;
  const Planned planned;
  Batches batches = job.start();
  static_cast<void>(batches.next());
  static_cast<void>(batches.coming(epoch - 1));
  CHECK(planned.epochs() == "0 ");
  static_cast<void>(batches.coming(epoch));
  CHECK(planned.epochs() == "0 1 ");
  CHECK_FALSE(batches.coming(2 * epoch).has_value());  // in epoch 2
  CHECK(planned.epochs() == "0 1 ");
  go_through(batches, all, 3);
  CHECK(planned.epochs() == "0 1 2 3 4 5 ");
}

TEST_CASE("looking ahead changes nothing of what is saved") {
  const LongJob job;
  Batches plain = job.start();
  Batches looking = job.start();
  while (plain.next()) {
    static_cast<void>(looking.coming(1));
    static_cast<void>(looking.next());
    for (int64_t ahead = 1; ahead < 30; ++ahead) static_cast<void>(looking.coming(ahead));
    REQUIRE(looking.save() == plain.save());
  }
  CHECK(looking.fingerprint() == plain.fingerprint());
}

TEST_CASE("batches that were opened or sought elsewhere look ahead from there") {
  const LongJob job;
  const std::vector<Batch> all = all_of(job);
  Batches at = job.start();
  while (at.next()->epoch < 3) {
  }
  const std::string at_begin = at.save();
  static_cast<void>(at.next());
  for (const std::string& saved : {at_begin, at.save()}) {
    Batches opened = job.open(saved);
    go_through(opened, all, 40);
  }
  Batches back = job.open(at.save());
  static_cast<void>(back.coming(60));
  back.seek(2);
  go_through(back, all, 4);
  Batches past = job.start();
  past.seek(std::ssize(all) + 5);
  CHECK_FALSE(past.coming(1).has_value());
}

TEST_CASE("what is coming is at least one step ahead, and no number is too large") {
  Batches batches = LongJob().start();
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    try {
      static_cast<void>(batches.coming(wrong));
      FAIL("nothing was thrown");
    } catch (const Error& error) {
      CHECK(error.status() == Status::kInvalidArgument);
    }
  }
  CHECK_FALSE(batches.coming(std::numeric_limits<int64_t>::max()).has_value());
  static_cast<void>(batches.next());
  CHECK_FALSE(batches.coming(std::numeric_limits<int64_t>::max()).has_value());
}
