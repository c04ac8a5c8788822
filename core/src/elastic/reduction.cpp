// GradientReduction: sums of the own share as they arrive.
#include "elastic/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "elastic/reduction_state.hpp"
#include "pliant/error.hpp"

namespace pliant::elastic {

namespace {

double squared_norm(std::span<const float> gradient) {
  double sum = 0;
  for (const float value : gradient) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

}  // namespace

std::string row_text(RowRange rows) {
  if (rows.count == 0) return fmt::format("no rows at {}", rows.first);
  if (rows.count == 1) return fmt::format("row {}", rows.first);
  return fmt::format("rows {}..{}", rows.first, rows.first + rows.count - 1);
}

void GradientReduction::State::begin(int64_t batch_rows, int64_t rows_per_granule, int64_t ranks, int64_t rank) {
  if (batch_rows < 0 || rows_per_granule < 1 || ranks < 1 || rank < 0 || rank >= ranks) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("a reduction cannot begin with {} rows, granule {}, world size {}, rank {}; needed: rows >= 0, "
                    "granule >= 1, 0 <= rank < world size",
                    batch_rows, rows_per_granule, ranks, rank));
  }
  rows = batch_rows;
  granule = rows_per_granule;
  world_size = ranks;
  share = share_of(rows, granule, world_size, rank);
  next_row = share.first;
  reduced = false;
  loss_tokens = 0;
  digest = 0;
  parts = 0;
  while (!sums.empty()) retire_last();
  if (!deterministic) {
    fold = rank_order_fold(world_size);
    return;
  }
  const auto granules_in = [this](int64_t count) { return count / granule + (count % granule != 0 ? 1 : 0); };
  const int64_t granules = granules_in(rows);
  tree = TreeStack(granules);
  std::vector<std::vector<TreeNode>> roots;
  for (int64_t r = 0; r < world_size; ++r) {
    const RowRange of_rank = share_of(rows, granule, world_size, r);
    roots.push_back(subtree_roots(granules, of_rank.first / granule, granules_in(of_rank.count)));
  }
  fold = tree_fold(granules, roots);
}

void GradientReduction::State::check(RowRange added, size_t gradient_size) const {
  if (gradient_size != size) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("the gradient of {} has {} elements, but gradient_size() said {}; hand in the whole gradient",
                    row_text(added), gradient_size, size));
  }
  if (added.first != next_row || added.count < 1 || added.count > share_end() - next_row) {
    const std::string expected =
        next_row == share_end() ? "everything has been added already" : fmt::format("the next row is {}", next_row);
    throw Error(
        Status::kInvalidArgument,
        fmt::format("the gradient of {} does not fit: this rank's share is {}, and {}; add each micro-batch of the "
                    "step once and in order",
                    row_text(added), row_text(share), expected));
  }
  if (deterministic && added.count != std::min(granule, rows - added.first)) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the gradient of {} is not that of one granule ({} rows): deterministic "
                            "mode adds granule by granule",
                            row_text(added), std::min(granule, rows - added.first)));
  }
}

void GradientReduction::State::add_granule(int64_t index, const Scalars& beside, std::span<const float> gradient) {
  const TreeNode leaf{0, index};
  bool in_place = tree.merges(leaf);
  if (!in_place) push_sum(gradient, beside);
  tree.push(leaf, [&] {
    if (in_place) {
      add_to(sums.back().data(), gradient.data(), size);
      scalars.back().add(beside);
      in_place = false;
      return;
    }
    add_to(sums[sums.size() - 2].data(), sums.back().data(), size);
    scalars[scalars.size() - 2].add(scalars.back());
    retire_last();
  });
}

void GradientReduction::State::add_in_order(const Scalars& beside, std::span<const float> gradient) {
  if (sums.empty()) {
    push_sum(gradient, beside);
    return;
  }
  add_to(sums.front().data(), gradient.data(), size);
  scalars.front().add(beside);
}

GradientReduction::GradientReduction(uint64_t gradient_size, bool deterministic)
    : state_(std::make_unique<State>(gradient_size, deterministic)) {}
GradientReduction::~GradientReduction() = default;
GradientReduction::GradientReduction(GradientReduction&&) noexcept = default;

void GradientReduction::measure_parts(bool on) {
  state_->measured = on;
}

void GradientReduction::begin(int64_t rows, int64_t granule, int64_t world_size, int64_t rank) {
  state_->begin(rows, granule, world_size, rank);
}

void GradientReduction::add(RowRange rows, double loss_sum, int64_t loss_tokens, uint64_t digest,
                            std::span<const float> gradient) {
  state_->check(rows, gradient.size());
  const bool counts = state_->measured && loss_tokens > 0;
  const State::Scalars beside{loss_sum, counts ? squared_norm(gradient) / static_cast<double>(loss_tokens) : 0};
  if (state_->deterministic) {
    state_->add_granule(rows.first / state_->granule, beside, gradient);
  } else {
    state_->add_in_order(beside, gradient);
  }
  if (loss_tokens > 0) ++state_->parts;
  state_->next_row += rows.count;
  state_->loss_tokens += loss_tokens;
  state_->digest += digest;
}

bool GradientReduction::complete() const {
  return state_->world_size > 0 && state_->next_row == state_->share_end();
}

}  // namespace pliant::elastic
