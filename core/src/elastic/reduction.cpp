// GradientReduction: sums of the own share as they arrive.
#include "elastic/reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "elastic/reduction_state.hpp"
#include "pliant/error.hpp"
#include "pliant/sdk/accelerator.hpp"

namespace pliant::elastic {

namespace {

/// "elements 4..7".
std::string element_text(uint64_t first, uint64_t end) {
  if (end - first == 1) return fmt::format("element {}", first);
  return fmt::format("elements {}..{}", first, end - 1);
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
              granule == 0
                  ? fmt::format("an assignment must have each of {} rows in exactly one block", rows)
                  : fmt::format("an assignment must have each of {} rows in exactly one block; in deterministic mode "
                                "blocks are granules of {}, on each rank in the order of the batch",
                                rows, granule));
}

}  // namespace

Floats GradientReduction::State::take_floats(size_t count) const {
  try {
    return {accelerator, device, count};
  } catch (const Error& error) {
    if (error.status() != Status::kResourceExhausted) throw;
    throw error.with_message("no memory for adding up gradients: " + error.message()).about_device(device);
  }
}

void GradientReduction::State::begin(int64_t batch_rows, int64_t rows_per_granule, const Assignment& assignment,
                                     int64_t rank) {
  const int64_t ranks = assignment.world_size();
  if (batch_rows < 0 || rows_per_granule < 1 || ranks < 1 || rank < 0 || rank >= ranks) {
    throw Error(Status::kInvalidArgument,
                fmt::format("cannot begin a reduction with {} rows, granule {}, world size {}, rank {}; needed: rows "
                            ">= 0, granule >= 1, 0 <= rank < world size",
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
  not_finite.clear();
  sum_not_finite.clear();
  own_sum_overflows = false;
  begun = 0;
  failed_beginning.reset();
  own_sum_is_finite = true;
  open = {};
  norm.clear();
  for (PiecewiseNorm& one : later_norms) one.clear();
  look.begin(blocks.size());
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

void GradientReduction::State::check(RowRange given) const {
  if (added < blocks.size() && given == blocks[added]) return;
  const std::string expected =
      added == blocks.size()
          ? fmt::format("all {} micro-batches of this rank were added already", blocks.size())
          : fmt::format("micro-batch {} of {} of this rank is next, {}", added, blocks.size(), row_text(blocks[added]));
  throw Error(Status::kInvalidArgument,
              fmt::format("the gradient of {} is out of order: {}; add each micro-batch of the step once and in order",
                          row_text(given), expected));
}

void GradientReduction::State::check(RowRange given, const GradientPiece& piece) const {
  check(given);
  const auto refuse = [&](const std::string& what) {
    throw Error(Status::kInvalidArgument, fmt::format("a piece of the gradient of {} {}", row_text(given), what));
  };
  if (piece.offset > size || piece.count > size - piece.offset) {
    refuse(fmt::format("has {} elements at {}, but gradient_size() said {}", piece.count, piece.offset, size));
  }
  if (piece.dtype != DType::kF32 && piece.dtype != DType::kBF16 && piece.dtype != DType::kF16) {
    refuse(fmt::format("has the type {}; gradients have kF32, kBF16 or kF16", static_cast<int>(piece.dtype)));
  }
  if (piece.count == 0) return;
  const uint64_t end = piece.offset + piece.count;
  if (piece.data == nullptr) refuse(fmt::format("is a null pointer: {}", element_text(piece.offset, end)));
  if (open.there.overlaps(piece.offset, piece.count)) {
    refuse(fmt::format("overlaps a piece that was added before: {}", element_text(piece.offset, end)));
  }
}

void GradientReduction::State::open_block(RowRange rows_of_it) {
  if (open.is) return;
  const bool in_place = deterministic ? tree.merges({0, rows_of_it.first / granule}) : !sums.empty();
  if (!in_place) push_sum();
  open = {.is = true, .in_place = in_place};
  if (deterministic || wanted_bucket == 0 || world_size == 1 || added + 1 < blocks.size()) return;
  for (size_t i = 0; i < buckets(); ++i) open.missing.push_back(bucket(i).second - bucket(i).first);
}

MemoryCheck::Finding GradientReduction::State::check_memory(RowRange rows_of_it, const GradientPiece& piece) const {
  if (piece.count == 0) return {};
  const uint64_t bytes = piece.count * sdk::size_of(static_cast<sdk::DType>(piece.dtype));
  MemoryCheck::Finding found = memory.look_at(piece.data, bytes);
  if (found.refusal.empty()) return found;
  throw Error(Status::kInvalidArgument,
              fmt::format("a piece of the gradient of {} {}: {}", row_text(rows_of_it), found.refusal,
                          element_text(piece.offset, piece.offset + piece.count)));
}

void GradientReduction::State::add_piece(const GradientPiece& piece, const MemoryCheck::Finding& found) {
  if (piece.count == 0) return;
  // A norm is taken of a copy on the host, which the next piece overwrites.
  const bool waits = found.is_for_cpu || measured;
  // Devices read no plain memory, and what is copied for a norm anyway is soon looked at.
  const bool is_plain = piece.dtype == DType::kF32 && !found.is_known;
  const bool looks_later = looked_at && !work.is_here() && (measured || is_plain);
  try {
    if (work.is_here()) work.synchronize();  // the device may still have to write the piece
    take(piece, looked_at && !looks_later);
    if (waits) work.finish();
  } catch (...) {
    work.drain();
    throw;
  }
  if (looks_later) {
    const auto* const values = measured ? measured_piece.data() : static_cast<const float*>(piece.data);
    open.finite = detail::DeviceSums::finite_here(values, static_cast<size_t>(piece.count)) && open.finite;
  }
  if (measured) norm.add(piece.offset, measured_piece);
  open.there.insert(piece.offset, piece.count);
  note_for_buckets(static_cast<size_t>(piece.offset), static_cast<size_t>(piece.count));
}

void GradientReduction::State::take(const GradientPiece& piece, bool looks) {
  const auto count = static_cast<size_t>(piece.count);
  float* const to = sums.back().data() + piece.offset;
  const void* from = piece.data;
  if (piece.dtype != DType::kF32) {
    if (cast.size() < count) work.finish();  // pieces before may still be read from what it has now
    grow(cast, count);
    work.cast(cast.data(), from, piece.dtype, count);
    from = cast.data();
  }
  if (measured) {
    measured_piece.resize(count);
    work.copy(measured_piece.data(), from, count * sizeof(float));
  }
  if (looks && !work.is_here()) static_cast<void>(look.add(static_cast<const float*>(from), count));
  for (size_t begin = 0, block = work.block(count); begin < count; begin += block) {
    const size_t several = std::min(block, count - begin);
    const float* const part = static_cast<const float*>(from) + begin;
    if (looks && work.is_here() && !work.finite(part, several)) open.finite = false;
    if (open.in_place) {
      work.add(to + begin, part, several);
    } else {
      work.copy(to + begin, part, several * sizeof(float));
    }
  }
}

void GradientReduction::State::look_at_own_sums() {
  if (!deterministic && work.is_here()) return;  // at each bucket, before it travels
  if (!looked_at || (work.is_here() && (blocks.size() < 2 || !not_finite.empty()))) return;
  const bool finite =
      std::all_of(sums.begin(), sums.end(), [this](const Floats& sum) { return work.finite(sum.data(), size); });
  if (finite) return;
  if (work.is_here()) {
    own_sum_overflows = true;
    return;
  }
  const auto found = look.not_finite();
  if (!found) {
    sum_not_finite = blocks;
    return;
  }
  own_sum_overflows = found->empty();
  for (const size_t block : *found) {
    if (std::find(not_finite.begin(), not_finite.end(), blocks[block]) == not_finite.end())
      not_finite.push_back(blocks[block]);
  }
}

void GradientReduction::State::close_block(RowRange rows_of_it, const Scalars& beside) {
  look.close(added);
  if (looked_at && (!open.finite || !std::isfinite(beside.loss))) not_finite.push_back(rows_of_it);
  if (!open.in_place) scalars.back() = beside;
  if (!deterministic && open.in_place) scalars.back().add(beside);
  if (deterministic) {
    bool is_added = open.in_place;
    tree.push({0, rows_of_it.first / granule}, [&] {
      if (is_added) {
        scalars.back().add(beside);
        is_added = false;
        return;
      }
      work.add(sums[sums.size() - 2].data(), sums.back().data(), size);
      scalars[scalars.size() - 2].add(scalars.back());
      retire_last();
    });
  }
  open = {};
  if (measured) next_norm();
}

PiecewiseNorm& GradientReduction::State::norm_of(size_t block) {
  if (block <= added) return norm;
  while (later_norms.size() < block - added) {
    later_norms.push_back(norm);
    later_norms.back().clear();
  }
  return later_norms[block - added - 1];
}

void GradientReduction::State::next_norm() {
  norm.clear();
  if (later_norms.empty()) return;
  std::swap(norm, later_norms.front());
  std::rotate(later_norms.begin(), later_norms.begin() + 1, later_norms.end());
}

GradientReduction::GradientReduction(const Accelerator& accelerator, int32_t device, Stream& stream,
                                     uint64_t gradient_size, bool deterministic)
    : state_(std::make_unique<State>(accelerator, device, stream, gradient_size, deterministic)) {}
GradientReduction::~GradientReduction() = default;
GradientReduction::GradientReduction(GradientReduction&&) noexcept = default;

void GradientReduction::measure_parts(bool on, std::span<const uint64_t> parameters) {
  const std::array<uint64_t, 1> whole{state_->size};
  state_->measured = on;
  state_->norm = PiecewiseNorm(parameters.empty() ? std::span<const uint64_t>(whole) : parameters);
  state_->later_norms.clear();
}

void GradientReduction::measure(size_t block, uint64_t offset, std::span<const float> values) {
  state_->norm_of(block).add(offset, values);
}

void GradientReduction::look_for_not_finite(bool on) {
  state_->looked_at = on;
}

void GradientReduction::reduce_buckets(uint64_t elements) {
  state_->wanted_bucket = static_cast<size_t>(elements);
}

void GradientReduction::begin(int64_t rows, int64_t granule, const Assignment& assignment, int64_t rank) {
  state_->begin(rows, granule, assignment, rank);
}

void GradientReduction::check(RowRange rows) const {
  state_->check(rows);
}

void GradientReduction::check(RowRange rows, const GradientPiece& piece) const {
  state_->check(rows, piece);
}

void GradientReduction::check(RowRange rows, std::span<const float> gradient) const {
  const State& state = *state_;
  if (gradient.size() != state.size) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the gradient of {} has {} elements, but gradient_size() said {}; pass the whole gradient",
                            row_text(rows), gradient.size(), state.size));
  }
  if (gradient.data() == nullptr && state.size > 0) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the gradient of {} is a null pointer; pass its {} floats", row_text(rows), state.size));
  }
  state.check(rows, {.offset = 0, .count = gradient.size(), .data = gradient.data()});
}

