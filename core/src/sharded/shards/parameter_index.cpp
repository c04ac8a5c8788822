#include "sharded/shards/parameter_index.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/printable.hpp"
#include "sharded/shards/layout.hpp"

namespace pliant::sharded {
namespace {

constexpr uint64_t kMostElements = static_cast<uint64_t>(FlatLayout::kMostElements);
constexpr size_t kMostNamed = 5;
constexpr std::string_view kType = "f32[";

template <class Integer>
std::optional<Integer> number_in(std::string_view word) {
  Integer value = 0;
  const auto [end, fault] = std::from_chars(word.data(), word.data() + word.size(), value);
  const bool is_whole = fault == std::errc() && end == word.data() + word.size() && value >= 0;
  return is_whole ? std::optional<Integer>(value) : std::nullopt;
}

std::string_view take_until(std::string_view& text, char end) {
  const size_t at = text.find(end);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return taken;
}

std::optional<std::vector<int64_t>> shape_in(std::string_view word) {
  if (word.substr(0, kType.size()) != kType || word.back() != ']') return std::nullopt;
  std::string_view left = word.substr(kType.size(), word.size() - kType.size() - 1);
  std::vector<int64_t> shape;
  while (!left.empty()) {
    const std::optional<int64_t> length = number_in<int64_t>(take_until(left, ','));
    if (!length) return std::nullopt;
    shape.push_back(*length);
  }
  return shape;
}

/// nullopt: more than any model has.
std::optional<uint64_t> elements_of(const std::vector<int64_t>& shape) {
  uint64_t count = 1;
  for (const int64_t length : shape) {
    if (length > 0 && count > kMostElements / static_cast<uint64_t>(length)) return std::nullopt;
    count *= static_cast<uint64_t>(length);
  }
  return count;
}

std::optional<IndexedParameter> parameter_in(std::string_view line) {
  IndexedParameter made;
  made.name = std::string(take_until(line, ' '));
  auto shape = shape_in(take_until(line, ' '));
  const std::optional<uint64_t> first = number_in<uint64_t>(line);
  if (made.name.empty() || !shape || !first) return std::nullopt;
  const std::optional<uint64_t> count = elements_of(*shape);
  if (!count) return std::nullopt;
  made.shape = std::move(*shape);
  made.first = *first;
  made.count = *count;
  return made;
}

std::string type_of(const std::vector<int64_t>& shape) {
  return fmt::format("f32[{}]", fmt::join(shape, ","));
}

/// The first of them, and how many more there are.
std::string listed(const std::vector<std::string>& differences) {
  const size_t shown = std::min(differences.size(), kMostNamed);
  std::string all =
      fmt::format("{}", fmt::join(differences.begin(), differences.begin() + static_cast<int>(shown), ", "));
  if (shown < differences.size()) all += fmt::format(", and {} more", differences.size() - shown);
  return all;
}

}  // namespace

ParameterIndex ParameterIndex::of(const ModelTables& model) {
  ParameterIndex index;
  for (const ParameterRow& row : model.parameters())
    index.parameters_.push_back({row.name, row.shape, row.offset, row.elements});
  index.elements_ = model.elements();
  return index;
}

std::string ParameterIndex::text() const {
  std::string text;
  for (const IndexedParameter& one : parameters_)
    text += fmt::format("{} {} {}\n", one.name, type_of(one.shape), one.first);
  return text;
}

Result<ParameterIndex> ParameterIndex::parse(std::string_view text) {
  ParameterIndex index;
  std::unordered_set<std::string> names;
  while (!text.empty()) {
    const std::string_view line = take_until(text, '\n');
    std::optional<IndexedParameter> one = parameter_in(line);
    if (!one) return failed(Status::kDataLoss, fmt::format("'{}' is not a parameter", printable(line)));
    if (!names.insert(one->name).second) {
      return failed(Status::kDataLoss, fmt::format("two parameters have the name {}", printable(one->name)));
    }
    if (one->first != index.elements_ || one->count > kMostElements - index.elements_) {
      return failed(Status::kDataLoss, fmt::format("{} begins at element {}, but the data before it ends at {}",
                                                   printable(one->name), one->first, index.elements_));
    }
    index.elements_ += one->count;
    index.parameters_.push_back(std::move(*one));
  }
  return index;
}

Result<std::vector<PlacedRun>> ParameterIndex::place(const ModelTables& model) const {
  std::unordered_map<std::string_view, const IndexedParameter*> by_name;
  for (const IndexedParameter& one : parameters_) by_name.emplace(one.name, &one);
  std::vector<std::string> differences;
  std::vector<PlacedRun> runs;
  for (const ParameterRow& row : model.parameters()) {
    const auto found = by_name.find(row.name);
    if (found == by_name.end()) {
      differences.push_back(fmt::format("it lacks {}", row.name));
      continue;
    }
    const IndexedParameter& one = *found->second;
    by_name.erase(found);
    if (one.shape != row.shape) {
      differences.push_back(
          fmt::format("its {} is {} instead of {}", row.name, type_of(one.shape), type_of(row.shape)));
      continue;
    }
    if (row.elements == 0) continue;
    const bool goes_on = !runs.empty() && runs.back().first + runs.back().count == row.offset &&
                         runs.back().in_index + runs.back().count == one.first;
    if (goes_on) {
      runs.back().count += row.elements;
    } else {
      runs.push_back({row.offset, row.elements, one.first});
    }
  }
  for (const IndexedParameter& one : parameters_) {
    if (by_name.contains(one.name))
      differences.push_back(fmt::format("its {} does not exist in this model", printable(one.name)));
  }
  if (differences.empty()) return runs;
  return failed(Status::kFailedPrecondition, listed(differences));
}

}  // namespace pliant::sharded
