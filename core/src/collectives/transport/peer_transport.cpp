// A piece at a time: into the own slot, meet, out of the slots of all. Slots alternate, so that one meeting a piece is
// enough: who fills a slot again has met all others since they read it.
#include "collectives/transport/peer_transport.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/transport/peer_messages.hpp"
#include "collectives/transport/pieces.hpp"

namespace pliant::collectives {

using sdk::Elements;
using sdk::Failure;

namespace {

/// From here on each rank reduces a part and reads the other parts: more meetings, fewer bytes.
constexpr uint64_t kLeastShared = uint64_t{128} << 10U;

enum CallName : int32_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllGatherV, kBarrier, kGatherPieces };

}  // namespace

/// What a rank was called with; must be the same on all.
struct PeerTransport::Signature {
  int32_t kind;  ///< CallName
  int32_t dtype;
  int64_t detail;  ///< the reduction or the root
  uint64_t count;  ///< of all_gather_v and gather_pieces: a digest of all pieces
  uint64_t first;  ///< of the piece

  bool operator==(const Signature&) const = default;
  [[nodiscard]] Signature at(const Piece& piece) const {
    Signature made = *this;
    made.first = piece.first;
    return made;
  }
  [[nodiscard]] std::string words() const;
};

std::string PeerTransport::Signature::words() const {
  static constexpr const char* kNames[] = {"all_reduce",   "all_gather", "reduce_scatter", "broadcast",
                                           "all_gather_v", "barrier",    "gather_pieces"};
  if (kind < kAllReduce || kind > kGatherPieces) return "something else";
  if (kind == kBarrier) return kNames[kind];
  std::string text = kNames[kind];
  const bool has_pieces = kind == kAllGatherV || kind == kGatherPieces;
  if (!has_pieces) text += " of " + std::to_string(count);
  text += " x " + std::string(name_of(static_cast<sdk::DType>(dtype)));
  if (kind == kAllReduce || kind == kReduceScatter)
    text += std::string(", ") + name_of(static_cast<sdk::ReduceOp>(detail));
  if (kind == kBroadcast) text += ", root " + std::to_string(detail);
  if (has_pieces) text += kind == kAllGatherV ? ", of some counts" : ", of some pieces";
  return text;
}

void PeerTransport::meet(const Signature& own, pliant_stream* on) {
  struct Seen {
    Signature own;
    std::vector<Signature> all;
  };
  auto seen = std::make_shared<Seen>(Seen{own, std::vector<Signature>(static_cast<size_t>(world_size()))});
  steps().step(
      on,
      [&carrier = steps().carrier(), seen](pliant_comm* comm, pliant_stream* carrier_stream) {
        carrier.collectives.must(&pliant_collectives::all_gather, comm, static_cast<const void*>(&seen->own),
                                 static_cast<void*>(seen->all.data()), sizeof(Signature), PLIANT_U8, carrier_stream);
      },
      [seen, rank = rank()] {
        for (size_t r = 0; r < seen->all.size(); ++r) {
          if (seen->all[r] == seen->own) continue;
          throw Failure(PLIANT_INVALID_ARGUMENT, "rank " + std::to_string(r) + " called " + seen->all[r].words() +
                                                     " where rank " + std::to_string(rank) + ", this one, called " +
                                                     seen->own.words() +
                                                     "; all ranks make the same calls in the same order")
              .about_rank(static_cast<int32_t>(r));
        }
      });
}

std::vector<const void*> PeerTransport::of_all(uint64_t slot, uint64_t byte) const {
  std::vector<const void*> all;
  for (int32_t r = 0; r < world_size(); ++r) all.push_back(memory_.slot(r, slot) + byte);
  return all;
}

void PeerTransport::reduce(void* to, const std::vector<const void*>& from, Elements elements, sdk::ReduceOp op,
                           pliant_stream* on) const {
  if (elements.count == 0) return;
  steps().device().slots.must(&pliant_accelerator::reduce_async, to, from.data(), world_size(), elements.count,
                              raw(elements.dtype), raw(op), 1.0, on);
}

void PeerTransport::copy(std::vector<pliant_copy> copies, pliant_stream* on) const {
  std::erase_if(copies, [](const pliant_copy& one) { return one.bytes == 0; });
  if (!copies.empty()) steps().copy(copies, on);
}

uint64_t PeerTransport::part_of(const Elements& elements) const {
  const auto ranks = static_cast<uint64_t>(world_size());
  const uint64_t bytes = (elements.bytes() + ranks - 1) / ranks;
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine / sdk::size_of(elements.dtype);
}

/// Each rank reduces its part, in its own slot: there nobody else reads that part before the second meeting.
void PeerTransport::reduce_shared(void* to, uint64_t slot, Elements elements, sdk::ReduceOp op, const Signature& call,
                                  pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const uint64_t part = part_of(elements);
  const auto part_at = [&](int32_t rank) {
    const uint64_t first = std::min(elements.count, part * static_cast<uint64_t>(rank));
    return Piece{first, std::min(part, elements.count - first)};
  };
  const Piece own = part_at(rank());
  reduce(own_slot(slot) + own.first * width, of_all(slot, own.first * width), {own.count, elements.dtype}, op, on);
  meet(call, on);
  std::vector<pliant_copy> parts;
  for (int32_t r = 0; r < world_size(); ++r) {
    const Piece one = part_at(r);
    parts.push_back({at(to, one.first, width), memory_.slot(r, slot) + one.first * width, one.count * width});
  }
  copy(std::move(parts), on);
}

