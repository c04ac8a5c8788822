// One step for each call.
#include "collectives/transport/direct_transport.hpp"

#include "collectives/transport/piece_messages.hpp"
#include "collectives/transport/pieces.hpp"
#include "collectives/transport/stage.hpp"

namespace pliant::collectives {

using sdk::Elements;

void DirectTransport::all_reduce(const void* send, void* recv, Elements elements, sdk::ReduceOp op, pliant_stream* on) {
  steps().carry(on, &pliant_collectives::all_reduce, send, recv, elements.count, raw(elements.dtype), raw(op));
}

void DirectTransport::all_gather(const void* send, void* recv, Elements elements, pliant_stream* on) {
  steps().carry(on, &pliant_collectives::all_gather, send, recv, elements.count, raw(elements.dtype));
}

void DirectTransport::reduce_scatter(const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                     pliant_stream* on) {
  steps().carry(on, &pliant_collectives::reduce_scatter, send, recv, elements.count, raw(elements.dtype), raw(op));
}

void DirectTransport::broadcast(void* buffer, Elements elements, int32_t root, pliant_stream* on) {
  steps().carry(on, &pliant_collectives::broadcast, buffer, elements.count, raw(elements.dtype), root);
}

void DirectTransport::all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                                   pliant_stream* on) {
  steps().step(on, [=, &carrier = steps().carrier()](pliant_comm* comm, pliant_stream* stream) {
    carrier.collectives.must(&pliant_collectives::all_gather_v, comm, send, recv, counts.data(), raw(dtype), stream);
  });
}

void DirectTransport::gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                                    pliant_stream* on) {
  if (!steps().carrier().collectives.has(&pliant_collectives::gather_pieces)) {
    const auto copies = copies_of_gather(pieces, rank(), send, recv, dtype);
    if (!copies.empty()) steps().copy(copies, on);
    const std::vector<Message> messages = messages_of_gather(pieces, rank(), send, recv, dtype);
    if (!messages.empty()) exchange(messages, on);
    return;
  }
  steps().step(on,
               [=, table = pieces.ascending(), &carrier = steps().carrier()](pliant_comm* comm, pliant_stream* stream) {
                 carrier.collectives.must(&pliant_collectives::gather_pieces, comm, send, recv, table.data(),
                                          table.size(), raw(dtype), stream);
               });
}

void DirectTransport::scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces,
                                     const std::vector<uint8_t>& adds, sdk::DType dtype, pliant_stream* on) {
  if (!steps().carrier().collectives.has(&pliant_collectives::scatter_pieces)) {
    return CarriedTransport::scatter_pieces(send, recv, pieces, adds, dtype, on);
  }
  steps().step(on,
               [=, table = pieces.ascending(), &carrier = steps().carrier()](pliant_comm* comm, pliant_stream* stream) {
                 carrier.collectives.must(&pliant_collectives::scatter_pieces, comm, send, recv, table.data(),
                                          table.size(), adds.data(), raw(dtype), stream);
               });
}

void DirectTransport::exchange(const std::vector<Message>& messages, pliant_stream* on) {
  carry_messages(steps(), messages, on);
}

}  // namespace pliant::collectives
