// The generic collectives whose ranks have unequal parts: all_gather_v, gather_pieces, scatter_pieces.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/comm_state.hpp"
#include "collectives/generic_collectives.hpp"
#include "collectives/transport/peer_transport.hpp"
#include "collectives/transport/piece_messages.hpp"
#include "collectives/transport/pieces.hpp"

namespace pliant::detail {

using sdk::PieceTable;

using Shared = GenericCollectives::Shared;

namespace {

/// The carrier gathers what each rank has of a range of its packed pieces. `send`: as in gather_pieces.
void gather_staged(Shared& shared, const void* send, void* recv, const PieceTable& pieces, sdk::DType dtype,
                   pliant_stream* on) {
  const uint64_t width = sdk::size_of(dtype);
  const Shared::Stages& stage = shared.stages(on);
  const auto exchange = [&shared, dtype](const void* from, void* to, const std::vector<uint64_t>& of) {
    return [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
      carrier.collectives.must(&pliant_collectives::all_gather_v, carried, from, to, of.data(), raw(dtype),
                               carrier_stream);
    };
  };
  const uint64_t most = most_of(Shared::kStageBytes, dtype, shared.world_size);
  in_pieces(pieces.most_owned(), most, [&](Piece range) {
    std::vector<uint64_t> of;
    for (int32_t r = 0; r < shared.world_size; ++r) {
      const uint64_t owned = pieces.owned(r);
      of.push_back(std::min(range.count, owned - std::min(owned, range.first)));
    }
    const uint64_t own = of[static_cast<size_t>(shared.rank)];
    std::vector<pliant_copy> in;
    if (send != nullptr && own != 0) {
      in.push_back({stage.in.memory(), at(send, range.first, width), own * width});
    } else {
      pieces.each(shared.rank, range.first, own, [&](const PieceTable::Piece& one) {
        in.push_back(
            {at(stage.in.memory(), one.packed - range.first, width), at(recv, one.offset, width), one.count * width});
      });
    }
    if (!in.empty()) shared.copy(in, on);
    shared.step(on, exchange(stage.in.memory(), stage.out.memory(), of));
    std::vector<pliant_copy> out;
    uint64_t staged = 0;
    for (int32_t r = 0; r < shared.world_size; ++r) {
      const uint64_t count = of[static_cast<size_t>(r)];
      const bool is_there = r == shared.rank && send == nullptr;
      pieces.each(r, range.first, is_there ? 0 : count, [&](const PieceTable::Piece& one) {
        out.push_back({at(recv, one.offset, width), at(stage.out.memory(), staged + one.packed - range.first, width),
                       one.count * width});
      });
      staged += count;
    }
    if (!out.empty()) shared.copy(out, on);
  });
}

/// As one batch.
void exchange_messages(Shared& shared, const std::vector<PieceMessage>& messages, sdk::DType dtype, pliant_stream* on) {
  std::vector<GenericCollectives::Comm::Message> made;
  made.reserve(messages.size());
  for (const PieceMessage& one : messages) made.push_back({one.is_send, one.buffer, {one.count, dtype}, one.peer});
  if (!made.empty()) GenericCollectives::Comm::exchange(shared, made, on);
}

}  // namespace

void GenericCollectives::all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts,
                                      sdk::DType dtype, Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), send, recv, all = std::vector<uint64_t>(counts.begin(), counts.end()),
       dtype](pliant_stream* on) {
        if (const OwnComm* own = shared.own())
          return own->call(&pliant_collectives::all_gather_v, send, recv, all.data(), raw(dtype), on);
        if (shared.is_direct) {
          return shared.step(on, [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
            carrier.collectives.must(&pliant_collectives::all_gather_v, carried, send, recv, all.data(), raw(dtype),
                                     carrier_stream);
          });
        }
        const PieceTable pieces = PieceTable::in_rank_order(all);
        if (shared.peers() != nullptr) return between_devices::all_gather_v(shared, send, recv, pieces, dtype, on);
        gather_staged(shared, send, recv, pieces, dtype, on);
      },
      &stream);
}

void GenericCollectives::gather_pieces(Comm& comm, const void* send, void* recv, PieceTable pieces, sdk::DType dtype,
                                       Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), send, recv, all = std::make_shared<const PieceTable>(std::move(pieces)),
       dtype](pliant_stream* on) {
        const OwnComm* const own = shared.own();
        if (own == nullptr && !shared.is_direct) {
          if (shared.peers() != nullptr) return between_devices::gather_pieces(shared, send, recv, *all, dtype, on);
          return gather_staged(shared, send, recv, *all, dtype, on);
        }
        if (own == nullptr && !shared.carrier.collectives.has(&pliant_collectives::gather_pieces)) {
          const auto copies = copies_of_gather(*all, shared.rank, send, recv, dtype);
          if (!copies.empty()) shared.copy(copies, on);
          return exchange_messages(shared, messages_of_gather(*all, shared.rank, send, recv, dtype), dtype, on);
        }
        const std::vector<pliant_piece> table = all->ascending();
        if (own != nullptr) {
          return own->call(&pliant_collectives::gather_pieces, send, recv, table.data(), table.size(), raw(dtype), on);
        }
        shared.step(on, [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
          carrier.collectives.must(&pliant_collectives::gather_pieces, carried, send, recv, table.data(), table.size(),
                                   raw(dtype), carrier_stream);
        });
      },
      &stream);
}

void GenericCollectives::scatter_pieces(Comm& comm, const void* send, void* recv, PieceTable pieces,
                                        std::span<const uint8_t> adds, sdk::DType dtype, Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), send, recv, all = std::make_shared<const PieceTable>(std::move(pieces)),
       by_rank = std::vector<uint8_t>(adds.begin(), adds.end()), dtype](pliant_stream* on) {
        const OwnComm* const own = shared.own();
        const bool carries = shared.is_direct && shared.carrier.collectives.has(&pliant_collectives::scatter_pieces);
        if (own == nullptr && !carries) {
          return exchange_messages(shared, messages_of_scatter(*all, shared.rank, send, recv, by_rank, dtype), dtype,
                                   on);
        }
        const std::vector<pliant_piece> table = all->ascending();
        if (own != nullptr) {
          return own->call(&pliant_collectives::scatter_pieces, send, recv, table.data(), table.size(), by_rank.data(),
                           raw(dtype), on);
        }
        shared.step(on, [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
          carrier.collectives.must(&pliant_collectives::scatter_pieces, carried, send, recv, table.data(), table.size(),
                                   by_rank.data(), raw(dtype), carrier_stream);
        });
      },
      &stream);
}

}  // namespace pliant::detail
