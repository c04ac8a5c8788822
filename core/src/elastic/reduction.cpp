// GradientReduction: sums of the own share as they arrive, then collectives over slices of the gradient.
#include "elastic/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>

#include "elastic/reduction_tree.hpp"
#include "pliant/error.hpp"

namespace pliant::elastic {

namespace {

using Floats = std::vector<float>;

/// Bounds of one receive buffer of the deterministic mode, and of the part of it that is folded at once (half a
/// first-level cache for two operands).
constexpr size_t kReceiveFloats = size_t{1} << 20;
constexpr size_t kNarrowestSlice = size_t{1} << 10;
constexpr size_t kFoldBlock = size_t{1} << 11;

void add_to(float* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] += from[i];
}

/// Waits until nothing enqueued uses our buffers any more, however that ends.
void drain(Stream& stream) noexcept {
  try {
    stream.synchronize();
  } catch (...) {
    return;  // the first failure is the one that is reported
  }
}

double squared_norm(std::span<const float> gradient) {
  double sum = 0;
  for (const float value : gradient) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

std::string row_text(RowRange rows) {
  if (rows.count == 0) return fmt::format("no rows at {}", rows.first);
  if (rows.count == 1) return fmt::format("row {}", rows.first);
  return fmt::format("rows {}..{}", rows.first, rows.first + rows.count - 1);
}

}  // namespace

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
  int64_t world_size = 0;  ///< 0: begin has not been called
  RowRange share;
  int64_t next_row = 0;
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

  [[nodiscard]] int64_t share_end() const { return share.first + share.count; }
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

  void begin(int64_t batch_rows, int64_t rows_per_granule, int64_t ranks, int64_t rank);
  void check(RowRange added, size_t gradient_size) const;
  void add_granule(int64_t index, const Scalars& beside, std::span<const float> gradient);
  void add_in_order(const Scalars& beside, std::span<const float> gradient);

  void check_reducible(const Communicator& communicator) const;
  void reduce_fast(Communicator& communicator, Stream& stream, const std::function<void()>& midway);
  void reduce_tree(Communicator& communicator, Stream& stream, const std::function<void()>& midway);
  void gather_slice(Communicator& communicator, Stream& stream, size_t first, size_t width, Floats& into);
  void fold_slice(Floats& slice, size_t first, size_t width);
  void gather_scalars(Communicator& communicator, Stream& stream, ReductionResult& total) const;
};

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

void GradientReduction::State::check_reducible(const Communicator& communicator) const {
  if (world_size == 0 || reduced || next_row != share_end()) {
    throw Error(Status::kFailedPrecondition,
                world_size == 0 || reduced
                    ? std::string("a reduction needs begin() first")
                    : fmt::format("the step is not complete: this rank's share is {}, but row {} has not "
                                  "been added",
                                  row_text(share), next_row));
  }
  if (communicator.world_size() != world_size) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the communicator has {} ranks, but the step was begun with world size {}",
                            communicator.world_size(), world_size));
  }
}

void GradientReduction::State::reduce_fast(Communicator& communicator, Stream& stream,
                                           const std::function<void()>& midway) {
  if (sums.empty()) push_sum(Floats(size), {});
  float* const sum = sums.front().data();
  const size_t half = size / 2;
  if (half > 0) communicator.all_reduce(sum, sum, half, DType::kF32, ReduceOp::kSum, stream);
  stream.synchronize();
  if (midway) midway();
  if (size > half) communicator.all_reduce(sum + half, sum + half, size - half, DType::kF32, ReduceOp::kSum, stream);
}

void GradientReduction::State::reduce_tree(Communicator& communicator, Stream& stream,
                                           const std::function<void()>& midway) {
  if (slots() <= 1 || size == 0) {  // one rank, or nothing to send
    if (midway) midway();
    if (sums.empty()) push_sum(Floats(size), {});
    return;
  }
  result.resize(size);
  const size_t width = std::min(size, std::max(kNarrowestSlice, kReceiveFloats / slots()));
  const size_t slices = (size + width - 1) / width;
  const auto width_of = [&](size_t slice) { return std::min(width, size - slice * width); };
  gather_slice(communicator, stream, 0, width_of(0), received[0]);
  for (size_t slice = 0; slice < slices; ++slice) {
    stream.synchronize();
    if (midway && slice == (slices - 1) / 2) midway();
    // The next slice travels while this one is folded.
    const size_t next = slice + 1;
    if (next < slices) gather_slice(communicator, stream, next * width, width_of(next), received[next % 2]);
    fold_slice(received[slice % 2], slice * width, width_of(slice));
  }
}

