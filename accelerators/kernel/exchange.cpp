// The exchange of each collective.
#include "kernel/exchange.hpp"

#include <utility>

namespace pliant::accelerator {
namespace {

/// Copies that may be no copy at all: empty, or in place.
void copy_bytes(void* to, const void* from, uint64_t bytes) {
  if (bytes != 0 && to != from) std::memmove(to, from, bytes);
}

/// Even an empty call takes one tick, so that calls that differ between ranks are noticed.
uint64_t ticks_for(uint64_t count, uint64_t per_tick) {
  return std::max<uint64_t>(1, (count + per_tick - 1) / per_tick);
}

/// A call cut into ticks of equal size.
class Chunked : public Exchange {
 public:
  [[nodiscard]] uint64_t ticks() const override { return ticks_for(call_.elements.count, per_tick_); }

 protected:
  Chunked(const Call& call, const Group& group, uint64_t first_tick, uint64_t per_tick)
      : Exchange(call, group, first_tick), per_tick_(per_tick == 0 ? chunk_elements() : per_tick) {}
  /// Elements of `tick`, counted in the whole call.
  [[nodiscard]] Range range(uint64_t tick) const {
    const uint64_t first = std::min(tick * per_tick_, call_.elements.count);
    return {first, std::min(per_tick_, call_.elements.count - first)};
  }
  [[nodiscard]] ByteRange bytes_of(Range elements) const { return {elements.first * width_, elements.count * width_}; }
  /// The whole of what is posted in `tick`.
  [[nodiscard]] ByteRange all_of(uint64_t tick) const { return {0, range(tick).count * width_}; }
  const uint64_t per_tick_;
};

/// Every rank reduces one part of each chunk and the others take it from there: memory moves once, whatever the ranks.
class AllReduce final : public Chunked {
 public:
  AllReduce(const Call& call, const Group& group, uint64_t first_tick) : Chunked(call, group, first_tick, 0) {}
  [[nodiscard]] bool reduces() const override { return true; }

  void post(uint64_t tick) override {
    const Range all = range(tick);
    for (int32_t r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;  // the own part is read where it is
      const Range part = part_of(all.count, r);
      copy_bytes(slot(rank_, tick) + part.first * width_, send(all.first + part.first), part.count * width_);
    }
  }
  void reduce(uint64_t tick) override {
    const Range all = range(tick);
    const Range part = part_of(all.count, rank_);
    std::vector<const void*> inputs(static_cast<size_t>(ranks_));
    for (int32_t r = 0; r < ranks_; ++r) inputs[static_cast<size_t>(r)] = slot(r, tick) + part.first * width_;
    inputs[static_cast<size_t>(rank_)] = send(all.first + part.first);
    // Nobody posted into the own part of the own slot: it carries the result.
    deliver_reduced(std::move(inputs), part.count, recv(all.first + part.first),
                    slot(rank_, tick) + part.first * width_);
  }
  void take(uint64_t tick) override {
    const Range all = range(tick);
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      const Range part = part_of(all.count, r);
      deliver(recv(all.first + part.first), slot(r, tick) + part.first * width_, part.count * width_);
    }
  }
  [[nodiscard]] ByteRange posted_for(int32_t peer, uint64_t tick) const override {
    return bytes_of(part_of(range(tick).count, peer));
  }
  [[nodiscard]] ByteRange reduced_for(int32_t, uint64_t tick) const override {
    return bytes_of(part_of(range(tick).count, rank_));
  }
};

/// Few elements: every rank reduces everything for itself, which saves one of the two waits.
class SmallAllReduce final : public Chunked {
 public:
  /// Above this a second wait costs less than reading every rank's input. From `pliant accel bench`.
  static constexpr uint64_t kMostBytes = 8192;
  SmallAllReduce(const Call& call, const Group& group, uint64_t first_tick) : Chunked(call, group, first_tick, 0) {}

  void post(uint64_t tick) override {
    const Range all = range(tick);
    copy_bytes(slot(rank_, tick), send(all.first), all.count * width_);
  }
  void take(uint64_t tick) override {
    const Range all = range(tick);
    std::vector<const void*> inputs(static_cast<size_t>(ranks_));
    for (int32_t r = 0; r < ranks_; ++r) inputs[static_cast<size_t>(r)] = slot(r, tick);
    reduce_into(inputs, all.count, recv(all.first), nullptr);
  }
  [[nodiscard]] ByteRange posted_for(int32_t, uint64_t tick) const override { return all_of(tick); }
};

class AllGather final : public Chunked {
 public:
  AllGather(const Call& call, const Group& group, uint64_t first_tick) : Chunked(call, group, first_tick, 0) {}

  void post(uint64_t tick) override {
    const Range part = range(tick);
    copy_bytes(slot(rank_, tick), send(part.first), part.count * width_);
    deliver(recv(at(rank_, part)), send(part.first), part.count * width_);
  }
  void take(uint64_t tick) override {
    const Range part = range(tick);
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      deliver(recv(at(r, part)), slot(r, tick), part.count * width_);
    }
  }
  [[nodiscard]] ByteRange posted_for(int32_t, uint64_t tick) const override { return all_of(tick); }

 private:
  [[nodiscard]] uint64_t at(int32_t r, Range part) const {
    return static_cast<uint64_t>(r) * call_.elements.count + part.first;
  }
};

