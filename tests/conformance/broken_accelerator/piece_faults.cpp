// Faults of collectives of pieces.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// gaps: what lies between pieces changes; place: of pieces that are in their places already the first element is taken
/// from the begin of the array.
struct GatherPiecesWrong : Honest {
  void gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, DType dtype,
                     Stream& stream) override {
    const uint64_t width = size_of(dtype);
    if (way == "place" && send == nullptr) {
      const auto own = pieces.of(comm.rank());
      if (!own.empty() && own.front().offset != 0) {
        auto* const array = static_cast<std::byte*>(recv);
        const uint64_t to = own.front().offset * width;
        stream.enqueue([array, to, width] { std::memcpy(array + to, array, width); });
      }
    }
    std::vector<pliant_piece> all = pieces.ascending();
    Device::gather_pieces(comm, send, recv, std::move(pieces), dtype, stream);
    for (size_t i = 0; way == "gaps" && i + 1 < all.size(); ++i) {
      const uint64_t end = all[i].offset + all[i].count;
      if (end == all[i + 1].offset) continue;
      auto* const gap = static_cast<std::byte*>(recv) + end * width;
      stream.enqueue([gap] { *gap ^= std::byte{1}; });
    }
  }
};

/// A table that is wrong is taken, and nothing is done.
struct AnyPieces : Honest {
  AnyPieces() : Honest({.any_pieces = true}) {}
};

/// order: what comes of the first and the last of the other ranks changes places; silent: what comes of ranks that do
/// not add is set to zero.
struct ScatterPiecesWrong : Honest {
  void scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                      DType dtype, Stream& stream) override {
    const uint64_t bytes = pieces.owned(comm.rank()) * size_of(dtype);
    const int32_t own = comm.rank();
    const std::vector<uint8_t> by_rank(adds.begin(), adds.end());
    Device::scatter_pieces(comm, send, recv, std::move(pieces), adds, dtype, stream);
    if (bytes == 0) return;
    auto* const rooms = static_cast<std::byte*>(recv);
    const uint64_t others = by_rank.size() - 1;
    if (way == "order" && others > 1) {
      stream.enqueue([=] { std::swap_ranges(rooms, rooms + bytes, rooms + (others - 1) * bytes); });
    }
    for (int32_t r = 0; way == "silent" && r < comm.world_size(); ++r) {
      if (r == own || by_rank[static_cast<size_t>(r)] != 0) continue;
      std::byte* const room = rooms + sdk::place_among_others(r, own) * bytes;
      stream.enqueue([=] { std::memset(room, 0, bytes); });
    }
  }
};

}  // namespace

std::vector<Fault> piece_faults() {
  return {{"gather-pieces-wrong", {"gaps", "place"}, make<GatherPiecesWrong>},
          {"any-pieces", {}, make<AnyPieces>},
          {"scatter-pieces-wrong", {"order", "silent"}, make<ScatterPiecesWrong>}};
}

}  // namespace pliant::broken
