// Communicators for C.
#include "pliant/communicator.hpp"

#include <algorithm>

#include "device_handles.hpp"
#include "structs.hpp"

struct pliant_communicator_t : pliant::capi::SerialHandle<pliant::capi::Tag::kCommunicator> {
  static constexpr const char* kName = "communicator";
  explicit pliant_communicator_t(pliant::Communicator made) : communicator(std::move(made)) {}

  pliant::Communicator communicator;
  std::atomic<bool> is_over{false};  // it was shrunk or grown
  bool is_in_group = false;
  std::vector<std::shared_ptr<pliant::Stream>> of_group;  // until its calls are enqueued
};

namespace {

/// A call on a communicator that still takes some.
class CommunicatorTurn {
 public:
  explicit CommunicatorTurn(pliant_communicator_t* handle) : turn_(handle) {
    if (turn_->is_over) {
      throw pliant::Error(pliant::Status::kFailedPrecondition,
                          "this communicator was shrunk or grown: use the one that was made of it");
    }
  }
  pliant_communicator_t* operator->() const { return turn_.operator->(); }

 private:
  pliant::capi::Turn<pliant_communicator_t> turn_;
};

/// A call that enqueues on a stream.
class Enqueued {
 public:
  Enqueued(pliant_communicator_t* communicator, pliant_stream_t* stream) : turn_(communicator), on_(stream) {
    if (turn_->is_in_group && on_->own) turn_->of_group.push_back(on_->own);
  }
  [[nodiscard]] pliant::Communicator& communicator() const { return turn_->communicator; }
  [[nodiscard]] pliant::Stream& stream() const { return on_->stream; }

 private:
  CommunicatorTurn turn_;
  pliant::capi::Turn<pliant_stream_t> on_;
};

pliant::CommId id_of(const uint8_t* id) {
  pliant::capi::require(id, "id");
  pliant::CommId made{};
  static_assert(made.size() == PLIANT_COMMUNICATOR_ID_BYTES);
  std::copy_n(id, made.size(), made.begin());
  return made;
}

void write_id(const pliant::CommId& made, uint8_t* id) {
  std::copy(made.begin(), made.end(), id);
}

std::vector<pliant::ArrayPiece> pieces_of(const int32_t* ranks, const uint64_t* parts, uint64_t count) {
  const auto owners = pliant::capi::given_array(ranks, count, "ranks");
  if (count > 0) pliant::capi::require(parts, "parts");
  std::vector<pliant::ArrayPiece> made;
  for (size_t i = 0; i < owners.size(); ++i) made.push_back({owners[i], parts[2 * i], parts[2 * i + 1]});
  return made;
}

}  // namespace

int32_t pliant_communicator_make_id(const pliant_accelerator_t* accelerator, int32_t world_size, uint8_t* id,
                                    pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Accelerator& known = pliant::capi::given(accelerator).accelerator;
    pliant::capi::require(id, "id");
    write_id(known.make_comm_id(world_size), id);
  });
}

int32_t pliant_communicator_make(const pliant_accelerator_t* accelerator, int32_t device, const uint8_t* id,
                                 int32_t rank, int32_t world_size, pliant_communicator_t** communicator,
                                 pliant_error_t* error) {
  return pliant::capi::hand_out(communicator, error, [&] {
    const pliant::Accelerator& known = pliant::capi::given(accelerator).accelerator;
    return std::make_unique<pliant_communicator_t>(pliant::Communicator(known, device, id_of(id), rank, world_size));
  });
}

int32_t pliant_communicator_join(const pliant_accelerator_t* accelerator, int32_t device, const uint8_t* id,
                                 int32_t rank, int32_t world_size, pliant_communicator_t** communicator,
                                 pliant_error_t* error) {
  return pliant::capi::hand_out(communicator, error, [&] {
    const pliant::Accelerator& known = pliant::capi::given(accelerator).accelerator;
    return std::make_unique<pliant_communicator_t>(
        pliant::Communicator::join(known, device, id_of(id), rank, world_size));
  });
}

int32_t pliant_communicator_free(pliant_communicator_t* communicator) {
  return pliant::capi::free_serial(communicator);
}

int32_t pliant_communicator_look(const pliant_communicator_t* communicator, int32_t* rank, int32_t* world_size,
                                 pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant::Communicator& known = pliant::capi::given(communicator).communicator;
    if (rank != nullptr) *rank = known.rank();
    if (world_size != nullptr) *world_size = known.world_size();
  });
}

int32_t pliant_communicator_wait_ready(pliant_communicator_t* communicator, int32_t timeout_ms, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] { CommunicatorTurn(communicator)->communicator.wait_ready(timeout_ms); });
}

int32_t pliant_communicator_abort(pliant_communicator_t* communicator, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant_communicator_t& known = pliant::capi::given(communicator);
    if (!known.is_over) known.communicator.abort();
  });
}

int32_t pliant_communicator_shrink(pliant_communicator_t* communicator, const int32_t* without, uint64_t count,
                                   const uint8_t* id, pliant_communicator_t** shrunk, pliant_error_t* error) {
  return pliant::capi::hand_out(shrunk, error, [&] {
    const CommunicatorTurn known(communicator);
    const auto gone = pliant::capi::given_array(without, count, "without");
    auto made = std::make_unique<pliant_communicator_t>(known->communicator.shrink(gone, id_of(id)));
    known->is_over = true;
    return made;
  });
}

