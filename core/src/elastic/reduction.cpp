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

/// "rows 4..7", for messages; of any two numbers, for a program may have given them.
std::string row_text(RowRange rows) {
  if (rows.count < 0 || rows.first > INT64_MAX - rows.count)
    return fmt::format("{} rows at {}", rows.count, rows.first);
  if (rows.count == 0) return fmt::format("no rows at {}", rows.first);
  if (rows.count == 1) return fmt::format("row {}", rows.first);
  return fmt::format("rows {}..{}", rows.first, rows.first + rows.count - 1);
}

/// Throws unless every row is in one block. `granule` above 0: and the blocks are granules, ascending on each rank.
void check_assignment(const Assignment& assignment, int64_t rows, int64_t granule) {
  std::vector<RowRange> all = assignment.blocks;
  const auto by_row = [](const RowRange& a, const RowRange& b) { return a.first < b.first; };
  std::sort(all.begin(), all.end(), by_row);
  int64_t next = 0;
  bool right = true;
  for (const RowRange& block : all) {
    const int64_t most = rows - next;
    right = right && block.first == next && block.count >= 1 && block.count <= most &&
            (granule == 0 || block.count == std::min(granule, most));
    if (!right) break;
    next += block.count;
  }
  for (int64_t rank = 0; granule > 0 && rank < assignment.world_size(); ++rank) {
    const std::span<const RowRange> own = assignment.of(rank);
    right = right && std::is_sorted(own.begin(), own.end(), by_row);
  }
  if (right && next == rows) return;
  throw Error(Status::kInvalidArgument,
              granule == 0 ? fmt::format("an assignment must have each of {} rows in one block", rows)
                           : fmt::format("an assignment must have each of {} rows in one block, and in deterministic "
                                         "mode the blocks are granules of {}, on each rank in the order of the batch",
                                         rows, granule));
}

}  // namespace

void GradientReduction::State::begin(int64_t batch_rows, int64_t rows_per_granule, const Assignment& assignment,
                                     int64_t rank) {
  const int64_t ranks = assignment.world_size();
  if (batch_rows < 0 || rows_per_granule < 1 || ranks < 1 || rank < 0 || rank >= ranks) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("a reduction cannot begin with {} rows, granule {}, world size {}, rank {}; needed: rows >= 0, "
                    "granule >= 1, 0 <= rank < world size",
                    batch_rows, rows_per_granule, ranks, rank));
  }
  check_assignment(assignment, batch_rows, deterministic ? rows_per_granule : 0);
  rows = batch_rows;
  granule = rows_per_granule;
  world_size = ranks;
  const std::span<const RowRange> own = assignment.of(rank);
  blocks.assign(own.begin(), own.end());
  added = 0;
  reduced = false;
  loss_tokens = 0;
  digest = 0;
  parts = 0;
  while (!sums.empty()) retire_last();
  if (deterministic) {
    plan_fold(assignment);
  } else {
    fold = rank_order_fold(world_size);
  }
}

void GradientReduction::State::plan_fold(const Assignment& assignment) {
  const int64_t granules = rows / granule + (rows % granule != 0 ? 1 : 0);
  tree = TreeStack(granules);
  std::vector<std::vector<TreeNode>> roots;
  std::vector<int64_t> owned;
  for (int64_t rank = 0; rank < world_size; ++rank) {
    owned.clear();
    for (const RowRange& block : assignment.of(rank)) owned.push_back(block.first / granule);
    roots.push_back(subtree_roots(granules, owned));
  }
  fold = tree_fold(granules, roots);
}

void GradientReduction::State::check(RowRange given, std::span<const float> gradient) const {
  if (gradient.size() != size) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("the gradient of {} has {} elements, but gradient_size() said {}; hand in the whole gradient",
                    row_text(given), gradient.size(), size));
  }
  if (gradient.data() == nullptr && size > 0) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the gradient of {} is a null pointer; hand in its {} floats", row_text(given), size));
  }
  if (added < blocks.size() && given == blocks[added]) return;
  const std::string expected =
      added == blocks.size()
          ? fmt::format("all {} micro-batches of this rank have been added already", blocks.size())
          : fmt::format("micro-batch {} of {} of this rank is next, {}", added, blocks.size(), row_text(blocks[added]));
  throw Error(Status::kInvalidArgument,
              fmt::format("the gradient of {} does not fit: {}; add each micro-batch of the step once and in order",
                          row_text(given), expected));
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

void GradientReduction::begin(int64_t rows, int64_t granule, const Assignment& assignment, int64_t rank) {
  state_->begin(rows, granule, assignment, rank);
}

void GradientReduction::check(RowRange rows, std::span<const float> gradient) const {
  state_->check(rows, gradient);
}

void GradientReduction::add(RowRange rows, double loss_sum, int64_t loss_tokens, uint64_t digest,
                            std::span<const float> gradient) {
  state_->check(rows, gradient);
  const bool counts = state_->measured && loss_tokens > 0;
  const State::Scalars beside{loss_sum, counts ? squared_norm(gradient) / static_cast<double>(loss_tokens) : 0};
  if (state_->deterministic) {
    state_->add_granule(rows.first / state_->granule, beside, gradient);
  } else {
    state_->add_in_order(beside, gradient);
  }
  if (loss_tokens > 0) ++state_->parts;
  ++state_->added;
  state_->loss_tokens += loss_tokens;
  state_->digest += digest;
}

bool GradientReduction::complete() const {
  return state_->complete();
}

}  // namespace pliant::elastic