void PeerTransport::all_reduce(const void* send, void* recv, Elements elements, sdk::ReduceOp op, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kAllReduce, raw(elements.dtype), raw(op), elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, 1), [&](Piece piece) {
    const uint64_t slot = memory_.next_slot();
    copy({{own_slot(slot), at(send, piece.first, width), piece.count * width}}, on);
    meet(call.at(piece), on);
    void* const to = at(recv, piece.first, width);
    const Elements some{piece.count, elements.dtype};
    if (world_size() > 2 && some.bytes() >= kLeastShared) {
      reduce_shared(to, slot, some, op, call.at(piece), on);
    } else {
      reduce(to, of_all(slot, 0), some, op, on);
    }
  });
}

void PeerTransport::all_gather(const void* send, void* recv, Elements elements, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kAllGather, raw(elements.dtype), 0, elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, 1), [&](Piece piece) {
    const uint64_t slot = memory_.next_slot();
    copy({{own_slot(slot), at(send, piece.first, width), piece.count * width}}, on);
    meet(call.at(piece), on);
    std::vector<pliant_copy> parts;
    for (int32_t r = 0; r < world_size(); ++r) {
      parts.push_back({at(recv, static_cast<uint64_t>(r) * elements.count + piece.first, width), memory_.slot(r, slot),
                       piece.count * width});
    }
    copy(std::move(parts), on);
  });
}

void PeerTransport::reduce_scatter(const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                   pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kReduceScatter, raw(elements.dtype), raw(op), elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, world_size()), [&](Piece piece) {
    const uint64_t slot = memory_.next_slot();
    std::vector<pliant_copy> parts;
    for (int32_t r = 0; r < world_size(); ++r) {
      const auto part = static_cast<uint64_t>(r);
      parts.push_back({at(static_cast<void*>(own_slot(slot)), part * piece.count, width),
                       at(send, part * elements.count + piece.first, width), piece.count * width});
    }
    copy(std::move(parts), on);
    meet(call.at(piece), on);
    reduce(at(recv, piece.first, width), of_all(slot, static_cast<uint64_t>(rank()) * piece.count * width),
           {piece.count, elements.dtype}, op, on);
  });
}

void PeerTransport::broadcast(void* buffer, Elements elements, int32_t root, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kBroadcast, raw(elements.dtype), root, elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, 1), [&](Piece piece) {
    std::byte* const through = memory_.slot(root, memory_.next_slot());
    void* const own = at(buffer, piece.first, width);
    if (rank() == root) copy({{through, own, piece.count * width}}, on);
    meet(call.at(piece), on);
    if (rank() != root) copy({{own, through, piece.count * width}}, on);
  });
}

void PeerTransport::gather(Signature call, const void* send, void* recv, const sdk::PieceTable& pieces,
                           sdk::DType dtype, pliant_stream* on) {
  const uint64_t width = sdk::size_of(dtype);
  call.count = pieces.digest();
  // A part takes from every rank what it has of this range of its pieces.
  in_pieces(pieces.most_owned(), most_of(PeerMemory::kSlotBytes, dtype, 1), [&](Piece range) {
    const auto of = [&](int32_t rank) {
      return std::min(range.count, pieces.owned(rank) - std::min(pieces.owned(rank), range.first));
    };
    const uint64_t slot = memory_.next_slot();
    std::byte* const own = own_slot(slot);
    std::vector<pliant_copy> in;
    if (send != nullptr) {
      in.push_back({own, at(send, range.first, width), of(rank()) * width});
    } else {
      pieces.each(rank(), range.first, of(rank()), [&](const sdk::PieceTable::Piece& one) {
        in.push_back({own + (one.packed - range.first) * width, at(recv, one.offset, width), one.count * width});
      });
    }
    copy(std::move(in), on);
    meet(call.at(range), on);
    std::vector<pliant_copy> out;
    for (int32_t r = 0; r < world_size(); ++r) {
      if (r == rank() && send == nullptr) continue;
      const std::byte* const theirs = memory_.slot(r, slot);
      pieces.each(r, range.first, of(r), [&](const sdk::PieceTable::Piece& one) {
        out.push_back({at(recv, one.offset, width), theirs + (one.packed - range.first) * width, one.count * width});
      });
    }
    copy(std::move(out), on);
  });
}

void PeerTransport::all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                                 pliant_stream* on) {
  gather({kAllGatherV, raw(dtype), 0, 0, 0}, send, recv, sdk::PieceTable::in_rank_order(counts), dtype, on);
}

void PeerTransport::gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                                  pliant_stream* on) {
  gather({kGatherPieces, raw(dtype), 0, 0, 0}, send, recv, pieces, dtype, on);
}

void PeerTransport::barrier(pliant_stream* on) {
  meet({.kind = kBarrier, .dtype = 0, .detail = 0, .count = 0, .first = 0}, on);
}

void PeerTransport::exchange(const std::vector<Message>& messages, pliant_stream* on) {
  if (mailbox_ == nullptr) return staged_.exchange(messages, on);
  exchange_by_lanes({steps(), place(), memory_, *mailbox_, watch_}, messages, on);
}

}  // namespace pliant::collectives
