// A piece at a time: into the own slot, meet, out of the slots of all. Slots alternate, so that one meeting a piece is
// enough: who fills a slot again has met all others since they read it.
#include "collectives/transport/peer_transport.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/comm_state.hpp"
#include "collectives/transport/pieces.hpp"

namespace pliant::detail::between_devices {

using sdk::Elements;
using sdk::Failure;

namespace {

/// From here on each rank reduces a part and reads the other parts: more meetings, fewer bytes.
constexpr uint64_t kLeastShared = uint64_t{128} << 10U;

/// What a rank was called with; must be the same on all.
struct Signature {
  int32_t kind;  ///< index of kNames
  int32_t dtype;
  int64_t detail;  ///< the reduction or the root
  uint64_t count;  ///< of all_gather_v and gather_pieces: a digest of all pieces
  uint64_t first;  ///< of the piece

  bool operator==(const Signature&) const = default;
  [[nodiscard]] std::string words() const;
};
enum CallName : int32_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllGatherV, kBarrier, kGatherPieces };

std::string Signature::words() const {
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

Signature at_piece(Signature call, const Piece& piece) {
  call.first = piece.first;
  return call;
}

/// Work behind it on any rank runs after all work before it on every rank.
void meet(Shared& shared, const Signature& own, pliant_stream* on) {
  struct Seen {
    Signature own;
    std::vector<Signature> all;
  };
  auto seen = std::make_shared<Seen>(Seen{own, std::vector<Signature>(static_cast<size_t>(shared.world_size))});
  shared.step(
      on,
      [&carrier = shared.carrier, seen](pliant_comm* comm, pliant_stream* carrier_stream) {
        carrier.collectives.must(&pliant_collectives::all_gather, comm, static_cast<const void*>(&seen->own),
                                 static_cast<void*>(seen->all.data()), sizeof(Signature), PLIANT_U8, carrier_stream);
      },
      [seen, rank = shared.rank] {
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

/// What each rank has at this byte of its slot, in rank order.
std::vector<const void*> of_all(const Shared& shared, uint64_t slot, uint64_t byte) {
  std::vector<const void*> all;
  for (int32_t r = 0; r < shared.world_size; ++r) all.push_back(shared.peers()->slot(r, slot) + byte);
  return all;
}

void reduce(const Shared& shared, void* to, const std::vector<const void*>& from, Elements elements, sdk::ReduceOp op,
            pliant_stream* on) {
  if (elements.count == 0) return;
  shared.device.slots.must(&pliant_accelerator::reduce_async, to, from.data(), shared.world_size, elements.count,
                           raw(elements.dtype), raw(op), 1.0, on);
}

/// Bytes that are no bytes are left out.
void copy(const Shared& shared, std::vector<pliant_copy> copies, pliant_stream* on) {
  std::erase_if(copies, [](const pliant_copy& one) { return one.bytes == 0; });
  if (!copies.empty()) shared.copy(copies, on);
}

/// Elements of a part, whole lines of it, when `count` are shared out among all ranks.
uint64_t part_of(const Shared& shared, const Elements& elements) {
  const auto ranks = static_cast<uint64_t>(shared.world_size);
  const uint64_t bytes = (elements.bytes() + ranks - 1) / ranks;
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine / sdk::size_of(elements.dtype);
}

/// Each rank reduces its part, in its own slot: there nobody else reads that part before the second meeting.
void reduce_shared(Shared& shared, void* to, uint64_t slot, Elements elements, sdk::ReduceOp op, const Signature& call,
                   pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const uint64_t part = part_of(shared, elements);
  const auto part_at = [&](int32_t rank) {
    const uint64_t first = std::min(elements.count, part * static_cast<uint64_t>(rank));
    return Piece{first, std::min(part, elements.count - first)};
  };
  const Piece own = part_at(shared.rank);
  reduce(shared, shared.peers()->slot(shared.rank, slot) + own.first * width, of_all(shared, slot, own.first * width),
         {own.count, elements.dtype}, op, on);
  meet(shared, call, on);
  std::vector<pliant_copy> parts;
  for (int32_t r = 0; r < shared.world_size; ++r) {
    const Piece one = part_at(r);
    parts.push_back({at(to, one.first, width), shared.peers()->slot(r, slot) + one.first * width, one.count * width});
  }
  copy(shared, std::move(parts), on);
}

}  // namespace

void all_reduce(Shared& shared, const void* send, void* recv, Elements elements, sdk::ReduceOp op, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kAllReduce, raw(elements.dtype), raw(op), elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, 1), [&](Piece piece) {
    const uint64_t slot = shared.peers()->next_slot();
    copy(shared, {{shared.peers()->slot(shared.rank, slot), at(send, piece.first, width), piece.count * width}}, on);
    meet(shared, at_piece(call, piece), on);
    void* const to = at(recv, piece.first, width);
    const Elements some{piece.count, elements.dtype};
    if (shared.world_size > 2 && some.bytes() >= kLeastShared) {
      reduce_shared(shared, to, slot, some, op, at_piece(call, piece), on);
    } else {
      reduce(shared, to, of_all(shared, slot, 0), some, op, on);
    }
  });
}

void all_gather(Shared& shared, const void* send, void* recv, Elements elements, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kAllGather, raw(elements.dtype), 0, elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, 1), [&](Piece piece) {
    const uint64_t slot = shared.peers()->next_slot();
    copy(shared, {{shared.peers()->slot(shared.rank, slot), at(send, piece.first, width), piece.count * width}}, on);
    meet(shared, at_piece(call, piece), on);
    std::vector<pliant_copy> parts;
    for (int32_t r = 0; r < shared.world_size; ++r) {
      parts.push_back({at(recv, static_cast<uint64_t>(r) * elements.count + piece.first, width),
                       shared.peers()->slot(r, slot), piece.count * width});
    }
    copy(shared, std::move(parts), on);
  });
}

