// Lengths: who owns them.
#include "pliant/lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "pliant/error.hpp"

namespace pliant {

Lengths::Lengths(std::vector<int32_t> values) {
  const auto owner = std::make_shared<const std::vector<int32_t>>(std::move(values));
  values_ = *owner;
  owner_ = owner;
}
Lengths::Lengths(std::initializer_list<int32_t> values) : Lengths(std::vector<int32_t>(values)) {}
Lengths::Lengths(std::span<const int32_t> values, std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), values_(values) {}

Lengths Lengths::from(std::span<const int64_t> values) {
  std::vector<int32_t> narrow(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    narrow[i] = static_cast<int32_t>(values[i]);
    if (narrow[i] == values[i]) continue;
    throw Error(Status::kOutOfRange,
                fmt::format("sequence {} has a length of {}; it must be 1 to {}", i, values[i],
                            std::numeric_limits<int32_t>::max()),
                Origin::kInput);
  }
  return Lengths(std::move(narrow));
}

bool operator==(const Lengths& a, const Lengths& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace pliant
