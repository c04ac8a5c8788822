// What a GradientReduction holds, shared by its two halves: sums of the own share, and the collectives.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/device_look.hpp"
#include "accelerator/device_sums.hpp"
#include "elastic/memory_check.hpp"
#include "elastic/piecewise_norm.hpp"
#include "elastic/reduction.hpp"
#include "plan/reduction_tree.hpp"
#include "pliant/error.hpp"

namespace pliant::elastic {

/// Memory of the device, as floats.
class Floats {
 public:
  Floats() = default;
  Floats(const Accelerator& accelerator, int32_t device, size_t count)
      : buffer_(accelerator, device, count * sizeof(float)), size_(count) {}
  [[nodiscard]] float* data() const { return static_cast<float*>(buffer_.pointer()); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  Buffer buffer_;
  size_t size_ = 0;
};

/// Which elements of a gradient are there: disjoint ranges.
class Coverage {
 public:
  void clear() {
    ranges_.clear();
    count_ = 0;
  }
  [[nodiscard]] uint64_t count() const { return count_; }
  /// One of [offset, offset + count) is there. count > 0.
  [[nodiscard]] bool overlaps(uint64_t offset, uint64_t count) const {
    const auto after = ranges_.lower_bound(offset + count);
    return after != ranges_.begin() && std::prev(after)->second > offset;
  }
  /// They are not.
  void insert(uint64_t offset, uint64_t count) {
    ranges_.emplace(offset, offset + count);
    count_ += count;
  }
  /// The first range of [0, size) that is not there, as first and end; empty where all is.
  [[nodiscard]] std::pair<uint64_t, uint64_t> first_gap(uint64_t size) const {
    uint64_t next = 0;
    for (const auto& [first, end] : ranges_) {
      if (first > next) return {next, first};
      next = end;
    }
    return {next, size};
  }

 private:
  std::map<uint64_t, uint64_t> ranges_;  ///< first -> end
  uint64_t count_ = 0;
};

struct GradientReduction::State {
  State(const Accelerator& of, int32_t number, Stream& stream, uint64_t gradient_size, bool in_fixed_order)
      : accelerator(of),
        device(number),
        size(static_cast<size_t>(gradient_size)),
        deterministic(in_fixed_order),
        memory(of, number),
        look(of, number, stream, size),
        work(of, number, stream) {}

  /// What is added up beside the gradient, along the same tree.
  struct Scalars {
    double loss = 0;
    double norm = 0;  ///< ReductionResult::part_norms
    void add(const Scalars& other) {
      loss += other.loss;
      norm += other.norm;
    }
  };

  /// The block of this rank whose pieces arrive.
  struct Open {
    bool is = false;
    bool in_place = false;  ///< its gradient goes into the last sum, and not into one of its own
    Coverage there{};
    bool finite = true;
    std::vector<size_t> missing{};  ///< of each bucket, elements that are not there; only of the last block
  };

  Accelerator accelerator;
  int32_t device;
  const size_t size;
  const bool deterministic;
  const MemoryCheck memory;
  bool measured = false;
  bool looked_at = false;  ///< for NaN and infinities

  int64_t rows = 0;
  int64_t granule = 1;
  int64_t world_size = 0;        ///< 0: begin has not been called
  std::vector<RowRange> blocks;  ///< of this rank, in the order in which they are added
  size_t added = 0;              ///< of them
  bool reduced = false;
  size_t wanted_bucket = 0;               ///< elements; 0: none begins before reduce()
  size_t begun = 0;                       ///< buckets that were enqueued
  std::optional<Error> failed_beginning;  ///< what the next one met
  bool own_sum_is_finite = true;          ///< as far as it was enqueued, or nobody looks

  int64_t loss_tokens = 0;
  uint64_t digest = 0;
  int64_t parts = 0;
  std::vector<RowRange> not_finite;      ///< of the blocks that were added
  std::vector<RowRange> sum_not_finite;  ///< all of them, or none
  bool own_sum_overflows = false;
  TreeStack tree;
  std::vector<Floats> sums;      ///< of the own subtrees; fast: at most one
  std::vector<Scalars> scalars;  ///< likewise
  std::vector<Floats> spare;     ///< kept so that steps do not allocate
  Open open;
  std::vector<float> measured_piece;       ///< on the host
  PiecewiseNorm norm;                      ///< of what is open; where it is measured
  std::vector<PiecewiseNorm> later_norms;  ///< of the blocks after it; those that measure() was told of
  Floats cast;                             ///< of 16-bit pieces
  FoldPlan fold;

