// The squared norm of a gradient in pieces: the bits of the whole, whatever the pieces.
#include "elastic/piecewise_norm.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "pliant/optimizer.hpp"

using pliant::elastic::PiecewiseNorm;

namespace {

std::vector<float> some_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& one : values) one = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-28F;
  return values;
}

}  // namespace

TEST_CASE("the squared norm of pieces is that of the whole to the bit, whatever their size and order") {
  const std::vector<std::vector<uint64_t>> models{{7000}, {0}, {1, 1023, 1024, 1025, 3927}, {0, 10, 0, 0, 6990, 0}};
  std::mt19937 random(3);
  for (const std::vector<uint64_t>& parts : models) {
    uint64_t size = 0;
    for (const uint64_t one : parts) size += one;
    PiecewiseNorm norm(parts);
    for (const uint64_t longest : {1U, 7U, 300U, 1024U, 2048U, 5000U, 7000U}) {
      CAPTURE(longest);
      const std::vector<float> values = some_values(size, static_cast<uint32_t>(longest));
      std::vector<std::pair<uint64_t, uint64_t>> pieces;
      for (uint64_t at = 0; at < size;) {
        const uint64_t count = std::min<uint64_t>(longest < 8 ? longest : 1 + random() % longest, size - at);
        pieces.emplace_back(at, count);
        at += count;
      }
      std::shuffle(pieces.begin(), pieces.end(), random);
      norm.clear();
      for (const auto& [at, count] : pieces) norm.add(at, std::span(values).subspan(at, count));
      CHECK(norm.sum() == pliant::squared_norm(values, parts));
    }
  }
}

TEST_CASE("what was added before clear is forgotten, cut chunks too") {
  const std::vector<uint64_t> parts{2000};
  PiecewiseNorm norm(parts);
  const std::vector<float> ones(2000, 1.0F);
  norm.add(0, std::span(ones).first(1500));
  norm.clear();
  CHECK(norm.sum() == 0);
  norm.add(1000, std::span(ones).subspan(1000));
  norm.add(0, std::span(ones).first(1000));
  CHECK(norm.sum() == 2000);
}
