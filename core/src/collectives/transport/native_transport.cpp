// Passes calls on, and counts them.
#include "collectives/transport/native_transport.hpp"

#include <string>

#include "collectives/transport/pieces.hpp"

namespace pliant::collectives {

using sdk::Elements;
using sdk::Failure;

void NativeTransport::all_reduce(const void* send, void* recv, Elements elements, sdk::ReduceOp op, pliant_stream* on) {
  comm_.call(&pliant_collectives::all_reduce, send, recv, elements.count, raw(elements.dtype), raw(op), on);
}

void NativeTransport::all_gather(const void* send, void* recv, Elements elements, pliant_stream* on) {
  comm_.call(&pliant_collectives::all_gather, send, recv, elements.count, raw(elements.dtype), on);
}

void NativeTransport::reduce_scatter(const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                     pliant_stream* on) {
  comm_.call(&pliant_collectives::reduce_scatter, send, recv, elements.count, raw(elements.dtype), raw(op), on);
}

void NativeTransport::broadcast(void* buffer, Elements elements, int32_t root, pliant_stream* on) {
  comm_.call(&pliant_collectives::broadcast, buffer, elements.count, raw(elements.dtype), root, on);
}

void NativeTransport::barrier(pliant_stream* on) {
  comm_.call(&pliant_collectives::barrier, on);
}

void NativeTransport::all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                                   pliant_stream* on) {
  comm_.call(&pliant_collectives::all_gather_v, send, recv, counts.data(), raw(dtype), on);
}

void NativeTransport::gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                                    pliant_stream* on) {
  const std::vector<pliant_piece> table = pieces.ascending();
  comm_.call(&pliant_collectives::gather_pieces, send, recv, table.data(), table.size(), raw(dtype), on);
}

void NativeTransport::scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces,
                                     const std::vector<uint8_t>& adds, sdk::DType dtype, pliant_stream* on) {
  const std::vector<pliant_piece> table = pieces.ascending();
  comm_.call(&pliant_collectives::scatter_pieces, send, recv, table.data(), table.size(), adds.data(), raw(dtype), on);
}

void NativeTransport::register_window(void* pointer, uint64_t bytes, pliant_stream* on) {
  if (comm_.has_windows()) comm_.call(&pliant_collectives::register_window, pointer, bytes, on);
}

void NativeTransport::exchange(const std::vector<Message>& messages, pliant_stream* on) {
  for (const Message& message : messages) {
    const int32_t dtype = raw(message.elements.dtype);
    const uint64_t count = message.elements.count;
    if (message.is_send) {
      comm_.call(&pliant_collectives::send, message.buffer, count, dtype, message.peer, on);
    } else {
      comm_.call(&pliant_collectives::recv, message.buffer, count, dtype, message.peer, on);
    }
    if (mailbox_ != nullptr) mailbox_->count_message(message.is_send, message.peer);
  }
}

void NativeTransport::in_group(const std::function<void()>& calls) {
  comm_.call(&pliant_collectives::group_begin);
  try {
    calls();
    comm_.call(&pliant_collectives::group_end);
  } catch (const Failure& failure) {
    // Some of its calls may be with the collectives already, and the peers make all of them.
    watch_.fail(Failure(PLIANT_ABORTED, std::string("a group failed: ") + failure.what())
                    .about_rank(failure.rank())
                    .about_device(failure.device()));
    throw;
  }
}

void NativeTransport::count_collectives(size_t count) {
  if (mailbox_ == nullptr) return;
  for (size_t i = 0; i < count; ++i) mailbox_->count_collective();
}

}  // namespace pliant::collectives