  Floats send;
  std::array<Floats, 2> received;
  Buffer scalars_there;     ///< own and all, on the device
  detail::DeviceLook look;  ///< where the CPU does not compute: at what it cannot read, or had better not

  detail::DeviceSums work;  ///< last: it waits for what it has enqueued before the memory goes

  [[nodiscard]] bool complete() const { return world_size > 0 && added == blocks.size(); }
  [[nodiscard]] size_t slots() const { return static_cast<size_t>(world_size * fold.roots_per_rank); }

  /// Fresh memory. Throws kResourceExhausted and says what it was for.
  [[nodiscard]] Floats take_floats(size_t count) const;
  /// Nothing enqueued uses `floats`.
  void grow(Floats& floats, size_t count) const {
    if (floats.size() >= count) return;
    floats = Floats();
    floats = take_floats(count);
  }

  void retire_last() {
    spare.push_back(std::move(sums.back()));
    sums.pop_back();
    scalars.pop_back();
  }
  /// One more sum, whose elements are whatever they are.
  void push_sum() {
    if (spare.empty()) spare.push_back(take_floats(size));
    sums.push_back(std::move(spare.back()));
    spare.pop_back();
    scalars.emplace_back();
  }
  void push_zero() {
    push_sum();
    work.zero(sums.back().data(), size);
    work.finish();
  }

  /// Of a block that is not closed.
  [[nodiscard]] PiecewiseNorm& norm_of(size_t block);
  /// That of the open block is over; the next one's is open.
  void next_norm();
  void begin(int64_t batch_rows, int64_t rows_per_granule, const Assignment& assignment, int64_t rank);
  void plan_fold(const Assignment& assignment);
  void check(RowRange given) const;
  void check(RowRange given, const GradientPiece& piece) const;
  void open_block(RowRange rows_of_it);
  /// Throws kInvalidArgument for memory that is none for this device.
  [[nodiscard]] MemoryCheck::Finding check_memory(RowRange rows_of_it, const GradientPiece& piece) const;
  void add_piece(const GradientPiece& piece, const MemoryCheck::Finding& found);
  /// Reads it into the sum: at once where the CPU computes, else when the stream comes to it. `looks`: the device looks
  /// at it, too.
  void take(const GradientPiece& piece, bool looks);
  void close_block(RowRange rows_of_it, const Scalars& beside);
  /// Where one of the own sums is not finite and rows are not known that have brought that: of a device that the CPU
  /// does not reach, the rows that are not, or all of this rank's where the device could not look at them one by one.
  /// The sum overflows where each of them is.
  void look_at_own_sums();

  /// Elements of a bucket, of which the last one may have fewer.
  [[nodiscard]] size_t bucket_width() const;
  [[nodiscard]] size_t buckets() const;
  /// The first element of bucket `number` and the one after its last.
  [[nodiscard]] std::pair<size_t, size_t> bucket(size_t number) const;
  /// What of the open block is there is missing no more.
  void note_for_buckets(size_t offset, size_t count);
  /// May be called where this rank's sums are whole there.
  void begin_bucket(Communicator& communicator, Stream& stream);
  bool begin_buckets(Communicator& communicator, Stream& stream);
  void check_reducible(const Communicator& communicator) const;
  void reduce_fast(Communicator& communicator, Stream& stream, const std::function<void()>& midway);
  void reduce_tree(Communicator& communicator, Stream& stream, const std::function<void()>& midway);
  void gather_slice(Communicator& communicator, Stream& stream, size_t first, size_t width, Floats& into);
  void fold_slice(const Floats& slice, size_t first, size_t width);
  void gather_scalars(Communicator& communicator, Stream& stream, ReductionResult& total);
};

}  // namespace pliant::elastic
