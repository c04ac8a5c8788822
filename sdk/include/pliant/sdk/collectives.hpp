// Gives an accelerator the extension pliant.collectives/0: return collectives_table<T>() from `extension` for
// PLIANT_COLLECTIVES. The SDK owns the handles and checks every argument that can be checked before the class sees it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "pliant/abi/collectives.h"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/pieces.hpp"

namespace pliant::sdk {

namespace detail {

namespace check {

/// Throws PLIANT_INVALID_ARGUMENT, about `rank`, unless `holds`. `message`: as in require().
template <class Message>
void of_rank(int32_t rank, bool holds, Message&& message) {
  if (!holds) throw Failure(PLIANT_INVALID_ARGUMENT, message()).about_rank(rank);
}

/// Ranks that leave a communicator: ascending, inside it, not this one. Throws PLIANT_INVALID_ARGUMENT.
inline void leaving(std::span<const int32_t> without, int32_t rank, int32_t world_size) {
  int32_t last = -1;
  for (const int32_t one : without) {
    of_rank(one, one >= 0 && one < world_size, [&] {
      return "rank " + std::to_string(one) + ", which is to leave, is outside 0.." + std::to_string(world_size - 1) +
             " of this communicator";
    });
    of_rank(one, one > last, [&] {
      return "the ranks that leave are not in ascending order: " + std::to_string(one) + " after " +
             std::to_string(last);
    });
    of_rank(one, one != rank,
            [&] { return "rank " + std::to_string(rank) + " cannot leave a communicator and stay in it"; });
    last = one;
  }
}

/// A communicator of `old_size` grows to `world_size`, and a rank of it keeps its number. Throws
/// PLIANT_INVALID_ARGUMENT.
inline void growing(int32_t rank, int32_t world_size, int32_t old_rank, int32_t old_size) {
  require(world_size > old_size,
          "a communicator of " + std::to_string(old_size) + " ranks cannot grow to " + std::to_string(world_size));
  of_rank(rank, rank == old_rank, [&] {
    return "rank " + std::to_string(old_rank) + " keeps its number when a communicator grows; got " +
           std::to_string(rank);
  });
}

/// Throws PLIANT_INVALID_ARGUMENT.
inline void window(const void* pointer, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  require(bytes != 0, "a window of 0 bytes; it has at least 4096");
  require(pointer != nullptr, "the memory of the window is NULL");
  require(bytes % kPage == 0,
          "a window of " + std::to_string(bytes) + " bytes; its size is a multiple of " + std::to_string(kPage));
  const uint64_t past = reinterpret_cast<uintptr_t>(pointer) % kPage;
  require(past == 0, "the window begins " + std::to_string(past) + " bytes past a multiple of 4096; begin at one");
}

/// Of a communicator of `world_size` ranks. Throws PLIANT_INVALID_ARGUMENT unless the pieces are ascending and
/// disjoint, of elements that memory can hold.
inline PieceTable pieces(const pliant_piece* given, uint64_t count, int32_t dtype, int32_t world_size) {
  require(given != nullptr || count == 0, "the table of pieces is NULL");
  uint64_t end = elements(0, dtype, 1).count;
  for (uint64_t i = 0; i < count; ++i) {
    const pliant_piece& one = given[i];
    of_rank(one.rank, one.rank >= 0 && one.rank < world_size, [&] {
      return "piece " + std::to_string(i) + " is of rank " + std::to_string(one.rank) + ", outside 0.." +
             std::to_string(world_size - 1) + " of this communicator";
    });
    require(one.offset >= end, [&] {
      return "piece " + std::to_string(i) + " begins at element " + std::to_string(one.offset) +
             ", before the end of the one before it at " + std::to_string(end) + "; pieces ascend and are disjoint";
    });
    elements(one.offset, dtype, 1);  // so that the two add up to no more than 64 bits hold
    elements(one.count, dtype, 1);
    end = elements(one.offset + one.count, dtype, 1).count;
  }
  return {{given, count}, world_size};
}

/// Of gather_pieces by `rank`: `send`, or NULL where its pieces are in their places already. Throws
/// PLIANT_INVALID_ARGUMENT.
inline const void* gathered(const void* send, void* recv, const PieceTable& table, DType dtype, int32_t rank) {
  const Elements whole{table.end(), dtype};
  const Elements packed{table.owned(rank), dtype};
  buffer(recv, whole, "the receive buffer");
  const std::span<const PieceTable::Piece> own = table.of(rank);
  if (own.empty() || send == nullptr) return nullptr;
  const uint64_t first = own.front().offset * size_of(dtype);
  if (own.size() == 1 && send == static_cast<const std::byte*>(recv) + first) return nullptr;
  buffer(send, packed, "the send buffer");
  apart(recv, whole.bytes(), send, packed.bytes());
  return send;
}

/// Of scatter_pieces by `rank`. Throws PLIANT_INVALID_ARGUMENT.
inline void scattered(const void* send, const void* recv, const PieceTable& table, const uint8_t* adds, DType dtype,
                      int32_t rank) {
  require(adds != nullptr, "the array that says which ranks add is NULL");
  const auto others = static_cast<uint64_t>(table.world_size() - 1);
  const Elements received = elements(table.owned(rank), static_cast<int32_t>(dtype), std::max<uint64_t>(1, others));
  buffer(recv, Elements{received.count * others, dtype}, "the receive buffer");
  if (adds[rank] != 0) return buffer(send, Elements{table.end(), dtype}, "the send buffer");
  of_rank(rank, send == nullptr,
          [&] { return "rank " + std::to_string(rank) + " has an array to send but does not add"; });
}

}  // namespace check

template <class T>
struct CollectivesAdapter : private AcceleratorAdapter<T> {
  using Comm = typename T::Comm;
  using AcceleratorAdapter<T>::device_of;
  using AcceleratorAdapter<T>::known_device;
  using AcceleratorAdapter<T>::open;

