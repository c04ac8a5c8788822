// sample_digest and the running digest.
#include "data/digest.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "pliant/batches.hpp"

using namespace pliant;

namespace {

uint64_t digest_of(int64_t epoch, const std::vector<int64_t>& ids) {
  return sample_digest(epoch, ids);
}

}  // namespace

TEST_CASE("the sample digest does not depend on order and adds up over parts") {
  CHECK(digest_of(3, {1, 2, 3}) == digest_of(3, {3, 1, 2}));
  CHECK(digest_of(3, {1, 2, 3}) == digest_of(3, {1}) + digest_of(3, {2, 3}));
  CHECK(digest_of(3, {}) == 0);
}

TEST_CASE("the sample digest tells ids, epochs and repetitions apart") {
  std::set<uint64_t> seen;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    for (int64_t id = 0; id < 500; ++id) seen.insert(digest_of(epoch, {id}));
  }
  CHECK(seen.size() == 20 * 500);
  CHECK(digest_of(0, {5}) != digest_of(0, {5, 5}));
  CHECK(digest_of(0, {1, 4}) != digest_of(0, {2, 3}));
}

TEST_CASE("the sample digest is pinned: ledgers of older runs must still add up") {
  CHECK(digest_of(0, {0}) == 12035550249420947055U);
  CHECK(digest_of(2, {7, 8, 9}) == 15901323912465341679U);
}

TEST_CASE("the running digest depends on order, on texts and on where one text ends and the next begins") {
  const auto of = [](std::string_view a, std::string_view b) {
    data::Digest digest;
    digest.add(a);
    digest.add(b);
    return digest.value();
  };
  CHECK(of("ab", "c") != of("a", "bc"));
  CHECK(of("a", "b") != of("b", "a"));
  CHECK(of("longer than eight bytes", "") != of("longer than eight bytez", ""));
  CHECK(of("x", "y") == of("x", "y"));
}
