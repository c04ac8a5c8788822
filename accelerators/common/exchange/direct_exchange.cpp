// What each rank reads of the windows of the others.
#include "common/exchange/direct_exchange.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace pliant::accelerator {
namespace {

/// Below this the second meeting costs more than a copy. From `pliant accel bench`.
constexpr uint64_t kLeastBytes = uint64_t{128} << 10U;

/// Stands for the place of what nobody reads.
constexpr uint64_t kAnywhere = 1;

/// Of the buffer that has the elements of all ranks, or all elements; 0 for calls that have none, and where no rank has
/// any to send.
uint64_t bytes_of_common(const Call& call, int32_t ranks) {
  switch (call.kind) {
    case CallKind::kAllGather:
    case CallKind::kReduceScatter:
      return call.elements.bytes() * static_cast<uint64_t>(ranks);
    case CallKind::kScatterPieces:
      if (std::all_of(call.adds.begin(), call.adds.end(), [](uint8_t one) { return one == 0; })) return 0;
      [[fallthrough]];
    case CallKind::kAllGatherV:
    case CallKind::kGatherPieces:
      return call.pieces->end() * sdk::size_of(call.elements.dtype);
    case CallKind::kAllReduce:
    case CallKind::kBroadcast:
      return call.elements.bytes();
    case CallKind::kBarrier:
    case CallKind::kWindow:
    case CallKind::kSend:
    case CallKind::kRecv:
      break;
  }
  return 0;
}

class DirectGather final : public DirectExchange {
 public:
  using DirectExchange::DirectExchange;

 private:
  void finish() override {
    for (int32_t i = 0; i < ranks_; ++i) {  // not all from the same rank at once
      const int32_t r = (rank_ + i) % ranks_;
      if (call_.kind == CallKind::kAllGather) {
        const uint64_t count = call_.elements.count;
        take_from(r, {0, static_cast<uint64_t>(r) * count, count});
      } else {
        for (const sdk::PieceTable::Piece& one : pieces().of(r)) take_from(r, one);
      }
    }
  }
  void take_from(int32_t r, const sdk::PieceTable::Piece& one) {
    const bool is_there = is_in_place(r);
    if (r == rank_ && is_there) return;
    in_pieces(one.count, [&](uint64_t first, uint64_t count) {
      const std::byte* const from = is_there     ? common_of(r, one.offset + first)
                                    : r == rank_ ? send(one.packed + first)
                                                 : source_of(r, one.packed + first);
      deliver(recv(one.offset + first), from, count * width_);
    });
  }
};

/// Nothing lies in a place that all have.
class DirectScatter final : public DirectExchange {
 public:
  using DirectExchange::DirectExchange;

 private:
  void finish() override {
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      if (!adds(r)) continue;
      const uint64_t room = sdk::place_among_others(r, rank_) * pieces().owned(rank_);
      for (const sdk::PieceTable::Piece& one : pieces().of(rank_)) {
        in_pieces(one.count, [&](uint64_t first, uint64_t count) {
          deliver(recv(room + one.packed + first), source_of(r, one.offset + first), count * width_);
        });
      }
    }
  }
};

class DirectReduceScatter final : public DirectExchange {
 public:
  using DirectExchange::DirectExchange;

 private:
  void finish() override {
    const uint64_t begin = static_cast<uint64_t>(rank_) * call_.elements.count;
    in_pieces(call_.elements.count,
              [&](uint64_t first, uint64_t count) { reduce_sources(begin + first, count, recv(first)); });
  }
};

/// Every rank reduces one part, and takes the others from where they were reduced. Nobody else reads the own part of
/// send, so it may be recv.
class DirectAllReduce final : public DirectExchange {
 public:
  using DirectExchange::DirectExchange;
  [[nodiscard]] bool reduces() const override { return true; }

