// Exchange: one collective call as a sequence of ticks. In every tick each rank posts into its slot, reduces its part
// of what all have posted, and takes the results.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "common/cpu/arithmetic.hpp"
#include "common/cpu/streamed_copy.hpp"
#include "common/cpu/streamed_sum.hpp"
#include "common/exchange/collectives.hpp"

namespace pliant::accelerator {

struct Range {
  uint64_t first = 0;
  uint64_t count = 0;
};

/// Ticks count from 0 within the call; the slots of tick t are those of group tick first_tick + t.
class Exchange {
 public:
  virtual ~Exchange() = default;
  [[nodiscard]] virtual uint64_t ticks() const = 0;
  /// False: results are taken right after all have posted.
  [[nodiscard]] virtual bool reduces() const { return false; }
  /// After the last take: this rank goes on only when all have taken, too.
  [[nodiscard]] virtual bool leaves_together() const { return false; }
  /// The only rank whose post is taken, or -1 for all.
  [[nodiscard]] virtual int32_t source() const { return -1; }
  virtual void post(uint64_t tick) = 0;
  virtual void reduce(uint64_t) {}
  virtual void take(uint64_t tick) = 0;
  /// What of the own slot `peer` takes after post, and after reduce.
  [[nodiscard]] virtual ByteRange posted_for(int32_t, uint64_t) const { return {}; }
  [[nodiscard]] virtual ByteRange reduced_for(int32_t, uint64_t) const { return {}; }

  /// The exchange that serves `call`.
  static std::unique_ptr<Exchange> of(const Call& call, const Group& group, uint64_t first_tick);

 protected:
  Exchange(const Call& call, const Group& group, uint64_t first_tick)
      : call_(call),
        rank_(group.rank()),
        ranks_(group.world_size()),
        width_(sdk::size_of(call.elements.dtype)),
        streamed_(is_streamed(call, ranks_)),
        segment_(group.segment()),
        first_tick_(first_tick) {}

  [[nodiscard]] std::byte* slot(int32_t rank, uint64_t tick) const { return segment_.slot(rank, first_tick_ + tick); }
  /// `element` of what lies in it.
  [[nodiscard]] std::byte* in_slot(int32_t rank, uint64_t tick, uint64_t element) const {
    return slot(rank, tick) + element * width_;
  }
  [[nodiscard]] const std::byte* send(uint64_t element) const {
    return static_cast<const std::byte*>(call_.send) + element * width_;
  }
  [[nodiscard]] std::byte* recv(uint64_t element) const {
    return static_cast<std::byte*>(call_.recv) + element * width_;
  }
  /// Of `all` elements, those that rank r reduces for everyone; they begin on a cache line.
  [[nodiscard]] Range part_of(uint64_t all, int32_t r) const {
    const uint64_t line = 64 / width_;
    const auto ranks = static_cast<uint64_t>(ranks_);
    const uint64_t size = ((all + ranks - 1) / ranks + line - 1) / line * line;
    const uint64_t first = std::min(static_cast<uint64_t>(r) * size, all);
    return {first, std::min(size, all - first)};
  }
  [[nodiscard]] const sdk::PieceTable& pieces() const { return *call_.pieces; }
  [[nodiscard]] bool adds(int32_t r) const { return call_.adds[static_cast<size_t>(r)] != 0; }
  [[nodiscard]] uint64_t chunk_elements() const { return segment_.chunk_bytes() / width_; }
  void reduce_into(const std::vector<const void*>& inputs, uint64_t count, void* out, void* also) const {
    accelerator::reduce(call_.elements.dtype, call_.op, inputs, 1, count, out, also);
  }
  /// Reduces into recv, and into `also` unless that is NULL.
  void deliver_reduced(std::vector<const void*> inputs, uint64_t count, std::byte* to, std::byte* also) const {
    if (!streamed_) return reduce_into(inputs, count, to, also);
    if (call_.elements.dtype == sdk::DType::kF32 && call_.op == sdk::ReduceOp::kSum && has_streamed_sum(to)) {
      streamed_sum(inputs, count, reinterpret_cast<float*>(to), reinterpret_cast<float*>(also));
      return end_streaming();
    }
    constexpr uint64_t kBlockBytes = 2048;  // stays in the first-level cache; as far as is worth asking ahead
    alignas(64) std::byte block[kBlockBytes];
    for (uint64_t done = 0; done < count;) {
      const uint64_t n = std::min(kBlockBytes / width_, count - done);
      const uint64_t next = std::min(kBlockBytes / width_, count - done - n) * width_;
      for (const void*& input : inputs) {
        prefetch(static_cast<const std::byte*>(input) + n * width_, next);
      }
      reduce_into(inputs, n, block, also == nullptr ? nullptr : also + done * width_);
      streamed_copy(to + done * width_, block, n * width_);
      for (const void*& input : inputs) input = static_cast<const std::byte*>(input) + n * width_;
      done += n;
    }
  }
  /// Copies into recv; that may be no copy at all: empty, or in place.
  void deliver(std::byte* to, const std::byte* from, uint64_t bytes) const {
    if (bytes == 0 || to == from) return;
    if (streamed_) return streamed_copy(to, from, bytes);
    std::memmove(to, from, bytes);
  }

  const Call call_;
  const int32_t rank_;
  const int32_t ranks_;
  const uint64_t width_;  ///< bytes of an element
  const bool streamed_;   ///< recv is too large for the caches

  /// A recv of so many bytes would push the slots out of the caches.
  static bool is_streamed(const Call& call, int32_t ranks) {
    constexpr uint64_t kLeast = uint64_t{4} << 20U;
    if (call.kind == CallKind::kBroadcast || call.kind == CallKind::kReduceScatter ||
        call.kind == CallKind::kAllReduce) {
      return call.elements.bytes() >= kLeast;
    }
    if (call.gathers_pieces()) return call.pieces->total() * sdk::size_of(call.elements.dtype) >= kLeast;
    if (call.kind == CallKind::kScatterPieces)
      return call.elements.bytes() * static_cast<uint64_t>(ranks - 1) >= kLeast;
    return call.kind == CallKind::kAllGather && call.elements.bytes() * static_cast<uint64_t>(ranks) >= kLeast;
  }

 private:
  /// Asks for memory that is read soon: processors do not look beyond a page by themselves.
  static void prefetch(const std::byte* from, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at);
  }

  const Segment& segment_;
  const uint64_t first_tick_;
};

}  // namespace pliant::accelerator
