// Walks over the pieces of every pair of ranks.
#include "collectives/transport/piece_messages.hpp"

#include <cstddef>

#include "collectives/transport/pieces.hpp"

namespace pliant::collectives {

using sdk::PieceTable;

std::vector<Message> messages_of_gather(const PieceTable& pieces, int32_t rank, const void* send, void* recv,
                                        sdk::DType dtype) {
  const uint64_t width = sdk::size_of(dtype);
  std::vector<Message> made;
  for (int32_t r = 0; r < pieces.world_size(); ++r) {
    if (r == rank) continue;
    for (const PieceTable::Piece& one : pieces.of(r))
      made.push_back({false, at(recv, one.offset, width), {one.count, dtype}, r});
    for (const PieceTable::Piece& one : pieces.of(rank)) {
      void* const from = send == nullptr ? at(recv, one.offset, width) : at(const_cast<void*>(send), one.packed, width);
      made.push_back({true, from, {one.count, dtype}, r});
    }
  }
  return made;
}

std::vector<pliant_copy> copies_of_gather(const PieceTable& pieces, int32_t rank, const void* send, void* recv,
                                          sdk::DType dtype) {
  const uint64_t width = sdk::size_of(dtype);
  std::vector<pliant_copy> made;
  if (send == nullptr) return made;
  for (const PieceTable::Piece& one : pieces.of(rank)) {
    made.push_back({at(recv, one.offset, width), at(send, one.packed, width), one.count * width});
  }
  return made;
}

std::vector<Message> messages_of_scatter(const PieceTable& pieces, int32_t rank, const void* send, void* recv,
                                         std::span<const uint8_t> adds, sdk::DType dtype) {
  const uint64_t width = sdk::size_of(dtype);
  std::vector<Message> made;
  for (int32_t r = 0; r < pieces.world_size(); ++r) {
    if (r == rank) continue;
    if (adds[static_cast<size_t>(rank)] != 0) {
      for (const PieceTable::Piece& one : pieces.of(r))
        made.push_back({true, at(const_cast<void*>(send), one.offset, width), {one.count, dtype}, r});
    }
    if (adds[static_cast<size_t>(r)] == 0) continue;
    const uint64_t room = sdk::place_among_others(r, rank) * pieces.owned(rank);
    for (const PieceTable::Piece& one : pieces.of(rank))
      made.push_back({false, at(recv, room + one.packed, width), {one.count, dtype}, r});
  }
  return made;
}

}  // namespace pliant::collectives
