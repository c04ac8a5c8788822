// The shuffle against permutations that CPython 3.11's random.Random(n).shuffle made.
#include "../plugins/sampler/common/python_shuffle.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace python_shuffle_test {

using pliant::sampler::python_shuffle;
using pliant::sampler::seed_words;

namespace {

std::vector<int64_t> shuffled(size_t n, const std::vector<uint32_t>& key) {
  std::vector<int64_t> items(n);
  std::iota(items.begin(), items.end(), int64_t{0});
  python_shuffle(std::span(items), std::span<const uint32_t>(key));
  return items;
}

using Ids = std::vector<int64_t>;

}  // namespace

TEST_CASE("a seed of up to 64 bits shuffles as random.Random(seed) does") {
  CHECK(shuffled(12, seed_words(0)) == Ids{1, 9, 8, 5, 10, 2, 3, 7, 4, 0, 11, 6});
  CHECK(shuffled(12, seed_words(1)) == Ids{7, 11, 0, 8, 5, 6, 3, 10, 4, 1, 9, 2});
  CHECK(shuffled(12, seed_words(42)) == Ids{7, 5, 2, 8, 9, 6, 11, 3, 4, 0, 1, 10});
  CHECK(shuffled(12, seed_words(1234)) == Ids{2, 3, 8, 4, 11, 6, 5, 9, 10, 0, 1, 7});
  CHECK(shuffled(12, seed_words(uint64_t{1} << 32)) == Ids{11, 10, 7, 3, 9, 2, 4, 8, 0, 6, 5, 1});
  CHECK(shuffled(12, seed_words(UINT64_MAX)) == Ids{1, 8, 6, 9, 2, 11, 4, 7, 10, 5, 3, 0});
}

TEST_CASE("epoch e shuffles as random.Random(seed + (e << 64)) does") {
  CHECK(shuffled(12, seed_words(7, 3)) == Ids{2, 0, 9, 4, 1, 11, 3, 10, 8, 7, 6, 5});
  CHECK(shuffled(12, seed_words(UINT64_MAX, uint64_t{1} << 33)) == Ids{0, 4, 10, 2, 8, 7, 1, 5, 9, 11, 3, 6});
}

TEST_CASE("a long list shuffles as in Python") {
  const Ids items = shuffled(1000, seed_words(99));
  CHECK(Ids(items.begin(), items.begin() + 8) == Ids{852, 720, 591, 114, 174, 191, 589, 483});
  CHECK(Ids(items.end() - 4, items.end()) == Ids{613, 204, 389, 413});
  uint64_t folded = 0;
  for (const int64_t id : shuffled(100000, seed_words(5))) folded = folded * 31 + static_cast<uint64_t>(id);
  CHECK(folded == 13116164509149381718U);
}

TEST_CASE("empty lists and single items stay as they are") {
  CHECK(shuffled(0, seed_words(3)).empty());
  CHECK(shuffled(1, seed_words(3)) == Ids{0});
}

TEST_CASE("a draw below a bound of more than 32 bits takes two words, the low one first, as getrandbits does") {
  // random.Random(3)._randbelow(2**40), three times
  const std::vector<uint32_t> key = seed_words(3);
  pliant::sampler::ArraySeed seed(key);
  std::mt19937 engine(seed);
  CHECK(pliant::sampler::draw_below(engine, uint64_t{1} << 40) == 285805288266U);
  CHECK(pliant::sampler::draw_below(engine, uint64_t{1} << 40) == 1041975902461U);
  CHECK(pliant::sampler::draw_below(engine, uint64_t{1} << 40) == 1034389053353U);
}

}  // namespace python_shuffle_test