  static Comm& open(pliant_comm* handle) {
    require(handle != nullptr, "the communicator is NULL");
    return *reinterpret_cast<Comm*>(handle);
  }

  static int32_t comm_id(void* self, int32_t world_size, pliant_comm_id* id, pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(world_size >= 1, "a communicator needs at least 1 rank; got " + std::to_string(world_size));
      *id = device_of(self).make_comm_id(world_size);
    });
  }
  static int32_t comm_create(void* self, int32_t device, const pliant_comm_id* id, int32_t rank, int32_t world_size,
                             pliant_comm** out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      known_device(device_of(self), device);
      require(world_size >= 1, "a communicator needs at least 1 rank; got " + std::to_string(world_size));
      check::of_rank(rank, rank >= 0 && rank < world_size, [&] {
        return "rank " + std::to_string(rank) + " is outside 0.." + std::to_string(world_size - 1) + " of world size " +
               std::to_string(world_size);
      });
      std::unique_ptr<Comm> made = device_of(self).make_comm(device, *id, rank, world_size);
      *out = reinterpret_cast<pliant_comm*>(made.release());
    });
  }
  static int32_t comm_status(void* self, pliant_comm* comm, int32_t timeout_ms, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).wait_ready(open(comm), timeout_ms); });
  }
  static void comm_abort(void* self, pliant_comm* comm) noexcept {
    if (comm != nullptr) guarded(nullptr, [&] { device_of(self).abort(open(comm)); });
  }
  static void comm_destroy(void*, pliant_comm* handle) noexcept { delete reinterpret_cast<Comm*>(handle); }

  static int32_t all_reduce(void* self, pliant_comm* comm, const void* send, void* recv, uint64_t count, int32_t dtype,
                            int32_t op, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements elements = check::elements(count, dtype, 1);
      check::buffer(send, elements, "the send buffer");
      check::buffer(recv, elements, "the receive buffer");
      device_of(self).all_reduce(open(comm), send, recv, elements, check::op(op), open(stream));
    });
  }
  static int32_t all_gather(void* self, pliant_comm* comm, const void* send, void* recv, uint64_t count, int32_t dtype,
                            pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements elements = check::elements(count, dtype, ranks_of(self, comm));
      check::buffer(send, elements, "the send buffer");
      check::buffer(recv, elements, "the receive buffer");
      device_of(self).all_gather(open(comm), send, recv, elements, open(stream));
    });
  }
  static int32_t reduce_scatter(void* self, pliant_comm* comm, const void* send, void* recv, uint64_t count,
                                int32_t dtype, int32_t op, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements elements = check::elements(count, dtype, ranks_of(self, comm));
      check::buffer(send, elements, "the send buffer");
      check::buffer(recv, elements, "the receive buffer");
      device_of(self).reduce_scatter(open(comm), send, recv, elements, check::op(op), open(stream));
    });
  }
  static int32_t broadcast(void* self, pliant_comm* comm, void* buffer, uint64_t count, int32_t dtype, int32_t root,
                           pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements elements = check::elements(count, dtype, 1);
      check::buffer(buffer, elements, "the buffer");
      known_rank(self, comm, root, "root");
      device_of(self).broadcast(open(comm), buffer, elements, root, open(stream));
    });
  }
  static int32_t barrier(void* self, pliant_comm* comm, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).barrier(open(comm), open(stream)); });
  }
  static int32_t all_gather_v(void* self, pliant_comm* comm, const void* send, void* recv, const uint64_t* counts,
                              int32_t dtype, pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(counts != nullptr, "the array of counts is NULL");
      const std::span<const uint64_t> all(counts, ranks_of(self, comm));
      Elements total = check::elements(0, dtype, 1);
      for (const uint64_t count : all) {
        check::elements(count, dtype, 1);  // so that two of them add up to no more than 64 bits hold
        total = check::elements(total.count + count, dtype, 1);
      }
      check::buffer(send, {all[static_cast<size_t>(device_of(self).rank(open(comm)))], total.dtype}, "the send buffer");
      check::buffer(recv, total, "the receive buffer");
      device_of(self).all_gather_v(open(comm), send, recv, all, total.dtype, open(stream));
    });
  }
  static int32_t send(void* self, pliant_comm* comm, const void* buffer, uint64_t count, int32_t dtype, int32_t peer,
                      pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements elements = check::elements(count, dtype, 1);
      check::buffer(buffer, elements, "the send buffer");
      known_rank(self, comm, peer, "peer");
      device_of(self).send(open(comm), buffer, elements, peer, open(stream));
    });
  }
  static int32_t recv(void* self, pliant_comm* comm, void* buffer, uint64_t count, int32_t dtype, int32_t peer,
                      pliant_stream* stream, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const Elements elements = check::elements(count, dtype, 1);
      check::buffer(buffer, elements, "the receive buffer");
      known_rank(self, comm, peer, "peer");
      device_of(self).recv(open(comm), buffer, elements, peer, open(stream));
    });
  }
  static int32_t group_begin(void* self, pliant_comm* comm, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).begin_group(open(comm)); });
  }
  static int32_t group_end(void* self, pliant_comm* comm, pliant_error* error) noexcept {
    return guarded(error, [&] { device_of(self).end_group(open(comm)); });
  }

  static int32_t comm_shrink(void* self, pliant_comm* comm, const int32_t* without, int32_t count,
                             const pliant_comm_id* id, pliant_comm** out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      require(without != nullptr && count >= 1, "the list of ranks that leave is empty");
      const std::span<const int32_t> leaving(without, static_cast<size_t>(count));
      Comm& old = open(comm);
      check::leaving(leaving, device_of(self).rank(old), device_of(self).world_size(old));
      *out = reinterpret_cast<pliant_comm*>(device_of(self).shrink(old, leaving, *id).release());
    });
  }
  static int32_t comm_grow(void* self, int32_t device, pliant_comm* comm, const pliant_comm_id* id, int32_t rank,
                           int32_t world_size, pliant_comm** out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      known_device(device_of(self), device);
      auto* const old = reinterpret_cast<Comm*>(comm);
      if (old != nullptr)
        check::growing(rank, world_size, device_of(self).rank(*old), device_of(self).world_size(*old));
      *out = reinterpret_cast<pliant_comm*>(device_of(self).grow(device, old, *id, rank, world_size).release());
    });
  }
  static int32_t comm_grow_id(void* self, pliant_comm* comm, int32_t world_size, pliant_comm_id* id,
                              pliant_error* error) noexcept {
    return guarded(error, [&] {
      Comm& old = open(comm);
      check::growing(device_of(self).rank(old), world_size, device_of(self).rank(old), device_of(self).world_size(old));
      *id = device_of(self).make_grow_id(old, world_size);
    });
  }
  static int32_t device_key(void* self, int32_t device, uint64_t* key, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *key = 0;
      known_device(device_of(self), device);
      *key = device_of(self).device_key(device);
    });
  }
  static int32_t register_window(void* self, pliant_comm* comm, void* pointer, uint64_t bytes, pliant_stream* stream,
                                 pliant_error* error) noexcept {
    return guarded(error, [&] {
      check::window(pointer, bytes);
      device_of(self).register_window(open(comm), pointer, bytes, open(stream));
    });
  }
  static int32_t comm_query(void* self, pliant_comm* comm, int32_t* done, pliant_error* error) noexcept {
    return guarded(error, [&] {
      *done = 0;
      *done = device_of(self).query(open(comm)) ? 1 : 0;
    });
  }
  static int32_t gather_pieces(void* self, pliant_comm* comm, const void* send, void* recv, const pliant_piece* pieces,
                               uint64_t piece_count, int32_t dtype, pliant_stream* stream,
                               pliant_error* error) noexcept {
    return guarded(error, [&] {
      PieceTable table = check::pieces(pieces, piece_count, dtype, device_of(self).world_size(open(comm)));
      const auto type = static_cast<DType>(dtype);
      const void* const from = check::gathered(send, recv, table, type, device_of(self).rank(open(comm)));
      device_of(self).gather_pieces(open(comm), from, recv, std::move(table), type, open(stream));
    });
  }
  static int32_t scatter_pieces(void* self, pliant_comm* comm, const void* send, void* recv, const pliant_piece* pieces,
                                uint64_t piece_count, const uint8_t* adds, int32_t dtype, pliant_stream* stream,
                                pliant_error* error) noexcept {
    return guarded(error, [&] {
      PieceTable table = check::pieces(pieces, piece_count, dtype, device_of(self).world_size(open(comm)));
      const auto type = static_cast<DType>(dtype);
      check::scattered(send, recv, table, adds, type, device_of(self).rank(open(comm)));
      const std::span<const uint8_t> all(adds, static_cast<size_t>(table.world_size()));
      device_of(self).scatter_pieces(open(comm), send, recv, std::move(table), all, type, open(stream));
    });
  }
  static constexpr auto gather_pieces_slot() -> decltype(&gather_pieces) {
    if constexpr (requires { &T::gather_pieces; }) return &gather_pieces;
    return nullptr;
  }
  static constexpr auto scatter_pieces_slot() -> decltype(&scatter_pieces) {
    if constexpr (requires { &T::scatter_pieces; }) return &scatter_pieces;
    return nullptr;
  }
  static constexpr auto query_slot() -> decltype(&comm_query) {
    if constexpr (requires(T & device, Comm & comm) { device.query(comm); }) return &comm_query;
    return nullptr;
  }
  static constexpr auto window_slot() -> decltype(&register_window) {
    if constexpr (requires { &T::register_window; }) return &register_window;
    return nullptr;
  }
  static constexpr auto grow_id_slot() -> decltype(&comm_grow_id) {
    if constexpr (requires { &T::make_grow_id; }) return &comm_grow_id;
    return nullptr;
  }
  static constexpr auto device_key_slot() -> decltype(&device_key) {
    if constexpr (requires { &T::device_key; }) return &device_key;
    return nullptr;
  }
  static constexpr auto shrink_slot() -> decltype(&comm_shrink) {
    if constexpr (requires { &T::shrink; }) return &comm_shrink;
    return nullptr;
  }
  static constexpr auto grow_slot() -> decltype(&comm_grow) {
    if constexpr (requires { &T::grow; }) return &comm_grow;
    return nullptr;
  }

  static uint64_t ranks_of(void* self, pliant_comm* comm) {
    return static_cast<uint64_t>(device_of(self).world_size(open(comm)));
  }
  static void known_rank(void* self, pliant_comm* comm, int32_t rank, const char* what) {
    const int32_t ranks = device_of(self).world_size(open(comm));
    check::of_rank(rank, rank >= 0 && rank < ranks, [&] {
      return std::string(what) + " " + std::to_string(rank) + " is outside 0.." + std::to_string(ranks - 1) +
             " of this communicator";
    });
  }
};

}  // namespace detail

