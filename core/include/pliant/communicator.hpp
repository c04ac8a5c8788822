// Communicator: what the ranks of a group exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pliant/accelerator.hpp"

namespace pliant {

/// A part of an array that lies with several ranks: `count` elements, which may be 0, from element `offset` on.
struct ArrayPiece {
  int32_t rank = 0;  ///< whose it is
  uint64_t offset = 0;
  uint64_t count = 0;
  friend bool operator==(const ArrayPiece&, const ArrayPiece&) = default;
};

/// A group of ranks. Collectives enqueue on a stream and return at once, in the same order on every rank. abort() may
/// be called from any thread. An accelerator without collectives of its own gets generic ones, carried by the
/// accelerator `host` where it is found: between ranks of one machine, through pinned memory or, where the processors
/// see it, the device's. Movable.
class Communicator {
 public:
  /// Begins joining; collectives wait until all have.
  Communicator(const Accelerator& accelerator, int32_t device, const CommId& id, int32_t rank, int32_t world_size);
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  [[nodiscard]] int32_t rank() const;
  [[nodiscard]] int32_t world_size() const;
  /// Waits until every rank has joined. Throws kAborted, kPeerLost, or kDeadlineExceeded after timeout_ms (-1 = none).
  void wait_ready(int32_t timeout_ms = -1);
  /// Every present and later wait on it, in this process, ends with kAborted.
  void abort() noexcept;

  /// A communicator without these ranks, ascending, which may be lost: each rank that stays calls it with the same list
  /// and the same id, made by one of them. Ranks close the gaps in their old order. This one takes no more calls, and
  /// is destroyed whenever its owner likes.
  [[nodiscard]] Communicator shrink(std::span<const int32_t> without, const CommId& id);
  /// An id for grow and join, made by one of the ranks of this one.
  [[nodiscard]] CommId make_grow_id(int32_t world_size);
  /// A communicator with more ranks: those of this one keep theirs, new ones call join with those after. The id is made
  /// by make_grow_id on one of the old ranks. This one takes no more calls.
  [[nodiscard]] Communicator grow(const CommId& id, int32_t world_size);
  /// A rank that was not in the communicator that grows.
  [[nodiscard]] static Communicator join(const Accelerator& accelerator, int32_t device, const CommId& id, int32_t rank,
                                         int32_t world_size);

  /// A collective without data: `bytes` from `pointer`, multiples of 4096 and as many on every rank, of
  /// MemoryKind::kWindow, may from here on be exchanged without staging and without compute units, where the
  /// accelerator can (NCCL's windows; ranks of `host` on one machine); elsewhere nothing changes. A collective's buffer
  /// that begins in a window lies in it, at the same offset on every rank: Arena gives such buffers. Only what has the
  /// elements of one rank (send of a gather, recv of reduce_scatter), and what is scattered in pieces, may lie
  /// anywhere. The memory outlives this communicator, and a communicator that was shrunk or grown has no windows. Where
  /// ranks name different sizes or offsets the stream's next synchronize throws kInvalidArgument, or with NCCL, which
  /// cannot tell, the communicator fails or moves what is at the offset of another rank.
  void register_window(void* pointer, uint64_t bytes, Stream& stream);

  void all_reduce(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op, Stream& stream);
  void all_gather(const void* send, void* recv, uint64_t count, DType dtype, Stream& stream);
  void reduce_scatter(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op, Stream& stream);
  void broadcast(void* buffer, uint64_t count, DType dtype, int32_t root, Stream& stream);
  void barrier(Stream& stream);
  /// As all_gather with counts[r] elements of rank r, the same counts on every rank.
  void all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, DType dtype, Stream& stream);
  /// The collectives of pieces: `pieces` are parts of one array, ascending by offset and disjoint, the same on every
  /// rank; a rank may have several, or none. What no piece names stays as it was. In a group nothing else of it uses
  /// what they write, or writes what they read. An accelerator without them sends a message for each piece. Throw
  /// kInvalidArgument for other tables.
  ///
  /// Every rank receives every piece at its place in the array `recv`. Those of this rank lie one after another at
  /// `send`, apart from `recv`; nullptr: they are in their places already.
  void gather_pieces(const void* send, void* recv, std::span<const ArrayPiece> pieces, DType dtype, Stream& stream);
  /// The rank of each piece receives it from every other rank r with adds[r], the same on every rank. Such a rank has a
  /// whole array at `send`, any other nullptr. `recv` has room for world_size() - 1 times the elements of the own
  /// pieces: of each other rank, in rank order, its elements of them, one piece after another; that of a rank that does
  /// not add stays as it was. Nothing is added up.
  void scatter_pieces(const void* send, void* recv, std::span<const ArrayPiece> pieces, const std::vector<bool>& adds,
                      DType dtype, Stream& stream);
  /// One message to `peer`, or from it, of as many elements on both sides; those of two ranks arrive in their order.
  /// The stream goes on when it has been taken, or has arrived; messages that cross belong into a group.
  void send(const void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream);
  void recv(void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream);
  /// Calls between the two are enqueued by end_group, on one stream: collectives in their order, then all messages at
  /// once. One thread at a time.
  void begin_group();
  void end_group();

 private:
  struct State;
  explicit Communicator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pliant
