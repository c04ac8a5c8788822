// Batches of rows of like cost.
#include "cost_windows.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "python_shuffle.hpp"
#include "reorder.hpp"

namespace pliant::sampler {

namespace {

__extension__ typedef unsigned __int128 RowCost;

/// quadratic_length times the cost of rows: exact, and fits, since a row has fewer than 2^63 tokens.
class RowCosts {
 public:
  RowCosts(const sdk::EpochRequest& request, int64_t quadratic_length, const sdk::EpochRows& rows)
      : request_(request), rows_(rows), each_(static_cast<uint64_t>(quadratic_length)) {}
  [[nodiscard]] RowCost operator()(uint64_t row) const {
    RowCost cost = 0;
    for (uint64_t i = rows_.offsets[row]; i < rows_.offsets[row + 1]; ++i) {
      const auto tokens = static_cast<uint64_t>(
          rows_.pieces.empty() ? request_.lengths[static_cast<size_t>(rows_.ids[i])] : rows_.pieces[i].count);
      cost += each_ * tokens + static_cast<RowCost>(tokens) * tokens;
    }
    return cost;
  }

 private:
  const sdk::EpochRequest& request_;
  const sdk::EpochRows& rows_;
  RowCost each_;
};

/// Orders of batches that follow from seed and epoch.
class BatchShuffle {
 public:
  explicit BatchShuffle(const sdk::EpochRequest& request) : engine_(seeded(request)) {}
  /// 0 .. count-1, shuffled; another order each time.
  std::vector<uint64_t> operator()(uint64_t count) {
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), uint64_t{0});
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw_below(engine_, i)]);
    return order;
  }

 private:
  static std::mt19937 seeded(const sdk::EpochRequest& request) {
    constexpr uint32_t kPurpose = 0x636f7374;  // not the numbers that shuffle the sequences
    std::vector<uint32_t> key = seed_words(request.seed, static_cast<uint64_t>(request.epoch));
    key.insert(key.begin(), kPurpose);
    ArraySeed seed(key);
    return std::mt19937(seed);
  }
  std::mt19937 engine_;
};

}  // namespace

void sort_in_cost_windows(const sdk::EpochRequest& request, uint64_t window, int64_t quadratic_length,
                          sdk::EpochRows& rows) {
  BatchShuffle shuffled(request);
  const RowCosts cost_of(request, quadratic_length, rows);
  const auto batch = static_cast<uint64_t>(request.rows_per_batch);
  const uint64_t total = rows.row_count();
  const uint64_t width = window > total / batch ? total : window * batch;
  std::vector<RowPart> out;
  out.reserve(total);
  std::vector<std::pair<RowCost, uint64_t>> sorted;
  std::vector<uint64_t> members;
  for (uint64_t begin = 0; begin < total; begin += width) {
    const uint64_t end = std::min(begin + width, total);
    sorted.clear();
    for (uint64_t row = begin; row < end; ++row) sorted.emplace_back(cost_of(row), row);
    std::sort(sorted.begin(), sorted.end());
    const auto add = [&](uint64_t first, uint64_t count) {
      members.clear();
      for (uint64_t i = first; i < first + count; ++i) members.push_back(sorted[i].second);
      std::sort(members.begin(), members.end());
      for (const uint64_t row : members) out.push_back({rows.offsets[row], rows.offsets[row + 1]});
    };
    const uint64_t rest = (end - begin) % batch;
    for (const uint64_t one : shuffled((end - begin) / batch)) add(rest + one * batch, batch);
    add(0, rest);
  }
  rows_from_parts(out, rows);
}

}  // namespace pliant::sampler
