// Needs none of the device's memory.
#include "collectives/transport/carried_transport.hpp"

#include <memory>
#include <string>

#include "collectives/transport/piece_messages.hpp"
#include "collectives/transport/pieces.hpp"
#include "pliant/sdk/collectives.hpp"

namespace pliant::collectives {

void CarriedTransport::barrier(pliant_stream* on) {
  steps_.carry(on, &pliant_collectives::barrier);
}

void CarriedTransport::scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces,
                                      const std::vector<uint8_t>& adds, sdk::DType dtype, pliant_stream* on) {
  const std::vector<Message> messages = messages_of_scatter(pieces, place_.rank, send, recv, adds, dtype);
  if (!messages.empty()) exchange(messages, on);
}

void CarriedTransport::register_window(void*, uint64_t bytes, pliant_stream* on) {
  auto all = std::make_shared<std::vector<uint64_t>>(static_cast<size_t>(place_.world_size));
  auto own = std::make_shared<const uint64_t>(bytes);
  steps_.step(
      on,
      [&carrier = steps_.carrier(), all, own](pliant_comm* comm, pliant_stream* stream) {
        carrier.collectives.must(&pliant_collectives::all_gather, comm, own.get(), all->data(), sizeof(uint64_t),
                                 raw(sdk::DType::kU8), stream);
      },
      [all, own, rank = place_.rank] {
        for (size_t r = 0; r < all->size(); ++r) {
          sdk::detail::check::of_rank(static_cast<int32_t>(r), (*all)[r] == *own, [&] {
            return "rank " + std::to_string(rank) + " registers a window of " + std::to_string(*own) + " bytes, rank " +
                   std::to_string(r) + " one of " + std::to_string((*all)[r]);
          });
        }
      });
}

}  // namespace pliant::collectives
