// Numbers back to back, of any width and byte order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "data/lengths/formats.hpp"

namespace pliant::data {
namespace {

template <class T>
T value_at(const char* from, bool swapped) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if (swapped) std::reverse(bytes.begin(), bytes.end());
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

/// Whether `value` is a whole number of 63 bits, and if so which.
template <class T>
bool to_whole(T value, int64_t& whole) {
  constexpr double kTooLarge = 9223372036854775808.0;
  if constexpr (std::is_floating_point_v<T>) {
    if (!(std::abs(static_cast<double>(value)) < kTooLarge) || std::trunc(value) != value) return false;
  } else if constexpr (sizeof(T) == sizeof(int64_t) && std::is_unsigned_v<T>) {
    if (value > uint64_t{std::numeric_limits<int64_t>::max()}) return false;
  }
  whole = static_cast<int64_t>(value);  // NOLINT(bugprone-signed-char-misuse): int8_t is a number here
  return true;
}

template <class T>
Result<Lengths> all(std::string_view bytes, bool swapped, const std::string& name) {
  Lengths lengths(bytes.size() / sizeof(T));
  for (size_t i = 0; i < lengths.size(); ++i) {
    const T value = value_at<T>(bytes.data() + i * sizeof(T), swapped);
    if (to_whole(value, lengths[i])) continue;
    return failed(Status::kInvalidArgument,
                  fmt::format("{}: value {} is {}, which is no whole number of 63 bits", name, i, value),
                  ExitCode::kUsage);
  }
  return lengths;
}

}  // namespace

uint64_t width_of(Number type) {
  switch (type) {
    case Number::kU8:
    case Number::kI8:
      return 1;
    case Number::kI16:
    case Number::kU16:
      return 2;
    case Number::kI32:
    case Number::kU32:
    case Number::kF32:
      return 4;
    case Number::kI64:
    case Number::kU64:
    case Number::kF64:
      return 8;
  }
  return 0;
}

Result<Lengths> numbers(std::string_view bytes, Number type, bool swapped, const std::string& name) {
  switch (type) {
    case Number::kU8:
      return all<uint8_t>(bytes, swapped, name);
    case Number::kI8:
      return all<int8_t>(bytes, swapped, name);
    case Number::kI16:
      return all<int16_t>(bytes, swapped, name);
    case Number::kI32:
      return all<int32_t>(bytes, swapped, name);
    case Number::kI64:
      return all<int64_t>(bytes, swapped, name);
    case Number::kU16:
      return all<uint16_t>(bytes, swapped, name);
    case Number::kU32:
      return all<uint32_t>(bytes, swapped, name);
    case Number::kU64:
      return all<uint64_t>(bytes, swapped, name);
    case Number::kF32:
      return all<float>(bytes, swapped, name);
    case Number::kF64:
      return all<double>(bytes, swapped, name);
  }
  return damaged(name, "it holds numbers of no known type");
}

tl::unexpected<Error> damaged(const std::string& name, const std::string& how) {
  return failed(Status::kDataLoss, fmt::format("{}: {}", name, how), ExitCode::kUsage);
}

}  // namespace pliant::data
