// Rows and costs that were made beforehand: what is wrong with them, by array and place.
#include "data/lengths/given_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "data/lengths/formats.hpp"

namespace pliant {

Integers::Integers(std::vector<int64_t> values) {
  const auto owner = std::make_shared<const std::vector<int64_t>>(std::move(values));
  values_ = *owner;
  owner_ = owner;
}
Integers::Integers(std::initializer_list<int64_t> values) : Integers(std::vector<int64_t>(values)) {}
Integers::Integers(std::span<const int64_t> values, std::shared_ptr<const void> owner)
    : owner_(std::move(owner)), values_(values) {}

bool operator==(const Integers& a, const Integers& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

Integers whole_costs(std::span<const double> costs, const std::string& name) {
  constexpr int kBits = 40;
  constexpr double kMostWhole = 9007199254740992.0;  // a double holds every whole number up to it
  double most = 0;
  bool are_whole = true;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (!std::isfinite(costs[i]) || costs[i] < 0) {
      throw Error(Status::kInvalidArgument,
                  fmt::format("{}: cost {} is {}; a cost must be finite and 0 or more", name, i, costs[i]),
                  Origin::kInput);
    }
    most = std::max(most, costs[i]);
    are_whole = are_whole && std::trunc(costs[i]) == costs[i];
  }
  const int shift = are_whole && most <= kMostWhole ? 0 : kBits - std::ilogb(most);
  std::vector<int64_t> whole(costs.size());
  std::transform(costs.begin(), costs.end(), whole.begin(),
                 [shift](double cost) { return int64_t{std::llround(std::ldexp(cost, shift))}; });
  return whole;
}

namespace data {

namespace {

tl::unexpected<Error> wrong_array(const char* option, const std::string& how) {
  return tl::unexpected<Error>(Error(Status::kInvalidArgument, how, Origin::kInput).about(option));
}
std::string array_name(const std::string& source, const char* otherwise) {
  return source.empty() ? otherwise : source;
}

/// The row that has entry `at`.
size_t row_with(const GivenRows& rows, size_t at) {
  const auto after = std::upper_bound(rows.offsets.begin(), rows.offsets.end(), static_cast<int64_t>(at));
  return static_cast<size_t>(after - rows.offsets.begin()) - 1;
}

Result<> check_row_offsets(const GivenRows& rows) {
  const Integers& offsets = rows.offsets;
  const std::string name = array_name(rows.offsets_source, "the offsets of rows");
  const std::string ids = array_name(rows.ids_source, "the ids of rows");
  if (offsets.size() < 2) {
    return wrong_array(
        "offsets", fmt::format("{}: {} offsets are no row; n rows have n + 1: 0 first, the number of ids last", name,
                               offsets.size()));
  }
  if (offsets[0] != 0) {
    return wrong_array("offsets", fmt::format("{}: offset 0 is {}; the first offset must be 0", name, offsets[0]));
  }
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    if (offsets[row + 1] > offsets[row]) continue;
    if (offsets[row + 1] == offsets[row]) {
      return wrong_array(
          "offsets", fmt::format("{}: row {} has no sequences, offsets {} and {} are both {}; leave it out", name, row,
                                 row, row + 1, offsets[row]));
    }
    return wrong_array("offsets",
                       fmt::format("{}: offset {} is {}, below offset {}, which is {}; offsets must ascend: row i "
                                   "is ids[offsets[i]] to ids[offsets[i + 1] - 1]",
                                   name, row + 1, offsets[row + 1], row, offsets[row]));
  }
  const auto last = static_cast<uint64_t>(offsets[offsets.size() - 1]);
  if (last == rows.ids.size()) return {};
  return wrong_array(
      "offsets", fmt::format("{}: the last offset, {} of {}, is {}, but {} has {} ids; it must be their number", name,
                             offsets.size() - 1, offsets.size(), last, ids, rows.ids.size()));
}

Result<> check_row_ids(const GivenRows& rows, size_t sequences) {
  const std::string name = array_name(rows.ids_source, "the ids of rows");
  std::vector<bool> is_used(sequences);
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    const int64_t id = rows.ids[i];
    if (id < 0 || static_cast<uint64_t>(id) >= sequences) {
      return wrong_array("ids", fmt::format("{}: id {} is {}, in row {}; the data set has {} sequences, counted from 0",
                                            name, i, id, row_with(rows, i), sequences));
    }
    if (!is_used[static_cast<size_t>(id)]) {
      is_used[static_cast<size_t>(id)] = true;
      continue;
    }
    const auto first = static_cast<size_t>(std::find(rows.ids.begin(), rows.ids.end(), id) - rows.ids.begin());
    return wrong_array(
        "ids", fmt::format("{}: sequence {} is id {}, in row {}, and id {}, in row {}; an epoch uses a sequence "
                           "once: remove one of them",
                           name, id, first, row_with(rows, first), i, row_with(rows, i)));
  }
  return {};
}

/// `array` where it is when it lies in memory as Integers do.
std::optional<Integers> integers_in_place(const NumberArray& array) {
  const bool aligned = reinterpret_cast<uintptr_t>(array.bytes.data()) % alignof(int64_t) == 0;
  if (array.type != Number::kI64 || array.swapped || !aligned) return std::nullopt;
  return Integers({reinterpret_cast<const int64_t*>(array.bytes.data()), array.bytes.size() / sizeof(int64_t)},
                  array.file);
}

Result<NumberArray> npy_of(const std::filesystem::path& file) {
  auto bytes = read_whole(file);
  if (!bytes) return failed(std::move(bytes));
  return find_in_npy(*bytes, file.string());
}

bool is_real(Number type) {
  return type == Number::kF32 || type == Number::kF64;
}

template <class Real, class Bits>
std::vector<double> reals_in(const NumberArray& array) {
  std::vector<double> reals(array.bytes.size() / sizeof(Real));
  for (size_t i = 0; i < reals.size(); ++i) {
    Bits bits = 0;
    std::memcpy(&bits, array.bytes.data() + i * sizeof(bits), sizeof(bits));
    if (array.swapped) {
      Bits turned = 0;
      for (size_t byte = 0; byte < sizeof(bits); ++byte) {
        turned = static_cast<Bits>(turned << 8U) | (bits >> (8U * byte) & 0xffU);
      }
      bits = turned;
    }
    reals[i] = static_cast<double>(std::bit_cast<Real>(bits));
  }
  return reals;
}

}  // namespace

