// Costs of rows in integers: exact in 128 bits, then cut to what a sum in 64 bits holds.
#include "balance/costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/result.hpp"
#include "data/pieces.hpp"
#include "pliant/balancer.hpp"

namespace pliant {

namespace balance {

namespace {

/// Bounds that keep Rates * Shape below 2^127: rates are at most 2^40.
constexpr Wide kMostTokens = (Wide{1} << 62) - 1;
constexpr Wide kMostSquares = (Wide{1} << 86) - 1;
constexpr int64_t kHighestRate = int64_t{1} << 40;

}  // namespace

void Shape::add(int64_t length) {
  const Wide l = static_cast<Wide>(static_cast<uint64_t>(length));
  tokens = std::min(tokens + l, kMostTokens);
  // A length of 2^43 or more reaches the bound by itself; its square need not be taken.
  const Wide square = l >> 43 != 0 ? kMostSquares : l * l;
  squares = std::min(squares + square, kMostSquares);
}

Wide cost_of(const Shape& shape, CostRates rates) {
  return shape.tokens * static_cast<uint64_t>(rates.per_token) +
         shape.squares * static_cast<uint64_t>(rates.per_square);
}

Shape shape_of(const data::Entries& entries, const Dataset& dataset) {
  Shape shape;
  for (size_t i = 0; i < entries.ids.size(); ++i) {
    const bool whole = entries.pieces.empty();
    shape.add(whole ? int64_t{dataset.lengths[static_cast<size_t>(entries.ids[i])]} : entries.pieces[i].count);
  }
  return shape;
}

void check_rates(CostRates rates) {
  const auto in_range = [](int64_t rate) { return rate >= 0 && rate <= kHighestRate; };
  if (in_range(rates.per_token) && in_range(rates.per_square) && rates != CostRates{0, 0}) return;
  throw Error(
      Status::kInvalidArgument,
      fmt::format("costs of {} per token and {} per square are not valid; both must be 0 to 2^40, and not both 0",
                  rates.per_token, rates.per_square));
}

std::vector<int64_t> fitting(const std::vector<Wide>& costs) {
  // In units of 2^32, rounded up, so that no number of costs below 2^127 overflows their sum.
  constexpr int kUnit = 32;
  constexpr Wide kMostUnits = (Wide{1} << 62) >> kUnit;
  Wide units = costs.size();
  for (const Wide cost : costs) units += cost >> kUnit;
  int shift = 0;
  while (units >> shift >= kMostUnits) ++shift;
  std::vector<int64_t> cut(costs.size());
  std::transform(costs.begin(), costs.end(), cut.begin(),
                 [shift](Wide cost) { return static_cast<int64_t>(cost >> shift); });
  return cut;
}

}  // namespace balance

namespace {

/// Throws unless every row of `batch` can be looked up.
void check_batch(const Batch& batch, const Dataset& dataset) {
  const auto& offsets = batch.offsets;
  const bool rows_fit = batch.size.rows >= 0 && std::ssize(offsets) == batch.size.rows + 1 &&
                        std::is_sorted(offsets.begin(), offsets.end()) && offsets.back() <= batch.ids.size();
  const bool known = std::all_of(batch.ids.begin(), batch.ids.end(),
                                 [most = std::ssize(dataset.lengths)](int64_t id) { return id >= 0 && id < most; });
  if (rows_fit && known && (batch.pieces.empty() || batch.pieces.size() == batch.ids.size())) return;
  throw Error(
      Status::kInvalidArgument,
      fmt::format("batch {} was not made by a sampler from these {} sequences: its rows, ids and pieces do not match",
                  batch.index, dataset.lengths.size()));
}

/// Of a piece the part of its sequence's cost that its tokens are of all tokens: pieces add up to the sequence.
balance::Wide given_cost(const data::Entries& entries, const Dataset& dataset) {
  balance::Wide sum = 0;
  for (size_t i = 0; i < entries.ids.size(); ++i) {
    const auto id = static_cast<size_t>(entries.ids[i]);
    const auto cost = static_cast<balance::Wide>(static_cast<uint64_t>(dataset.costs[id]));
    const auto length = static_cast<uint64_t>(std::max(dataset.lengths[id], 1));
    if (entries.pieces.empty()) {
      sum += cost;
      continue;
    }
    const Piece& piece = entries.pieces[i];
    sum += cost * static_cast<uint64_t>(piece.first + piece.count) / length -
           cost * static_cast<uint64_t>(piece.first) / length;
  }
  return sum;
}

void check_given_costs(const Dataset& dataset) {
  if (dataset.costs.size() == dataset.lengths.size()) return;
  throw Error(Status::kInvalidArgument,
              fmt::format("the data set has {} costs for {} sequences; give one for each, or none",
                          dataset.costs.size(), dataset.lengths.size()));
}

}  // namespace

std::vector<int64_t> row_costs(const Batch& batch, const Dataset& dataset, CostRates rates) {
  balance::check_rates(rates);
  check_batch(batch, dataset);
  const bool is_given = !dataset.costs.empty();
  if (is_given) check_given_costs(dataset);
  std::vector<balance::Wide> costs(static_cast<size_t>(batch.size.rows));
  for (size_t row = 0; row < costs.size(); ++row) {
    const data::Entries entries = data::entries_of(batch, {static_cast<int64_t>(row), 1});
    costs[row] = is_given ? given_cost(entries, dataset) : balance::cost_of(balance::shape_of(entries, dataset), rates);
  }
  return balance::fitting(costs);
}

std::vector<int64_t> row_costs(std::span<const int64_t> lengths, std::span<const uint64_t> offsets, CostRates rates) {
  balance::check_rates(rates);
  if (offsets.empty() || offsets.back() > lengths.size() || !std::is_sorted(offsets.begin(), offsets.end())) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the offsets of rows must ascend and end at {} lengths at most", lengths.size()));
  }
  std::vector<balance::Wide> costs(offsets.size() - 1);
  for (size_t row = 0; row < costs.size(); ++row) {
    balance::Shape shape;
    for (uint64_t i = offsets[row]; i < offsets[row + 1]; ++i) {
      if (lengths[i] < 0) {
        throw Error(Status::kInvalidArgument,
                    fmt::format("sequence {} has {} tokens; lengths are 0 or more", i, lengths[i]));
      }
      shape.add(lengths[i]);
    }
    costs[row] = balance::cost_of(shape, rates);
  }
  return balance::fitting(costs);
}

}  // namespace pliant
