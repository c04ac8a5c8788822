// What a GradientReduction holds, shared by its two halves: sums of the own share, and the collectives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "elastic/reduction.hpp"
#include "elastic/reduction_tree.hpp"

namespace pliant::elastic {

using Floats = std::vector<float>;

inline void add_to(float* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] += from[i];
}

struct GradientReduction::State {
  State(uint64_t gradient_size, bool in_fixed_order)
      : size(static_cast<size_t>(gradient_size)), deterministic(in_fixed_order) {}

  /// What is added up beside the gradient, along the same tree.
  struct Scalars {
    double loss = 0;
    double norm = 0;  ///< ReductionResult::part_norms
    void add(const Scalars& other) {
      loss += other.loss;
      norm += other.norm;
    }
  };

  const size_t size;
  const bool deterministic;
  bool measured = false;

  int64_t rows = 0;
  int64_t granule = 1;
  int64_t world_size = 0;        ///< 0: begin has not been called
  std::vector<RowRange> blocks;  ///< of this rank, in the order in which they are added
  size_t added = 0;              ///< of them
  bool reduced = false;

  int64_t loss_tokens = 0;
  uint64_t digest = 0;
  int64_t parts = 0;
  TreeStack tree;
  std::vector<Floats> sums;      ///< of the own subtrees; fast: at most one
  std::vector<Scalars> scalars;  ///< likewise
  std::vector<Floats> spare;     ///< kept so that steps do not allocate
  FoldPlan fold;

  Floats result;
  Floats send;
  std::array<Floats, 2> received;

  [[nodiscard]] bool complete() const { return world_size > 0 && added == blocks.size(); }
  [[nodiscard]] size_t slots() const { return static_cast<size_t>(world_size * fold.roots_per_rank); }

  void retire_last() {
    spare.push_back(std::move(sums.back()));
    sums.pop_back();
    scalars.pop_back();
  }

  void push_sum(std::span<const float> gradient, const Scalars& beside) {
    Floats sum;
    if (!spare.empty()) {
      sum = std::move(spare.back());
      spare.pop_back();
    }
    sum.assign(gradient.begin(), gradient.end());
    sums.push_back(std::move(sum));
    scalars.push_back(beside);
  }

  void begin(int64_t batch_rows, int64_t rows_per_granule, const Assignment& assignment, int64_t rank);
  void plan_fold(const Assignment& assignment);
  void check(RowRange given, std::span<const float> gradient) const;
  void add_granule(int64_t index, const Scalars& beside, std::span<const float> gradient);
  void add_in_order(const Scalars& beside, std::span<const float> gradient);

  void check_reducible(const Communicator& communicator) const;
  void reduce_fast(Communicator& communicator, Stream& stream, const std::function<void()>& midway);
  void reduce_tree(Communicator& communicator, Stream& stream, const std::function<void()>& midway);
  void gather_slice(Communicator& communicator, Stream& stream, size_t first, size_t width, Floats& into);
  void fold_slice(Floats& slice, size_t first, size_t width);
  void gather_scalars(Communicator& communicator, Stream& stream, ReductionResult& total) const;
};

}  // namespace pliant::elastic
