/* Extension pliant.collectives/0 of an accelerator: what the ranks of a communicator exchange. C11, append-only.
 *
 * Collectives are enqueued on streams and return at once. A failure (a lost rank, an abort) is reported by the next
 * stream_synchronize or event_synchronize on that stream, and by comm_status. */
#ifndef PLIANT_ABI_COLLECTIVES_H
#define PLIANT_ABI_COLLECTIVES_H

#include "pliant/abi/accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_COLLECTIVES "pliant.collectives/0"

typedef struct pliant_comm pliant_comm;

/* Names one communicator-to-be. Made by one rank, carried to the others by any means, used once. */
typedef struct pliant_comm_id {
  uint8_t bytes[128];
} pliant_comm_id;

/* A part of an array that lies with several ranks: `count` elements, which may be 0, from element `offset` on. */
typedef struct pliant_piece {
  int32_t rank; /* whose it is */
  uint32_t reserved;
  uint64_t offset;
  uint64_t count;
} pliant_piece;

typedef struct pliant_collectives {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any-thread] Makes an id; the rank that makes it must be one of the communicator and keep the instance alive until
   * its own comm_create returned. */
  int32_t (*comm_id)(void* self, int32_t world_size, pliant_comm_id* id, pliant_error* error);
  /* [any-thread] Begins joining and returns at once. The communicator is ready when comm_status says PLIANT_OK;
   * collectives enqueued before wait for that. */
  int32_t (*comm_create)(void* self, int32_t device, const pliant_comm_id* id, int32_t rank, int32_t world_size,
                         pliant_comm** out, pliant_error* error);
  /* [any-thread] Waits up to timeout_ms (-1: without limit) until the communicator is ready or has failed. PLIANT_OK:
   * ready; PLIANT_DEADLINE_EXCEEDED: not yet; PLIANT_ABORTED or PLIANT_PEER_LOST: it failed, for good. */
  int32_t (*comm_status)(void* self, pliant_comm* comm, int32_t timeout_ms, pliant_error* error);
  /* [any-thread] Every present and later wait on this communicator, in this process, ends with PLIANT_ABORTED.
   * Idempotent. */
  void (*comm_abort)(void* self, pliant_comm* comm);
  /* [any-thread] Aborts what is still running and frees. Peers that still wait see PLIANT_PEER_LOST. */
  void (*comm_destroy)(void* self, pliant_comm* comm);

  /* [any-thread] Collectives: same order of calls on every rank. count is in elements; send == recv is allowed where
   * sizes are equal. all_gather: recv holds world_size * count, rank order. reduce_scatter: send holds world_size *
   * count, rank r receives part r. PLIANT_SUM adds in rank order where PLIANT_CAP_FIXED_ORDER is set. */
  int32_t (*all_reduce)(void* self, pliant_comm* comm, const void* send, void* recv, uint64_t count, int32_t dtype,
                        int32_t op, pliant_stream* stream, pliant_error* error);
  int32_t (*all_gather)(void* self, pliant_comm* comm, const void* send, void* recv, uint64_t count, int32_t dtype,
                        pliant_stream* stream, pliant_error* error);
  int32_t (*reduce_scatter)(void* self, pliant_comm* comm, const void* send, void* recv, uint64_t count, int32_t dtype,
                            int32_t op, pliant_stream* stream, pliant_error* error);
  int32_t (*broadcast)(void* self, pliant_comm* comm, void* buffer, uint64_t count, int32_t dtype, int32_t root,
                       pliant_stream* stream, pliant_error* error);
  int32_t (*barrier)(void* self, pliant_comm* comm, pliant_stream* stream, pliant_error* error);
  /* [any-thread] As all_gather, with counts[r] elements of rank r: send holds counts[own rank], recv all of them, in
   * rank order. The world_size counts are the same on every rank; the array may be gone when it returns. */
  int32_t (*all_gather_v)(void* self, pliant_comm* comm, const void* send, void* recv, const uint64_t* counts,
                          int32_t dtype, pliant_stream* stream, pliant_error* error);

  /* [any-thread] One message from this rank to `peer`, or from it: as many elements of one type on both sides. Messages
   * between two ranks arrive in the order of the calls. The stream goes on when the message has been taken, or has
   * arrived; so ranks whose messages cross put their calls into a group. In a group a rank may be its own peer. */
  int32_t (*send)(void* self, pliant_comm* comm, const void* buffer, uint64_t count, int32_t dtype, int32_t peer,
                  pliant_stream* stream, pliant_error* error);
  int32_t (*recv)(void* self, pliant_comm* comm, void* buffer, uint64_t count, int32_t dtype, int32_t peer,
                  pliant_stream* stream, pliant_error* error);

  /* [any-thread] What is called on the communicator between the two is enqueued by group_end, as one piece of work:
   * the collectives in the order of the calls, then all messages at once, whichever side comes first. All calls name
   * one stream. Groups do not nest, and between begin and end one thread only calls on the communicator. When
   * group_end fails nothing is enqueued and the group is over. */
  int32_t (*group_begin)(void* self, pliant_comm* comm, pliant_error* error);
  int32_t (*group_end)(void* self, pliant_comm* comm, pliant_error* error);

  /* The next two may be NULL: the host then aborts the old communicator and creates the new one. Both return at once,
   * as comm_create does; the old communicator, which may have failed, takes no more calls but comm_abort and
   * comm_destroy, and is destroyed by the caller, before or after.
   *
   * [any-thread] A communicator without `count` ranks, in ascending order and not this one: each rank that stays calls
   * it with the same list and the same id, made by one of them. Ranks close the gaps in their old order. */
  int32_t (*comm_shrink)(void* self, pliant_comm* comm, const int32_t* without, int32_t count, const pliant_comm_id* id,
                         pliant_comm** out, pliant_error* error);
  /* [any-thread] A communicator with more ranks: those of the old one keep their ranks and pass it, new ranks pass
   * NULL and take the ranks after. The id is made by one of the old ranks. */
  int32_t (*comm_grow)(void* self, int32_t device, pliant_comm* comm, const pliant_comm_id* id, int32_t rank,
                       int32_t world_size, pliant_comm** out, pliant_error* error);
  /* [any-thread] An id for comm_grow of `comm` to world_size ranks, made by one of its ranks and used once. May be
   * NULL: comm_id serves then. */
  int32_t (*comm_grow_id)(void* self, pliant_comm* comm, int32_t world_size, pliant_comm_id* id, pliant_error* error);
  /* [any-thread] May be NULL. Names the device itself: the same number in all processes of a machine. An accelerator
   * that has this slot cannot join two ranks on one device; the host then lets the ranks of a communicator, all of one
   * machine, tell each other where they are, and takes these collectives only where no two share a device. */
  int32_t (*device_key)(void* self, int32_t device, uint64_t* key, pliant_error* error);
  /* [any-thread] May be NULL: the memory then is as any other. A collective without data: the `bytes` from `pointer`,
   * multiples of 4096 and as many on every rank, of PLIANT_MEMORY_WINDOW, become a window of this communicator.
   * Collectives behind it whose buffers lie in windows may then be moved without staging and without the compute
   * units of the device. A buffer that begins in a window lies in it, at the same offset on every rank; only what has
   * the elements of one rank (send of a gather, recv of reduce_scatter), and both arrays of scatter_pieces, may lie
   * anywhere. The window ends with the communicator, of which shrink and grow take none along; its memory is freed
   * after that. */
  int32_t (*register_window)(void* self, pliant_comm* comm, void* pointer, uint64_t bytes, pliant_stream* stream,
                             pliant_error* error);
  /* [any-thread] May be NULL. *done is 1 when all ranks have joined and all that this rank has enqueued on the
   * communicator has ended, so that comm_destroy aborts nothing; else 0. */
  int32_t (*comm_query)(void* self, pliant_comm* comm, int32_t* done, pliant_error* error);

  /* The next two may be NULL, both or neither: the host then sends a message for each piece. `pieces` are piece_count
   * parts of one array, ascending by offset and disjoint, all of one type, the same on every rank; a rank may have
   * several, or none. The table may be gone when they return. What no piece names stays as it was. In a group nothing
   * else of it uses what they write, or writes what they read.
   *
   * [any-thread] Every rank receives every piece at its place in the array recv. The pieces of this rank lie one after
   * another at `send`, apart from recv. Or they are in their places already: `send` is NULL, or, of pieces that lie
   * side by side, the place of the first. */
  int32_t (*gather_pieces)(void* self, pliant_comm* comm, const void* send, void* recv, const pliant_piece* pieces,
                           uint64_t piece_count, int32_t dtype, pliant_stream* stream, pliant_error* error);
  /* [any-thread] The rank of each piece receives it from every other rank that adds: those whose byte of `adds`, one
   * for each rank and the same on all of them, is not 0. Such a rank has a whole array at `send`; any other has NULL.
   * recv has room for world_size - 1 times the elements of the own pieces: of each other rank, in rank order, its
   * elements of them, one piece after another; the room of a rank that does not add stays as it was. Nothing is
   * added up. */
  int32_t (*scatter_pieces)(void* self, pliant_comm* comm, const void* send, void* recv, const pliant_piece* pieces,
                            uint64_t piece_count, const uint8_t* adds, int32_t dtype, pliant_stream* stream,
                            pliant_error* error);
} pliant_collectives;

#ifdef __cplusplus
}
#endif
#endif
