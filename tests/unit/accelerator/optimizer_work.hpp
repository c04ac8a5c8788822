// What the tests of optimizers share: arrays of a model, and plain loops that say what must come out.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "pliant/optimizer.hpp"

namespace pliant::test {

/// Weights, gradient, first and second moment.
struct Arrays {
  std::array<std::vector<float>, 4> all;
  explicit Arrays(size_t count) {
    for (std::vector<float>& one : all) one.resize(count);
  }
  [[nodiscard]] size_t size() const { return all[0].size(); }
  [[nodiscard]] AdamWArrays part(size_t first, size_t count) {
    return {all[0].data() + first, all[1].data() + first, all[2].data() + first, all[3].data() + first, count};
  }
  [[nodiscard]] AdamWArrays whole() { return part(0, size()); }
};

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
inline bool same_bits(const Arrays& a, const Arrays& b) {
  return std::equal(a.all.begin(), a.all.end(), b.all.begin(),
                    [](const auto& one, const auto& other) { return same_bits(one, other); });
}

/// Of many sizes, down to what is subnormal, with zeros of both signs between.
inline Arrays some_arrays(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Arrays made(count);
  for (size_t array = 0; array < made.all.size(); ++array) {
    for (float& value : made.all[array]) {
      const auto unit = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-31F;
      const int exponent = static_cast<int>(random() % 40) - (random() % 16 == 0 ? 140 : 20);
      value = random() % 50 == 0 ? unit * 0.0F : std::ldexp(unit, exponent);
      if (array == 3) value = std::abs(value);
    }
  }
  return made;
}

inline AdamWUpdate some_update() {
  return {0.37F, 0.9F, 0.95F, 3.1e-3F, 1.7F, 1e-8F, 1e-4F};
}

/// A multiplication and an addition that no compiler fuses: each result goes through memory.
inline float rounded(float value) {
  volatile float there = value;
  return there;
}

inline void expected_adamw(const AdamWUpdate& u, const AdamWArrays& on) {
  for (uint64_t i = 0; i < on.count; ++i) {
    const float g = rounded(on.gradient[i] * u.gradient_scale);
    float& m = on.first_moment[i];
    float& v = on.second_moment[i];
    float& w = on.weights[i];
    m = rounded(u.beta1 * m) + rounded(rounded(1 - u.beta1) * g);
    v = rounded(u.beta2 * v) + rounded(rounded(rounded(1 - u.beta2) * g) * g);
    const float below = rounded(rounded(std::sqrt(v)) * u.correction) + u.epsilon;
    w = w - rounded(rounded(rounded(u.rate * m) / rounded(below)) + rounded(u.decay * w));
  }
}

inline double expected_norm(std::span<const float> chunk) {
  std::array<double, 32> lanes{};
  for (size_t i = 0; i < chunk.size(); ++i) lanes[i % 32] += double{chunk[i]} * double{chunk[i]};
  for (size_t half = 16; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

inline std::vector<double> expected_norms(std::span<const float> values) {
  std::vector<double> made;
  for (size_t at = 0; at < values.size(); at += kNormChunk)
    made.push_back(expected_norm(values.subspan(at, std::min<size_t>(kNormChunk, values.size() - at))));
  return made;
}

/// Node (level, index) of the tree over chunks.
inline double expected_node(std::span<const double> chunks, int level, size_t index) {
  if (level == 0) return chunks[index];
  const double left = expected_node(chunks, level - 1, 2 * index);
  if (((2 * index + 1) << (level - 1)) >= chunks.size()) return left;
  return left + expected_node(chunks, level - 1, 2 * index + 1);
}

}  // namespace pliant::test
