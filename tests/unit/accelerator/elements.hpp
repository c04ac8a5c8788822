// Elements of any type, and what a reduction makes of them the plainest way.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "pliant/abi/accelerator.h"
#include "pliant/sdk/half.hpp"

namespace pliant_test {

inline const std::array<int32_t, 7> kTypes{PLIANT_F32, PLIANT_F64, PLIANT_I32, PLIANT_I64,
                                           PLIANT_U8,  PLIANT_F16, PLIANT_BF16};

inline size_t size_of(int32_t dtype) {
  const std::array<size_t, 8> sizes{0, 4, 8, 4, 8, 1, 2, 2};
  return sizes[static_cast<size_t>(dtype)];
}
inline bool is_integer(int32_t dtype) {
  return dtype == PLIANT_I32 || dtype == PLIANT_I64 || dtype == PLIANT_U8;
}

/// Elements of one type as bytes, read and written as doubles or integers.
struct Array {
  int32_t dtype = 0;
  std::vector<std::byte> bytes;

  Array(int32_t type, size_t count) : dtype(type), bytes(count * size_of(type)) {}
  [[nodiscard]] size_t count() const { return bytes.size() / size_of(dtype); }
  template <class T>
  [[nodiscard]] T get(size_t i) const {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
  template <class T>
  void put(size_t i, T value) {
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  [[nodiscard]] double real(size_t i) const {
    switch (dtype) {
      case PLIANT_F32:
        return get<float>(i);
      case PLIANT_F64:
        return get<double>(i);
      case PLIANT_F16:
        return widen(get<pliant::sdk::Half>(i));
      case PLIANT_BF16:
        return widen(get<pliant::sdk::BFloat>(i));
      default:
        return static_cast<double>(integer(i));
    }
  }
  [[nodiscard]] int64_t integer(size_t i) const {
    if (dtype == PLIANT_I32) return get<int32_t>(i);
    if (dtype == PLIANT_I64) return get<int64_t>(i);
    return get<uint8_t>(i);
  }
  void set_real(size_t i, double value) {
    if (dtype == PLIANT_F32) return put(i, static_cast<float>(value));
    if (dtype == PLIANT_F64) return put(i, value);
    if (dtype == PLIANT_F16) {
      pliant::sdk::Half half;
      narrow(static_cast<float>(value), half);
      return put(i, half);
    }
    pliant::sdk::BFloat half;
    narrow(static_cast<float>(value), half);
    put(i, half);
  }
  void set_integer(size_t i, int64_t value) {
    if (dtype == PLIANT_I32) return put(i, static_cast<int32_t>(value));
    if (dtype == PLIANT_I64) return put(i, value);
    put(i, static_cast<uint8_t>(value));
  }
  void set(size_t i, double value) {
    if (is_integer(dtype)) return set_integer(i, static_cast<int64_t>(value));
    set_real(i, value);
  }
};

inline Array drawn(int32_t dtype, size_t count, std::mt19937& random) {
  Array made(dtype, count);
  for (size_t i = 0; i < count; ++i) {
    const double value = (static_cast<double>(random() % 200001) - 100000) / 977.0;
    made.set(i, is_integer(dtype) ? std::floor(std::abs(value)) : value);
  }
  return made;
}

/// One element, the plainest way: in the order of sources, in float for 16 bits, rounded once.
inline double reduced(const std::vector<Array>& from, size_t i, int32_t op, double scale) {
  const int32_t dtype = from.front().dtype;
  const auto fold = [op](auto a, auto b) {
    if (op == PLIANT_SUM) return static_cast<decltype(a)>(a + b);
    return (op == PLIANT_MIN) == (b < a) ? b : a;
  };
  if (dtype == PLIANT_F64) {
    double value = from[0].real(i);
    for (size_t s = 1; s < from.size(); ++s) value = fold(value, from[s].real(i));
    return value * scale;
  }
  auto value = static_cast<float>(from[0].real(i));
  for (size_t s = 1; s < from.size(); ++s) value = fold(value, static_cast<float>(from[s].real(i)));
  return value * static_cast<float>(scale);
}

}  // namespace pliant_test