/// The extension's table for accelerator class T, which has
///   pliant_comm_id make_comm_id(int32_t world_size);
///   std::unique_ptr<Comm> make_comm(int32_t device, const pliant_comm_id&, int32_t rank, int32_t world_size);
///   int32_t world_size(const Comm&);   int32_t rank(const Comm&);
///   void wait_ready(Comm&, int32_t timeout_ms);                // throws Failure unless ready
///   void abort(Comm&);
///   void all_reduce(Comm&, const void* send, void* recv, Elements, ReduceOp, Stream&);
///   void all_gather(Comm&, const void* send, void* recv, Elements, Stream&);
///   void reduce_scatter(Comm&, const void* send, void* recv, Elements, ReduceOp, Stream&);
///   void broadcast(Comm&, void* buffer, Elements, int32_t root, Stream&);
///   void barrier(Comm&, Stream&);
///   void all_gather_v(Comm&, const void* send, void* recv, std::span<const uint64_t> counts, DType, Stream&);
///   void send(Comm&, const void* buffer, Elements, int32_t peer, Stream&);
///   void recv(Comm&, void* buffer, Elements, int32_t peer, Stream&);
///   void begin_group(Comm&);   void end_group(Comm&);
///   using Comm = ...;                                          // destroyed by its destructor
/// and may have, where that is cheaper than a new communicator,
///   std::unique_ptr<Comm> shrink(Comm&, std::span<const int32_t> without, const pliant_comm_id&);
///   std::unique_ptr<Comm> grow(int32_t device, Comm* /* NULL: joins */, const pliant_comm_id&, int32_t rank,
///                              int32_t world_size);
///   pliant_comm_id make_grow_id(Comm&, int32_t world_size);    // where grow takes another id than make_comm gets
/// and, where no two of its ranks may share a device,
///   uint64_t device_key(int32_t device);                       // the same in all processes of the machine
/// and, where collectives are faster on memory that the communicator knows beforehand,
///   void register_window(Comm&, void* pointer, uint64_t bytes, Stream&);
/// and, where peers that wait for a rank which destroys its communicator may not notice,
///   bool query(Comm&);                                         // all joined and all ended: nothing to abort
/// and, where that is cheaper than a message for each piece, both of
///   void gather_pieces(Comm&, const void* send /* NULL: the own ones are in their places */, void* recv, PieceTable,
///                      DType, Stream&);
///   void scatter_pieces(Comm&, const void* send, void* recv, PieceTable, std::span<const uint8_t> adds, DType,
///                       Stream&);
template <class T>
const pliant_collectives* collectives_table() {
  using A = detail::CollectivesAdapter<T>;
  static const pliant_collectives kTable{sizeof(pliant_collectives),
                                         0,
                                         &A::comm_id,
                                         &A::comm_create,
                                         &A::comm_status,
                                         &A::comm_abort,
                                         &A::comm_destroy,
                                         &A::all_reduce,
                                         &A::all_gather,
                                         &A::reduce_scatter,
                                         &A::broadcast,
                                         &A::barrier,
                                         &A::all_gather_v,
                                         &A::send,
                                         &A::recv,
                                         &A::group_begin,
                                         &A::group_end,
                                         A::shrink_slot(),
                                         A::grow_slot(),
                                         A::grow_id_slot(),
                                         A::device_key_slot(),
                                         A::window_slot(),
                                         A::query_slot(),
                                         A::gather_pieces_slot(),
                                         A::scatter_pieces_slot()};
  return &kTable;
}

}  // namespace pliant::sdk
