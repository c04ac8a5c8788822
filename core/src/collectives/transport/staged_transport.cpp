// What a stage holds at a time.
#include "collectives/transport/staged_transport.hpp"

#include <algorithm>
#include <utility>

#include "collectives/transport/pieces.hpp"

namespace pliant::collectives {

using sdk::Elements;
using sdk::PieceTable;

const StagedTransport::Stages& StagedTransport::stages(pliant_stream* stream) {
  std::unique_ptr<Stages>& found = stages_[stream];
  if (found == nullptr) {
    const Called& device = steps().device();
    const int32_t index = place().device_index;
    found.reset(new Stages{{device, index, kStageBytes}, {device, index, kStageBytes}});
  }
  return *found;
}

uint64_t StagedTransport::most(sdk::DType dtype, int32_t parts) {
  return most_of(kStageBytes, dtype, parts);
}

void StagedTransport::all_reduce(const void* send, void* recv, Elements elements, sdk::ReduceOp op, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Stages& stage = stages(on);
  in_pieces(elements.count, most(elements.dtype, 1), [&](Piece piece) {
    steps().copy({{stage.in.memory(), at(send, piece.first, width), piece.count * width}}, on);
    steps().carry(on, &pliant_collectives::all_reduce, stage.in.memory(), stage.out.memory(), piece.count,
                  raw(elements.dtype), raw(op));
    steps().copy({{at(recv, piece.first, width), stage.out.memory(), piece.count * width}}, on);
  });
}

void StagedTransport::all_gather(const void* send, void* recv, Elements elements, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Stages& stage = stages(on);
  in_pieces(elements.count, most(elements.dtype, world_size()), [&](Piece piece) {
    steps().copy({{stage.in.memory(), at(send, piece.first, width), piece.count * width}}, on);
    steps().carry(on, &pliant_collectives::all_gather, stage.in.memory(), stage.out.memory(), piece.count,
                  raw(elements.dtype));
    std::vector<pliant_copy> parts;
    for (uint64_t r = 0; r < static_cast<uint64_t>(world_size()); ++r) {
      parts.push_back({at(recv, r * elements.count + piece.first, width),
                       at(stage.out.memory(), r * piece.count, width), piece.count * width});
    }
    steps().copy(parts, on);
  });
}

void StagedTransport::reduce_scatter(const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                     pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Stages& stage = stages(on);
  in_pieces(elements.count, most(elements.dtype, world_size()), [&](Piece piece) {
    std::vector<pliant_copy> parts;
    for (uint64_t r = 0; r < static_cast<uint64_t>(world_size()); ++r) {
      parts.push_back({at(stage.in.memory(), r * piece.count, width), at(send, r * elements.count + piece.first, width),
                       piece.count * width});
    }
    steps().copy(parts, on);
    steps().carry(on, &pliant_collectives::reduce_scatter, stage.in.memory(), stage.out.memory(), piece.count,
                  raw(elements.dtype), raw(op));
    steps().copy({{at(recv, piece.first, width), stage.out.memory(), piece.count * width}}, on);
  });
}

void StagedTransport::broadcast(void* buffer, Elements elements, int32_t root, pliant_stream* on) {
  const uint64_t width = sdk::size_of(elements.dtype);
  const Stages& stage = stages(on);
  in_pieces(elements.count, most(elements.dtype, 1), [&](Piece piece) {
    void* const through = stage.in.memory();
    void* const own = at(buffer, piece.first, width);
    if (rank() == root) steps().copy({{through, own, piece.count * width}}, on);
    steps().carry(on, &pliant_collectives::broadcast, through, piece.count, raw(elements.dtype), root);
    if (rank() != root) steps().copy({{own, through, piece.count * width}}, on);
  });
}

void StagedTransport::all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                                   pliant_stream* on) {
  gather_pieces(send, recv, PieceTable::in_rank_order(counts), dtype, on);
}

// The carrier gathers what each rank has of a range of its packed pieces.
void StagedTransport::gather_pieces(const void* send, void* recv, const PieceTable& pieces, sdk::DType dtype,
                                    pliant_stream* on) {
  const uint64_t width = sdk::size_of(dtype);
  const Stages& stage = stages(on);
  in_pieces(pieces.most_owned(), most(dtype, world_size()), [&](Piece range) {
    std::vector<uint64_t> of;
    for (int32_t r = 0; r < world_size(); ++r) {
      const uint64_t owned = pieces.owned(r);
      of.push_back(std::min(range.count, owned - std::min(owned, range.first)));
    }
    const uint64_t own = of[static_cast<size_t>(rank())];
    std::vector<pliant_copy> in;
    if (send != nullptr && own != 0) {
      in.push_back({stage.in.memory(), at(send, range.first, width), own * width});
    } else {
      pieces.each(rank(), range.first, own, [&](const PieceTable::Piece& one) {
        in.push_back(
            {at(stage.in.memory(), one.packed - range.first, width), at(recv, one.offset, width), one.count * width});
      });
    }
    if (!in.empty()) steps().copy(in, on);
    steps().step(on, [of, dtype, from = stage.in.memory(), to = stage.out.memory(), &carrier = steps().carrier()](
                         pliant_comm* comm, pliant_stream* stream) {
      carrier.collectives.must(&pliant_collectives::all_gather_v, comm, from, to, of.data(), raw(dtype), stream);
    });
    std::vector<pliant_copy> out;
    uint64_t staged = 0;
    for (int32_t r = 0; r < world_size(); ++r) {
      const uint64_t count = of[static_cast<size_t>(r)];
      const bool is_there = r == rank() && send == nullptr;
      pieces.each(r, range.first, is_there ? 0 : count, [&](const PieceTable::Piece& one) {
        out.push_back({at(recv, one.offset, width), at(stage.out.memory(), staged + one.packed - range.first, width),
                       one.count * width});
      });
      staged += count;
    }
    if (!out.empty()) steps().copy(out, on);
  });
}

}  // namespace pliant::collectives
