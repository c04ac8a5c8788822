// Numbers back to back, of any width and byte order.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
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

/// Calls use(i, value) for every number until it returns an error.
template <class T, class Use>
Result<> each_of(const NumberArray& array, Use& use) {
  for (size_t i = 0; i < array.bytes.size() / sizeof(T); ++i) {
    const T value = value_at<T>(array.bytes.data() + i * sizeof(T), array.swapped);
    int64_t whole = 0;
    if (!to_whole(value, whole)) {
      return failed(Status::kInvalidArgument,
                    fmt::format("{}: value {} is {}, which is not a whole number of 63 bits", array.name, i, value),
                    Origin::kInput);
    }
    if (Result<> used = use(i, whole); !used) return used;
  }
  return {};
}

template <class Use>
Result<> each(const NumberArray& array, Use&& use) {
  switch (array.type) {
    case Number::kU8:
      return each_of<uint8_t>(array, use);
    case Number::kI8:
      return each_of<int8_t>(array, use);
    case Number::kI16:
      return each_of<int16_t>(array, use);
    case Number::kI32:
      return each_of<int32_t>(array, use);
    case Number::kI64:
      return each_of<int64_t>(array, use);
    case Number::kU16:
      return each_of<uint16_t>(array, use);
    case Number::kU32:
      return each_of<uint32_t>(array, use);
    case Number::kU64:
      return each_of<uint64_t>(array, use);
    case Number::kF32:
      return each_of<float>(array, use);
    case Number::kF64:
      return each_of<double>(array, use);
  }
  return damaged(array.name, "its number type is unknown");
}

Result<> check_count(int64_t count, size_t sequence, const Counted& counted, const std::string& name) {
  if (counted.admits(count)) return {};
  return failed(Status::kInvalidArgument,
                fmt::format("{}: sequence {} has a {} of {}; {}", name, sequence, counted.what, count, counted.rule()),
                Origin::kInput);
}

/// `array` itself when it is large and lies in memory as Lengths do.
std::optional<Lengths> in_place(const NumberArray& array) {
  constexpr size_t kLarge = size_t{64} << 20U;
  const bool aligned = reinterpret_cast<uintptr_t>(array.bytes.data()) % alignof(int32_t) == 0;
  if (array.type != Number::kI32 || array.swapped || !aligned || array.bytes.size() < kLarge) return std::nullopt;
  const std::span values(reinterpret_cast<const int32_t*>(array.bytes.data()), array.bytes.size() / sizeof(int32_t));
  return Lengths(values, array.file);
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

Result<std::vector<int64_t>> whole_numbers(const NumberArray& array) {
  std::vector<int64_t> values(array.bytes.size() / width_of(array.type));
  auto used = each(array, [&values](size_t i, int64_t value) -> Result<> {
    values[i] = value;
    return {};
  });
  if (!used) return failed(std::move(used));
  return values;
}

bool Counted::admits(int64_t count) const {
  return count >= least && count <= std::numeric_limits<int32_t>::max();
}
std::string Counted::rule() const {
  return fmt::format("a {} must be a whole number from {} to {}", what, least, std::numeric_limits<int32_t>::max());
}

Result<Lengths> lengths_in(const NumberArray& array, const Counted& counted) {
  if (const std::optional<Lengths> there = in_place(array)) {
    for (size_t i = 0; i < there->size(); ++i) {
      if ((*there)[i] >= counted.least) continue;
      return failed(check_count((*there)[i], i, counted, array.name));
    }
    return *there;
  }
  std::vector<int32_t> lengths(array.bytes.size() / width_of(array.type));
  auto used = each(array, [&](size_t i, int64_t value) -> Result<> {
    lengths[i] = static_cast<int32_t>(value);
    return check_count(value, i, counted, array.name);
  });
  if (!used) return failed(std::move(used));
  return Lengths(std::move(lengths));
}

tl::unexpected<Error> damaged(const std::string& name, const std::string& how) {
  return failed(Status::kDataLoss, fmt::format("{}: {}", name, how), Origin::kInput);
}

}  // namespace pliant::data