void GradientReduction::State::gather_slice(Communicator& communicator, Stream& stream, size_t first, size_t width,
                                            Floats& into) {
  if (into.size() < slots() * width) into.resize(slots() * width);
  const auto count = static_cast<size_t>(fold.roots_per_rank) * width;
  const float* from = nullptr;
  if (count == width && sums.size() == 1) {
    from = sums.front().data() + first;
  } else {
    // Ranks with fewer subtrees than others send slots that nobody reads.
    if (send.size() < count) send.resize(count);
    for (size_t k = 0; k < sums.size(); ++k) std::copy_n(sums[k].data() + first, width, send.data() + k * width);
    from = send.data();
  }
  communicator.all_gather(from, into.data(), count, DType::kF32, stream);
}

void GradientReduction::State::fold_slice(Floats& slice, size_t first, size_t width) {
  for (size_t begin = 0; begin < width; begin += kFoldBlock) {
    const size_t count = std::min(kFoldBlock, width - begin);
    for (const SlotAddition& addition : fold.additions) {
      add_to(slice.data() + addition.to * width + begin, slice.data() + addition.from * width + begin, count);
    }
    std::copy_n(slice.data() + fold.result * width + begin, count, result.data() + first + begin);
  }
}

void GradientReduction::State::gather_scalars(Communicator& communicator, Stream& stream,
                                              ReductionResult& total) const {
  // Per rank: loss tokens, digest, parts, then loss and norm of each of its slots. Carried as bits, added here.
  constexpr size_t kHead = 3;
  const auto roots = static_cast<size_t>(fold.roots_per_rank);
  const size_t words = 2 * roots + kHead;
  std::vector<int64_t> own(words);
  own[0] = loss_tokens;
  own[1] = std::bit_cast<int64_t>(digest);
  own[2] = parts;
  for (size_t k = 0; k < std::min(scalars.size(), roots); ++k) {
    own[kHead + 2 * k] = std::bit_cast<int64_t>(scalars[k].loss);
    own[kHead + 2 * k + 1] = std::bit_cast<int64_t>(scalars[k].norm);
  }
  std::vector<int64_t> all(words * static_cast<size_t>(world_size));
  try {
    communicator.all_gather(own.data(), all.data(), words, DType::kI64, stream);
    stream.synchronize();
  } catch (...) {
    drain(stream);
    throw;
  }
  std::vector<Scalars> of_slots;
  for (size_t at = 0; at < all.size(); at += words) {
    total.loss_tokens += all[at];
    total.digest += std::bit_cast<uint64_t>(all[at + 1]);
    total.parts += all[at + 2];
    for (size_t k = at + kHead; k < at + words; k += 2) {
      of_slots.push_back({std::bit_cast<double>(all[k]), std::bit_cast<double>(all[k + 1])});
    }
  }
  for (const SlotAddition& addition : fold.additions) of_slots[addition.to].add(of_slots[addition.from]);
  if (of_slots.empty()) return;
  total.loss_sum = of_slots[fold.result].loss;
  total.part_norms = of_slots[fold.result].norm;
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

ReductionResult GradientReduction::reduce(Communicator& communicator, Stream& stream,
                                          const std::function<void()>& midway) {
  State& state = *state_;
  state.check_reducible(communicator);
  state.reduced = true;
  try {
    if (state.deterministic) {
      state.reduce_tree(communicator, stream, midway);
    } else {
      state.reduce_fast(communicator, stream, midway);
    }
    ReductionResult total;
    state.gather_scalars(communicator, stream, total);
    const bool from_slices = state.deterministic && state.slots() > 1 && state.size > 0;
    total.gradient = from_slices ? state.result : state.sums.front();
    return total;
  } catch (...) {
    drain(stream);
    throw;
  }
}

}  // namespace pliant::elastic