/// The ranks' parts differ in size: a tick takes a chunk of each that has one left.
class AllGatherV final : public Exchange {
 public:
  AllGatherV(const Call& call, const Group& group, uint64_t first_tick) : Exchange(call, group, first_tick) {
    begins_.push_back(0);
    for (const uint64_t count : call_.counts) begins_.push_back(begins_.back() + count);
  }
  [[nodiscard]] uint64_t ticks() const override {
    return ticks_for(*std::max_element(call_.counts.begin(), call_.counts.end()), chunk_elements());
  }
  void post(uint64_t tick) override {
    const Range part = range(rank_, tick);
    copy_bytes(slot(rank_, tick), send(part.first), part.count * width_);
    deliver(recv(at(rank_, part)), send(part.first), part.count * width_);
  }
  void take(uint64_t tick) override {
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      const Range part = range(r, tick);
      deliver(recv(at(r, part)), slot(r, tick), part.count * width_);
    }
  }
  [[nodiscard]] ByteRange posted_for(int32_t, uint64_t tick) const override {
    return {0, range(rank_, tick).count * width_};
  }

 private:
  /// Elements of rank r in `tick`, counted in its part.
  [[nodiscard]] Range range(int32_t r, uint64_t tick) const {
    const uint64_t count = call_.counts[static_cast<size_t>(r)];
    const uint64_t first = std::min(tick * chunk_elements(), count);
    return {first, std::min(chunk_elements(), count - first)};
  }
  [[nodiscard]] uint64_t at(int32_t r, Range part) const { return begins_[static_cast<size_t>(r)] + part.first; }
  std::vector<uint64_t> begins_;
};

/// A slot holds one piece for every rank.
class ReduceScatter final : public Chunked {
 public:
  ReduceScatter(const Call& call, const Group& group, uint64_t first_tick)
      : Chunked(call, group, first_tick, piece_elements(call, group)) {}

  void post(uint64_t tick) override {
    const Range piece = range(tick);
    for (int32_t r = 0; r < ranks_; ++r) {
      if (r == rank_) continue;
      copy_bytes(piece_of(rank_, r, tick), send(at(r, piece)), piece.count * width_);
    }
  }
  void take(uint64_t tick) override {
    const Range piece = range(tick);
    std::vector<const void*> inputs(static_cast<size_t>(ranks_));
    for (int32_t r = 0; r < ranks_; ++r) inputs[static_cast<size_t>(r)] = piece_of(r, rank_, tick);
    inputs[static_cast<size_t>(rank_)] = send(at(rank_, piece));
    deliver_reduced(std::move(inputs), piece.count, recv(piece.first), nullptr);
  }
  [[nodiscard]] ByteRange posted_for(int32_t peer, uint64_t tick) const override {
    return {static_cast<uint64_t>(peer) * per_tick_ * width_, range(tick).count * width_};
  }

 private:
  /// Whole cache lines; Segment::reserve saw to it that there is at least one.
  static uint64_t piece_elements(const Call& call, const Group& group) {
    const uint64_t lines = group.segment().chunk_bytes() / 64 / static_cast<uint64_t>(group.world_size());
    return lines * 64 / sdk::size_of(call.elements.dtype);
  }
  [[nodiscard]] std::byte* piece_of(int32_t from, int32_t to, uint64_t tick) const {
    return slot(from, tick) + static_cast<uint64_t>(to) * per_tick_ * width_;
  }
  [[nodiscard]] uint64_t at(int32_t r, Range piece) const {
    return static_cast<uint64_t>(r) * call_.elements.count + piece.first;
  }
};

class Broadcast final : public Chunked {
 public:
  Broadcast(const Call& call, const Group& group, uint64_t first_tick) : Chunked(call, group, first_tick, 0) {}
  [[nodiscard]] int32_t source() const override { return call_.rank; }

  void post(uint64_t tick) override {
    const Range part = range(tick);
    if (rank_ == call_.rank) copy_bytes(slot(rank_, tick), recv(part.first), part.count * width_);
  }
  void take(uint64_t tick) override {
    const Range part = range(tick);
    if (rank_ != call_.rank) deliver(recv(part.first), slot(call_.rank, tick), part.count * width_);
  }
  [[nodiscard]] ByteRange posted_for(int32_t, uint64_t tick) const override {
    return rank_ == call_.rank ? all_of(tick) : ByteRange{};
  }
};

class Barrier final : public Exchange {
 public:
  Barrier(const Call& call, const Group& group, uint64_t first_tick) : Exchange(call, group, first_tick) {}
  [[nodiscard]] uint64_t ticks() const override { return 1; }
  void post(uint64_t) override {}
  void take(uint64_t) override {}
};

}  // namespace

std::unique_ptr<Exchange> Exchange::of(const Call& call, const Group& group, uint64_t first_tick) {
  switch (call.kind) {
    case CallKind::kAllReduce:
      if (call.elements.bytes() <= std::min(SmallAllReduce::kMostBytes, group.segment().chunk_bytes())) {
        return std::make_unique<SmallAllReduce>(call, group, first_tick);
      }
      return std::make_unique<AllReduce>(call, group, first_tick);
    case CallKind::kAllGather:
      return std::make_unique<AllGather>(call, group, first_tick);
    case CallKind::kReduceScatter:
      return std::make_unique<ReduceScatter>(call, group, first_tick);
    case CallKind::kBroadcast:
      return std::make_unique<Broadcast>(call, group, first_tick);
    case CallKind::kAllGatherV:
      return std::make_unique<AllGatherV>(call, group, first_tick);
    case CallKind::kBarrier:
    case CallKind::kWindow:
    case CallKind::kSend:
    case CallKind::kRecv:
      break;
  }
  return std::make_unique<Barrier>(call, group, first_tick);
}

}  // namespace pliant::accelerator
