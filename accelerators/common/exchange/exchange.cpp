// The exchange of each collective.
#include "common/exchange/exchange.hpp"

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

/// The ranks' pieces differ in size: a tick takes a chunk of each that has some left.
class GatherPieces final : public Exchange {
 public:
  GatherPieces(const Call& call, const Group& group, uint64_t first_tick) : Exchange(call, group, first_tick) {}
  [[nodiscard]] uint64_t ticks() const override { return ticks_for(pieces().most_owned(), chunk_elements()); }

  void post(uint64_t tick) override {
    const Range own = range(rank_, tick);
    const bool is_in_place = call_.send == nullptr;
    if (!is_in_place) copy_bytes(slot(rank_, tick), send(own.first), own.count * width_);
    pieces().each(rank_, own.first, own.count, [&](const sdk::PieceTable::Piece& one) {
      if (is_in_place) {
        copy_bytes(in_slot(rank_, tick, one.packed - own.first), recv(one.offset), one.count * width_);
      } else {
        deliver(recv(one.offset), send(one.packed), one.count * width_);
      }
    });
  }
  void take(uint64_t tick) override {
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      const Range theirs = range(r, tick);
      pieces().each(r, theirs.first, theirs.count, [&](const sdk::PieceTable::Piece& one) {
        deliver(recv(one.offset), in_slot(r, tick, one.packed - theirs.first), one.count * width_);
      });
    }
  }
  [[nodiscard]] ByteRange posted_for(int32_t, uint64_t tick) const override {
    return {0, range(rank_, tick).count * width_};
  }

 private:
  /// Elements of rank r in `tick`, counted in its pieces.
  [[nodiscard]] Range range(int32_t r, uint64_t tick) const {
    const uint64_t count = pieces().owned(r);
    const uint64_t first = std::min(tick * chunk_elements(), count);
    return {first, std::min(chunk_elements(), count - first)};
  }
};

/// Each rank that adds sends what others own in one row: first what the next rank owns, last what the one before does,
/// so that not all ranks take from the same one at once. A tick takes a chunk of every row.
class ScatterPieces final : public Exchange {
 public:
  ScatterPieces(const Call& call, const Group& group, uint64_t first_tick) : Exchange(call, group, first_tick) {
    owned_before_.push_back(0);
    for (int32_t r = 0; r < ranks_; ++r) owned_before_.push_back(owned_before_.back() + pieces().owned(r));
  }
  [[nodiscard]] uint64_t ticks() const override {
    uint64_t longest = 0;
    for (int32_t r = 0; r < ranks_; ++r) longest = std::max(longest, row_of(r));
    return ticks_for(longest, chunk_elements());
  }

  void post(uint64_t tick) override {
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      const Part part = part_of_row(rank_, r, tick);
      pieces().each(r, part.packed, part.count, [&](const sdk::PieceTable::Piece& one) {
        copy_bytes(in_slot(rank_, tick, part.in_slot + one.packed - part.packed), send(one.offset), one.count * width_);
      });
    }
  }
  void take(uint64_t tick) override {
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + ranks_ - i) % ranks_;
      const Part part = part_of_row(r, rank_, tick);
      deliver(recv(sdk::place_among_others(r, rank_) * pieces().owned(rank_) + part.packed),
              in_slot(r, tick, part.in_slot), part.count * width_);
    }
  }
  [[nodiscard]] ByteRange posted_for(int32_t peer, uint64_t tick) const override {
    const Part part = part_of_row(rank_, peer, tick);
    return {part.in_slot * width_, part.count * width_};
  }

 private:
  /// Elements side by side in a slot and in the packed pieces of their owner.
  struct Part {
    uint64_t in_slot = 0;
    uint64_t packed = 0;
    uint64_t count = 0;
  };
  /// Elements that rank r sends.
  [[nodiscard]] uint64_t row_of(int32_t r) const { return adds(r) ? pieces().total() - pieces().owned(r) : 0; }
  /// Where in the row of `from` begins what `owner`, another rank, takes of it.
  [[nodiscard]] uint64_t begin_of(int32_t from, int32_t owner) const {
    const uint64_t before = owned_before_[static_cast<size_t>(owner)];
    const uint64_t first = owned_before_[static_cast<size_t>(from) + 1];
    return owner > from ? before - first : pieces().total() - first + before;
  }
  /// What `owner` takes in `tick` of the row of `from`.
  [[nodiscard]] Part part_of_row(int32_t from, int32_t owner, uint64_t tick) const {
    const uint64_t row = row_of(from);
    const uint64_t first = std::min(tick * chunk_elements(), row);
    const uint64_t end = std::min(first + chunk_elements(), row);
    const uint64_t begin = begin_of(from, owner);
    const uint64_t from_here = std::max(first, begin);
    const uint64_t to_here = std::min(end, begin + pieces().owned(owner));
    if (from_here >= to_here) return {};
    return {from_here - first, from_here - begin, to_here - from_here};
  }
  std::vector<uint64_t> owned_before_;  ///< elements of all ranks before each
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
    case CallKind::kGatherPieces:
      return std::make_unique<GatherPieces>(call, group, first_tick);
    case CallKind::kScatterPieces:
      return std::make_unique<ScatterPieces>(call, group, first_tick);
    case CallKind::kBarrier:
    case CallKind::kWindow:
    case CallKind::kSend:
    case CallKind::kRecv:
      break;
  }
  return std::make_unique<Barrier>(call, group, first_tick);
}

}  // namespace pliant::accelerator
