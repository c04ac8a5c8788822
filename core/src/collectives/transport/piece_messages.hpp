// The messages and copies that a collective of pieces is made of where nobody does it at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/transport/message.hpp"
#include "pliant/abi/accelerator.h"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/pieces.hpp"

namespace pliant::collectives {

/// Those of gather_pieces by `rank`; of any two ranks in the same order on both. `send`: NULL where its pieces are in
/// `recv` already. O(pieces + own pieces * ranks).
std::vector<Message> messages_of_gather(const sdk::PieceTable& pieces, int32_t rank, const void* send, void* recv,
                                        sdk::DType dtype);
/// And what `rank` copies itself.
std::vector<pliant_copy> copies_of_gather(const sdk::PieceTable& pieces, int32_t rank, const void* send, void* recv,
                                          sdk::DType dtype);
/// Those of scatter_pieces by `rank`. `adds`: by rank.
std::vector<Message> messages_of_scatter(const sdk::PieceTable& pieces, int32_t rank, const void* send, void* recv,
                                         std::span<const uint8_t> adds, sdk::DType dtype);

}  // namespace pliant::collectives