void reduce_scatter(Shared& shared, const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                    pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kReduceScatter, raw(elements.dtype), raw(op), elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, shared.world_size), [&](Piece piece) {
    const uint64_t slot = shared.peers()->next_slot();
    std::vector<pliant_copy> parts;
    for (int32_t r = 0; r < shared.world_size; ++r) {
      const auto part = static_cast<uint64_t>(r);
      parts.push_back({at(static_cast<void*>(shared.peers()->slot(shared.rank, slot)), part * piece.count, width),
                       at(send, part * elements.count + piece.first, width), piece.count * width});
    }
    copy(shared, std::move(parts), on);
    meet(shared, at_piece(call, piece), on);
    reduce(shared, at(recv, piece.first, width),
           of_all(shared, slot, static_cast<uint64_t>(shared.rank) * piece.count * width),
           {piece.count, elements.dtype}, op, on);
  });
}

void broadcast(Shared& shared, void* buffer, Elements elements, int32_t root, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Signature call{kBroadcast, raw(elements.dtype), root, elements.count, 0};
  in_pieces(elements.count, most_of(PeerMemory::kSlotBytes, elements.dtype, 1), [&](Piece piece) {
    std::byte* const through = shared.peers()->slot(root, shared.peers()->next_slot());
    void* const own = at(buffer, piece.first, width);
    if (shared.rank == root) copy(shared, {{through, own, piece.count * width}}, on);
    meet(shared, at_piece(call, piece), on);
    if (shared.rank != root) copy(shared, {{own, through, piece.count * width}}, on);
  });
}

namespace {

void gather(Shared& shared, CallName name, const void* send, void* recv, const sdk::PieceTable& pieces,
            sdk::DType dtype, pliant_stream* on) {
  const uint64_t width = sdk::size_of(dtype);
  const Signature call{name, raw(dtype), 0, pieces.digest(), 0};
  // A part takes from every rank what it has of this range of its pieces.
  in_pieces(pieces.most_owned(), most_of(PeerMemory::kSlotBytes, dtype, 1), [&](Piece range) {
    const auto of = [&](int32_t rank) {
      return std::min(range.count, pieces.owned(rank) - std::min(pieces.owned(rank), range.first));
    };
    const uint64_t slot = shared.peers()->next_slot();
    std::byte* const own = shared.peers()->slot(shared.rank, slot);
    std::vector<pliant_copy> in;
    if (send != nullptr) {
      in.push_back({own, at(send, range.first, width), of(shared.rank) * width});
    } else {
      pieces.each(shared.rank, range.first, of(shared.rank), [&](const sdk::PieceTable::Piece& one) {
        in.push_back({own + (one.packed - range.first) * width, at(recv, one.offset, width), one.count * width});
      });
    }
    copy(shared, std::move(in), on);
    meet(shared, at_piece(call, range), on);
    std::vector<pliant_copy> out;
    for (int32_t r = 0; r < shared.world_size; ++r) {
      if (r == shared.rank && send == nullptr) continue;
      const std::byte* const theirs = shared.peers()->slot(r, slot);
      pieces.each(r, range.first, of(r), [&](const sdk::PieceTable::Piece& one) {
        out.push_back({at(recv, one.offset, width), theirs + (one.packed - range.first) * width, one.count * width});
      });
    }
    copy(shared, std::move(out), on);
  });
}

}  // namespace

void all_gather_v(Shared& shared, const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                  pliant_stream* on) {
  gather(shared, kAllGatherV, send, recv, pieces, dtype, on);
}

void gather_pieces(Shared& shared, const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                   pliant_stream* on) {
  gather(shared, kGatherPieces, send, recv, pieces, dtype, on);
}

void barrier(Shared& shared, pliant_stream* on) {
  meet(shared, {.kind = kBarrier, .dtype = 0, .detail = 0, .count = 0, .first = 0}, on);
}

}  // namespace pliant::detail::between_devices
