// The figures that a job reports on its speed and on what interruptions cost.
#include "elastic/agent/pace.hpp"

#include <doctest/doctest.h>

using pliant::elastic::CommitRecord;
using pliant::elastic::Pace;

namespace {

CommitRecord step(int64_t number, int64_t tokens) {
  CommitRecord record;
  record.step = number;
  record.size.tokens = tokens;
  return record;
}

}  // namespace

TEST_CASE("without two commits there is no speed") {
  Pace pace;
  CHECK(pace.tokens_per_second() == 0);
  CHECK(pace.seconds_lost() == 0);
  const auto first = pace.committed(step(0, 100), 4, 10, 5);
  CHECK(first.tokens_per_second == 0);
  CHECK(first.seconds_left == 0);
  CHECK(first.step == 1);
  CHECK(pace.tokens_per_second() == 0);
}

TEST_CASE("the speed counts the tokens after the first commit over the time since it") {
  Pace pace;
  for (int64_t i = 0; i < 5; ++i) pace.committed(step(i, 100), 4, 25, 10 + 2 * static_cast<double>(i));
  CHECK(pace.tokens_per_second() == doctest::Approx(50));
  const auto progress = pace.committed(step(5, 200), 4, 25, 20);
  CHECK(progress.tokens_per_second == doctest::Approx(60));
  CHECK(progress.seconds_left == doctest::Approx(19 * 2));
}

TEST_CASE("what an interruption costs is the gap between commits less a usual step") {
  Pace pace;
  double now = 0;
  for (int64_t i = 0; i < 10; ++i) pace.committed(step(i, 100), 4, 25, now += 2);
  pace.interrupted(now + 1);
  pace.interrupted(now + 3);  // another death before the next commit is the same interruption
  pace.committed(step(10, 100), 3, 25, now += 7);
  CHECK(pace.seconds_lost() == doctest::Approx(5));
  CHECK(pace.worst_recovery() == doctest::Approx(6));
  pace.committed(step(11, 100), 3, 25, now + 2);
  CHECK(pace.seconds_lost() == doctest::Approx(5));
}