 private:
  void prepare() override {
    const Range own = part_of(call_.elements.count, rank_);
    in_pieces(own.count, [&](uint64_t first, uint64_t count) {
      reduce_sources(own.first + first, count, recv(own.first + first));
    });
  }
  void finish() override {
    for (int32_t i = 1; i < ranks_; ++i) {
      const int32_t r = (rank_ + i) % ranks_;
      const Range part = part_of(call_.elements.count, r);
      in_pieces(part.count, [&](uint64_t first, uint64_t count) {
        deliver(recv(part.first + first), common_of(r, part.first + first), count * width_);
      });
    }
  }
};

class DirectBroadcast final : public DirectExchange {
 public:
  using DirectExchange::DirectExchange;

 private:
  void finish() override {
    if (rank_ == call_.rank) return;
    in_pieces(call_.elements.count, [&](uint64_t first, uint64_t count) {
      deliver(recv(first), source_of(call_.rank, first), count * width_);
    });
  }
};

}  // namespace

Places Places::of(const Call& call, const Windows& windows, int32_t rank, int32_t ranks) {
  const uint64_t bytes = bytes_of_common(call, ranks);
  const auto packed = [&](const void* pointer, uint64_t size) {
    const auto place = windows.place_of(pointer, size);
    return place ? place->packed() : 0;
  };
  if (bytes == 0) return {};
  if (call.kind == CallKind::kScatterPieces) {
    if (windows.is_empty()) return {};
    return {kAnywhere, call.adds[static_cast<size_t>(rank)] == 0 ? kAnywhere : packed(call.send, bytes)};
  }
  Places made;
  made.common = packed(call.kind == CallKind::kReduceScatter ? call.send : call.recv, bytes);
  if (made.common == 0) return {};
  switch (call.kind) {
    case CallKind::kAllGather:
    case CallKind::kAllReduce:
      made.source = packed(call.send, call.elements.bytes());
      break;
    case CallKind::kAllGatherV:
    case CallKind::kGatherPieces: {
      const uint64_t own = call.pieces->owned(rank) * sdk::size_of(call.elements.dtype);
      const bool is_in_place = own == 0 || call.send == nullptr;  // nobody reads of a rank that has nothing
      made.source = is_in_place ? made.common : packed(call.send, own);
      break;
    }
    default:
      made.source = made.common;
  }
  return made;
}

std::unique_ptr<DirectExchange> DirectExchange::of(const Call& call, const Places& places, const Windows& windows,
                                                   Group& group, uint64_t first_tick) {
  if (places.common == 0 || bytes_of_common(call, group.world_size()) < kLeastBytes) return nullptr;
  switch (call.kind) {
    case CallKind::kReduceScatter:
      return std::make_unique<DirectReduceScatter>(call, windows, group, first_tick);
    case CallKind::kAllReduce:
      return std::make_unique<DirectAllReduce>(call, windows, group, first_tick);
    case CallKind::kBroadcast:
      return std::make_unique<DirectBroadcast>(call, windows, group, first_tick);
    case CallKind::kScatterPieces:
      return std::make_unique<DirectScatter>(call, windows, group, first_tick);
    default:
      return std::make_unique<DirectGather>(call, windows, group, first_tick);
  }
}

void DirectExchange::read_places() {
  if (std::exchange(has_read_, true)) return;
  all_there_ = true;
  for (int32_t r = 0; r < ranks_; ++r) {
    const CallRecord theirs = group_.segment().call(r, first_);
    all_there_ = all_there_ && theirs.source != 0;
    common_ = Windows::Place::unpack(theirs.place);
    sources_.push_back(Windows::Place::unpack(theirs.source));
  }
}

void DirectExchange::reduce(uint64_t) {
  read_places();
  if (all_there_) prepare();
}

void DirectExchange::take(uint64_t) {
  read_places();
  if (!all_there_) return;
  finish();
  group_.check_all_there();  // nobody has given up meanwhile, and written over what was read
}

void DirectExchange::reduce_sources(uint64_t begin, uint64_t count, std::byte* to) const {
  std::vector<const void*> inputs(static_cast<size_t>(ranks_));
  for (int32_t r = 0; r < ranks_; ++r) inputs[static_cast<size_t>(r)] = r == rank_ ? send(begin) : source_of(r, begin);
  deliver_reduced(std::move(inputs), count, to, nullptr);
}

}  // namespace pliant::accelerator