Result<> check_rows(const Dataset& dataset) {
  if (dataset.rows.empty()) return {};
  if (Result<> offsets = check_row_offsets(dataset.rows); !offsets) return offsets;
  return check_row_ids(dataset.rows, dataset.lengths.size());
}

Result<> check_costs(const Dataset& dataset) {
  const Integers& costs = dataset.costs;
  if (costs.empty()) return {};
  const std::string name = array_name(dataset.costs_source, "the costs");
  if (costs.size() != dataset.lengths.size()) {
    return failed(
        Status::kInvalidArgument,
        fmt::format("{}: {} costs for {} sequences; give one for each", name, costs.size(), dataset.lengths.size()),
        Origin::kInput);
  }
  const auto below = std::find_if(costs.begin(), costs.end(), [](int64_t cost) { return cost < 0; });
  if (below == costs.end()) return {};
  return failed(
      Status::kInvalidArgument,
      fmt::format("{}: cost {} is {}; a cost must be finite and 0 or more", name, below - costs.begin(), *below),
      Origin::kInput);
}

Result<Integers> read_integers(const std::filesystem::path& file) {
  auto array = npy_of(file);
  if (!array) return failed(std::move(array));
  if (is_real(array->type)) {
    return failed(Status::kInvalidArgument,
                  fmt::format("{}: its numbers are floats; save integers, as with .astype(\"int64\")", file.string()),
                  Origin::kInput);
  }
  if (const std::optional<Integers> there = integers_in_place(*array)) return *there;
  auto values = whole_numbers(*array);
  if (!values) return failed(std::move(values));
  return Integers(std::move(*values));
}

Result<Integers> read_costs(const std::filesystem::path& file) {
  auto array = npy_of(file);
  if (!array) return failed(std::move(array));
  if (!is_real(array->type)) return read_integers(file);
  try {
    return whole_costs(
        array->type == Number::kF32 ? reals_in<float, uint32_t>(*array) : reals_in<double, uint64_t>(*array),
        file.string());
  } catch (const Error& error) {
    return tl::unexpected<Error>(error);
  }
}

Integers costs_of_rows(const GivenRows& rows, const Integers& row_costs, size_t sequences) {
  std::vector<int64_t> costs(sequences, 0);
  for (size_t row = 0; row < rows.count(); ++row) {
    const auto first = static_cast<size_t>(rows.offsets[row]);  // the others of the row cost nothing more
    costs[static_cast<size_t>(rows.ids[first])] = row_costs[row];
  }
  return costs;
}

}  // namespace data

}  // namespace pliant
