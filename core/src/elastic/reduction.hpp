// GradientReduction: adds the gradients of a step over micro-batches and ranks, on a device and in one of two ways.
//
// Fast: each rank adds its micro-batches, and all-reduces of buckets add the ranks: from the last element to the first,
// as backward passes come to them, so that a bucket may travel while the gradient before it is still computed.
// Deterministic: the addends are granules, and they are added along one fixed binary tree over all granules of the
// global batch: node (level l, index i) covers granules [i*2^l, (i+1)*2^l) and is left + right, or the one child that
// exists. A rank sums the largest subtrees whose granules it has all; only their roots travel. The result is bitwise
// the same at every world size and for every assignment. So are the norms of the parts, which are granules there and
// micro-batches in fast mode.
// Runs of granules have few roots, O(log granules) a rank. An assignment that scatters them has up to as many as a rank
// has granules, and each is a gradient to keep and to send.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "pliant/balancer.hpp"
#include "pliant/communicator.hpp"
#include "pliant/gradient_piece.hpp"
#include "pliant/plan.hpp"

namespace pliant::elastic {

struct ReductionResult {
  std::span<float> gradient;  ///< sum over the global batch, on the device; valid until the next begin
  double loss_sum = 0;
  int64_t loss_tokens = 0;
  uint64_t digest = 0;    ///< sum modulo 2^64 of the ranks' digests
  int64_t parts = 0;      ///< addends with loss tokens
  double part_norms = 0;  ///< sum over them of |their gradient|^2 / their loss tokens; 0 unless measure_parts was set
  bool finite = true;     ///< gradient and loss; the same on all ranks. Also where nobody looked
  std::vector<RowRange> not_finite;  ///< of this rank: rows whose gradient or loss has a NaN or an infinity
  /// Of this rank: rows whose gradients add up to a NaN or an infinity, where it is not known which of them has one.
  std::vector<RowRange> sum_not_finite;
  bool own_sum_overflows = false;  ///< that of this rank is not finite, although each of its rows is
};

class GradientReduction {
 public:
  /// The sums are made and kept on `device` of `accelerator`, by work on `stream`, which is of that device and outlives
  /// this: gradients are read in order with what else is enqueued there.
  GradientReduction(const Accelerator& accelerator, int32_t device, Stream& stream, uint64_t gradient_size,
                    bool deterministic);
  ~GradientReduction();
  GradientReduction(GradientReduction&&) noexcept;

  /// From the next begin() on, the squared norm of every addend is taken: one more pass over it. `parameters`: elements
  /// of those that the gradient consists of, in order, gradient_size in all; none is one. Where the gradient is added
  /// up elsewhere (gradient_size 0) they are its elements, and measure() gets them.
  void measure_parts(bool on, std::span<const uint64_t> parameters = {});

  /// Elements [offset, offset + values.size()) of the gradient of this rank's block `block`, the next one or a later
  /// one, each of which comes once.
  void measure(size_t block, uint64_t offset, std::span<const float> values);

  /// From the next begin() on, NaN and infinities are looked for. On a device that is one more pass over every piece,
  /// and one over the sums of this rank. A device without a kernel for squared norms tells its rows together.
  void look_for_not_finite(bool on);

  /// From the next begin() on, fast mode reduces buckets of `elements`, or of half the gradient where that is less; the
  /// same on all ranks. 0: begin_buckets() does nothing.
  void reduce_buckets(uint64_t elements);

  /// Forgets the last step. None of its buckets may be under way. `rows`: rows of the (possibly short) global batch;
  /// `assignment` has each in one block, and is the same on all ranks. Deterministic: its blocks are granules, each
  /// rank's in the order of the batch. Throws kInvalidArgument for another one.
  void begin(int64_t rows, int64_t granule, const Assignment& assignment, int64_t rank);

  /// Throws kInvalidArgument unless `rows` are the next block of this rank (positions in the global batch).
  void check(RowRange rows) const;
  /// And unless `piece` lies in the gradient and none of it was added before.
  void check(RowRange rows, const GradientPiece& piece) const;
  /// And unless `gradient` is all of it.
  void check(RowRange rows, std::span<const float> gradient) const;

  /// Adds a part of the gradient of the next block of this rank. What the CPU can read has been read when this returns;
  /// what it cannot is read when the stream comes to it, except where parts are measured. Throws what check throws, and
  /// kInvalidArgument for memory that the device cannot use, as MemoryCheck tells; it has changed nothing then.
  void add_piece(RowRange rows, const GradientPiece& piece);
  /// Ends that block. Throws kInvalidArgument, and changes nothing, where a part of the gradient is missing.
  void add(RowRange rows, double loss_sum, int64_t loss_tokens, uint64_t digest);
  /// Both, for a block of which no piece was added.
  void add(RowRange rows, double loss_sum, int64_t loss_tokens, uint64_t digest, std::span<const float> gradient);

  /// True when all blocks of this rank have been added.
  [[nodiscard]] bool complete() const;

  /// Fast mode, where the CPU computes: enqueues the reduction of the next buckets whose part of this rank's last block
  /// is there. Ranks need not do it at the same time, or at all: the buckets and their order are the same. Does nothing
  /// where all of the gradient is there, for reduce() is next. What fails is thrown by that. True where the first one
  /// of the step was enqueued.
  bool begin_buckets(Communicator& communicator, Stream& stream);
  /// Buckets are under way: from the first one until reduce() returns or throws, or drop_buckets().
  [[nodiscard]] bool has_begun() const;
  /// Of a communicator that was aborted: waits until none of them is under way. begin() is next.
  void drop_buckets(Stream& stream) noexcept;

  /// Runs the collectives and waits. `midway` is called once about half way (fault injection). Throws what the
  /// communicator throws (kAborted, kPeerLost); then begin() starts afresh. `stream` is of the same device. Memory
  /// beside the gradients: O(slice * world * roots of a rank).
  ReductionResult reduce(Communicator& communicator, Stream& stream, const std::function<void()>& midway);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant::elastic