void GradientReduction::add_piece(RowRange rows, const GradientPiece& piece) {
  state_->check(rows, piece);
  const MemoryCheck::Finding found = state_->check_memory(rows, piece);
  state_->open_block(rows);
  state_->add_piece(piece, found);
}

void GradientReduction::add(RowRange rows, double loss_sum, int64_t loss_tokens, uint64_t digest) {
  State& state = *state_;
  state.check(rows);
  if (state.open.there.count() != state.size) {
    const auto [first, end] = state.open.there.first_gap(state.size);
    throw Error(Status::kInvalidArgument,
                fmt::format("the gradient of {} lacks {} of {}; add every piece before the micro-batch ends",
                            row_text(rows), element_text(first, end), state.size));
  }
  state.open_block(rows);
  const bool counts = state.measured && loss_tokens > 0;
  state.close_block(rows, {loss_sum, counts ? state.norm.sum() / static_cast<double>(loss_tokens) : 0});
  if (loss_tokens > 0) ++state.parts;
  ++state.added;
  state.loss_tokens += loss_tokens;
  state.digest += digest;
}

void GradientReduction::add(RowRange rows, double loss_sum, int64_t loss_tokens, uint64_t digest,
                            std::span<const float> gradient) {
  check(rows, gradient);
  add_piece(rows, {.offset = 0, .count = gradient.size(), .data = gradient.data()});
  add(rows, loss_sum, loss_tokens, digest);
}

bool GradientReduction::complete() const {
  return state_->complete();
}

bool GradientReduction::begin_buckets(Communicator& communicator, Stream& stream) {
  return state_->begin_buckets(communicator, stream);
}

bool GradientReduction::has_begun() const {
  return state_->begun > 0 && !state_->reduced;
}

}  // namespace pliant::elastic