int32_t pliant_communicator_make_grow_id(pliant_communicator_t* communicator, int32_t world_size, uint8_t* id,
                                         pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const CommunicatorTurn known(communicator);
    pliant::capi::require(id, "id");
    write_id(known->communicator.make_grow_id(world_size), id);
  });
}

int32_t pliant_communicator_grow(pliant_communicator_t* communicator, const uint8_t* id, int32_t world_size,
                                 pliant_communicator_t** grown, pliant_error_t* error) {
  return pliant::capi::hand_out(grown, error, [&] {
    const CommunicatorTurn known(communicator);
    auto made = std::make_unique<pliant_communicator_t>(known->communicator.grow(id_of(id), world_size));
    known->is_over = true;
    return made;
  });
}

int32_t pliant_communicator_register_window(pliant_communicator_t* communicator, void* memory, uint64_t bytes,
                                            pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().register_window(memory, bytes, call.stream());
  });
}

int32_t pliant_communicator_all_reduce(pliant_communicator_t* communicator, const void* send, void* receive,
                                       uint64_t count, int32_t dtype, int32_t op, pliant_stream_t* stream,
                                       pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().all_reduce(send, receive, count, pliant::capi::dtype_of(dtype), pliant::capi::reduce_op_of(op),
                                   call.stream());
  });
}

int32_t pliant_communicator_all_gather(pliant_communicator_t* communicator, const void* send, void* receive,
                                       uint64_t count, int32_t dtype, pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().all_gather(send, receive, count, pliant::capi::dtype_of(dtype), call.stream());
  });
}

int32_t pliant_communicator_all_gather_v(pliant_communicator_t* communicator, const void* send, void* receive,
                                         const uint64_t* counts, uint64_t ranks, int32_t dtype, pliant_stream_t* stream,
                                         pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    const auto all = pliant::capi::given_array(counts, ranks, "counts");
    call.communicator().all_gather_v(send, receive, all, pliant::capi::dtype_of(dtype), call.stream());
  });
}

int32_t pliant_communicator_reduce_scatter(pliant_communicator_t* communicator, const void* send, void* receive,
                                           uint64_t count, int32_t dtype, int32_t op, pliant_stream_t* stream,
                                           pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().reduce_scatter(send, receive, count, pliant::capi::dtype_of(dtype),
                                       pliant::capi::reduce_op_of(op), call.stream());
  });
}

int32_t pliant_communicator_broadcast(pliant_communicator_t* communicator, void* memory, uint64_t count, int32_t dtype,
                                      int32_t root, pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().broadcast(memory, count, pliant::capi::dtype_of(dtype), root, call.stream());
  });
}

int32_t pliant_communicator_barrier(pliant_communicator_t* communicator, pliant_stream_t* stream,
                                    pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().barrier(call.stream());
  });
}

int32_t pliant_communicator_gather_pieces(pliant_communicator_t* communicator, const void* send, void* receive,
                                          const int32_t* ranks, const uint64_t* parts, uint64_t pieces, int32_t dtype,
                                          pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().gather_pieces(send, receive, pieces_of(ranks, parts, pieces), pliant::capi::dtype_of(dtype),
                                      call.stream());
  });
}

int32_t pliant_communicator_scatter_pieces(pliant_communicator_t* communicator, const void* send, void* receive,
                                           const int32_t* ranks, const uint64_t* parts, uint64_t pieces,
                                           const uint8_t* adds, uint64_t adders, int32_t dtype, pliant_stream_t* stream,
                                           pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    const auto by_rank = pliant::capi::given_array(adds, adders, "adds");
    std::vector<bool> known;
    for (const uint8_t one : by_rank) known.push_back(one != 0);
    call.communicator().scatter_pieces(send, receive, pieces_of(ranks, parts, pieces), known,
                                       pliant::capi::dtype_of(dtype), call.stream());
  });
}

int32_t pliant_communicator_send(pliant_communicator_t* communicator, const void* memory, uint64_t count, int32_t dtype,
                                 int32_t peer, pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().send(memory, count, pliant::capi::dtype_of(dtype), peer, call.stream());
  });
}

int32_t pliant_communicator_receive(pliant_communicator_t* communicator, void* memory, uint64_t count, int32_t dtype,
                                    int32_t peer, pliant_stream_t* stream, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const Enqueued call(communicator, stream);
    call.communicator().recv(memory, count, pliant::capi::dtype_of(dtype), peer, call.stream());
  });
}

int32_t pliant_communicator_begin_group(pliant_communicator_t* communicator, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const CommunicatorTurn known(communicator);
    known->communicator.begin_group();
    known->is_in_group = true;
  });
}

int32_t pliant_communicator_end_group(pliant_communicator_t* communicator, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const CommunicatorTurn known(communicator);
    known->is_in_group = false;
    const auto streams = std::exchange(known->of_group, {});
    known->communicator.end_group();
  });
}
