/* Kind pliant.accelerator/0: memory, streams, events and work of one device type; collectives are an extension of it,
 * collectives.h. C11, append-only.
 *
 * Work is enqueued on streams and runs in stream order; a call that takes a stream returns at once. A failure of
 * enqueued work (a lost rank, an abort) is reported by the next stream_synchronize or event_synchronize on that stream.
 * Handles are opaque and belong to the plugin until their destroy slot is called. */
#ifndef PLIANT_ABI_ACCELERATOR_H
#define PLIANT_ABI_ACCELERATOR_H

#include "pliant/abi/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_KIND_ACCELERATOR "pliant.accelerator/0"

typedef struct pliant_stream pliant_stream;
typedef struct pliant_event pliant_event;

/* The last three only where the capability of their name is set; without it pinned and device memory serve. */
enum {
  PLIANT_MEMORY_DEVICE = 1,
  PLIANT_MEMORY_PINNED = 2,   /* the CPU's, where the device copies fastest */
  PLIANT_MEMORY_SHARED = 3,   /* one address that both the CPU and the device read and write */
  PLIANT_MEMORY_EXCHANGE = 4, /* device memory that other ranks map (ipc.h) */
  PLIANT_MEMORY_WINDOW = 5    /* device memory, 4096-byte aligned, that register_window takes (collectives.h) */
};
/* PLIANT_F16 is IEEE binary16, PLIANT_BF16 the upper half of a float. */
enum { PLIANT_F32 = 1, PLIANT_F64 = 2, PLIANT_I32 = 3, PLIANT_I64 = 4, PLIANT_U8 = 5, PLIANT_F16 = 6, PLIANT_BF16 = 7 };
enum { PLIANT_SUM = 1, PLIANT_MIN = 2, PLIANT_MAX = 3 };
enum {
  PLIANT_CAP_HOST_VISIBLE = 1, /* device memory may be read and written by the CPU */
  PLIANT_CAP_FIXED_ORDER = 2,  /* collective reductions add in rank order: same input, same bits */
  PLIANT_CAP_SHARED_MEMORY = 4,
  PLIANT_CAP_EXCHANGE_MEMORY = 8,
  PLIANT_CAP_WINDOW_MEMORY = 16
};

/* What a stream is for: a device may have engines of its own for each. Hints, as is the priority. */
enum {
  PLIANT_STREAM_COMPUTE = 0,
  PLIANT_STREAM_GATHER = 1,
  PLIANT_STREAM_SCATTER = 2,
  PLIANT_STREAM_TO_DEVICE = 3,
  PLIANT_STREAM_TO_HOST = 4
};
enum { PLIANT_PRIORITY_LOW = -1, PLIANT_PRIORITY_NORMAL = 0, PLIANT_PRIORITY_HIGH = 1 };
enum {
  PLIANT_EVENT_TIMING = 1,  /* event_elapsed may ask for it */
  PLIANT_EVENT_EXPORTED = 2 /* export_event may ask for it (ipc.h); not together with the other */
};

/* One copy of a batch. */
typedef struct pliant_copy {
  void* to;
  const void* from;
  uint64_t bytes;
} pliant_copy;

typedef struct pliant_device_properties {
  uint32_t struct_size;  /* set by the host */
  uint32_t capabilities; /* PLIANT_CAP_* */
  uint64_t memory_bytes;
  char name[256];
} pliant_device_properties;

/* What memory a pointer leads to. */
typedef struct pliant_pointer_info {
  uint32_t struct_size; /* set by the host */
  int32_t memory;       /* PLIANT_MEMORY_*; _DEVICE may stand for _EXCHANGE and _WINDOW. 0: none that is known */
  int32_t device;       /* whose it is; -1: of no device more than of another, as pinned memory may be */
  uint32_t reserved;
  const void* base; /* the first address of its allocation; NULL where that cannot be told */
  uint64_t bytes;   /* of the allocation; 0 where base is NULL */
} pliant_pointer_info;

typedef struct pliant_accelerator {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any-thread] 0 devices is an answer, not an error. */
  int32_t (*device_count)(void* self, int32_t* count, pliant_error* error);
  int32_t (*device_properties)(void* self, int32_t device, pliant_device_properties* properties, pliant_error* error);

  /* [any-thread] memory is PLIANT_MEMORY_*; PLIANT_UNIMPLEMENTED for a kind that the device has not. At least 64-byte
   * aligned; bytes == 0 gives a pointer that may only be freed. PLIANT_RESOURCE_EXHAUSTED when there is none left, and
   * the device stays usable. free(NULL) does nothing. The caller frees only when no enqueued work uses the memory. */
  int32_t (*alloc)(void* self, int32_t device, int32_t memory, uint64_t bytes, void** out, pliant_error* error);
  void (*free)(void* self, int32_t device, int32_t memory, void* pointer);
  /* [any-thread] Bytes of device memory that alloc may still give, as far as can be told, and of all there are. */
  int32_t (*memory_info)(void* self, int32_t device, uint64_t* free_bytes, uint64_t* total_bytes, pliant_error* error);

  /* [any-thread] role is PLIANT_STREAM_*, priority PLIANT_PRIORITY_*. destroy waits for enqueued work. */
  int32_t (*stream_create)(void* self, int32_t device, int32_t role, int32_t priority, pliant_stream** out,
                           pliant_error* error);
  void (*stream_destroy)(void* self, pliant_stream* stream);
  /* done = 1 when all that was enqueued has run. Tells no failure: stream_synchronize does. */
  int32_t (*stream_query)(void* self, pliant_stream* stream, int32_t* done, pliant_error* error);
  int32_t (*stream_synchronize)(void* self, pliant_stream* stream, pliant_error* error);

  /* [any-thread] An event that was never recorded counts as done. */
  int32_t (*event_create)(void* self, int32_t device, uint32_t flags, pliant_event** out, pliant_error* error);
  void (*event_destroy)(void* self, pliant_event* event);
  int32_t (*event_record)(void* self, pliant_event* event, pliant_stream* stream, pliant_error* error);
  int32_t (*event_query)(void* self, pliant_event* event, int32_t* done, pliant_error* error);
  int32_t (*event_synchronize)(void* self, pliant_event* event, pliant_error* error);
  /* Seconds of the device's clock between two recordings that have been reached. Both events need PLIANT_EVENT_TIMING;
   * PLIANT_FAILED_PRECONDITION before they are reached. */
  int32_t (*event_elapsed)(void* self, pliant_event* begin, pliant_event* end, double* seconds, pliant_error* error);
  /* Work enqueued on stream from now on waits for the event as recorded by now. */
  int32_t (*stream_wait_event)(void* self, pliant_stream* stream, pliant_event* event, pliant_error* error);

  /* [any-thread] Any mix of device, pinned and plain host memory. Ranges must not overlap. */
  int32_t (*copy_async)(void* self, void* to, const void* from, uint64_t bytes, pliant_stream* stream,
                        pliant_error* error);
  int32_t (*fill_async)(void* self, void* to, int32_t byte, uint64_t bytes, pliant_stream* stream, pliant_error* error);
  /* As many copy_async in one call; the array may be gone when it returns. In any order: no range that is written may
   * overlap another. */
  int32_t (*copy_batch_async)(void* self, const pliant_copy* copies, uint64_t count, pliant_stream* stream,
                              pliant_error* error);
  /* to[i] = (from[0][i] op from[1][i] op ...) * scale, in this order of sources, which is that of `from`; the array may
   * be gone when it returns. 1 to 1024 sources; `to` may be one of them. 16-bit floats are computed as floats and
   * rounded once. Integers wrap around and need scale = 1. */
  int32_t (*reduce_async)(void* self, void* to, const void* const* from, int32_t sources, uint64_t count, int32_t dtype,
                          int32_t op, double scale, pliant_stream* stream, pliant_error* error);
  /* to[i] = from[i] as another type. A float is the nearest, ties to even, and infinity past the largest. An integer
   * from a float is that without its fraction; its least or largest value where it cannot hold that, 0 from NaN. From a
   * wider integer it wraps around. Ranges must not overlap. */
  int32_t (*cast_async)(void* self, void* to, int32_t to_dtype, const void* from, int32_t from_dtype, uint64_t count,
                        pliant_stream* stream, pliant_error* error);
  /* Calls function(context) in stream order, on a thread of the plugin's; work behind it waits. It may block: the
   * functions of other streams run meanwhile. It must not call the accelerator. */
  int32_t (*host_function)(void* self, void (*function)(void* context), void* context, pliant_stream* stream,
                           pliant_error* error);

  /* May be NULL. [any-thread] Why device_count says 0, for people: what is missing, what to do. At most size bytes with
   * the final NUL, cut when longer; "" when there are devices. */
  int32_t (*why_no_devices)(void* self, char* text, uint64_t size, pliant_error* error);
  /* May be NULL; PLIANT_UNIMPLEMENTED where the device cannot. [any-thread] to[i] is a digest of the i-th block of 1024
   * bytes at `from`: NH (Black et al., UMAC, 1999) of its words w[0..255], little-endian uint32_t, with the keys k[j] =
   * mix(j + 1) >> 32, that is the sum, modulo 2^64, of ((w[j] + k[j]) mod 2^32) * ((w[j+1] + k[j+1]) mod 2^32) over
   * even j; mix(x) is the finalizer of splitmix64: x += 0x9e3779b97f4a7c15; x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9; x =
   * (x ^ x >> 27) * 0x94d049bb133111eb; x ^ x >> 31. `from` is aligned to 4 bytes, `to` to 8; both are device or pinned
   * memory. Ranges must not overlap. */
  int32_t (*digest_blocks_async)(void* self, uint64_t* to, const void* from, uint64_t blocks, pliant_stream* stream,
                                 pliant_error* error);
  /* May be NULL. [any-thread] What memory `pointer` leads to, which may be any address: memory of this instance, of the
   * same driver by way of somebody else in this process, or none that either knows, such as plain and freed memory.
   * That is an answer, not an error: memory = 0, device = -1. Touches no memory but *info, and waits for no work. */
  int32_t (*pointer_info)(void* self, const void* pointer, pliant_pointer_info* info, pliant_error* error);
  /* May be NULL; PLIANT_UNIMPLEMENTED for a kind of memory that the device does not align so. [any-thread] As alloc, at
   * an address that is a multiple of `alignment`, a power of two up to 4096. It goes back by `free`. */
  int32_t (*alloc_aligned)(void* self, int32_t device, int32_t memory, uint64_t bytes, uint64_t alignment, void** out,
                           pliant_error* error);
  /* May be NULL; PLIANT_UNIMPLEMENTED where the device cannot. [any-thread] The stream is busy for at least
   * `nanoseconds`, up to 10^12, of the device's clock, as with a computation of that length: what is behind it begins
   * no sooner. Streams of other roles go on meanwhile. */
  int32_t (*spend_async)(void* self, uint64_t nanoseconds, pliant_stream* stream, pliant_error* error);
  /* May be NULL, as unregister_host then is; PLIANT_UNIMPLEMENTED where the device cannot, or not this memory.
   * [any-thread] Memory that the program allocated itself is pinned from then on, for every device: copies run as with
   * PLIANT_MEMORY_PINNED, and pointer_info says so. bytes > 0; ranges of work lie in it whole or not at all.
   * PLIANT_INVALID_ARGUMENT where a part of it is registered
   * already or was given by alloc, PLIANT_RESOURCE_EXHAUSTED where no more can be pinned. */
  int32_t (*register_host)(void* self, void* pointer, uint64_t bytes, pliant_error* error);
  /* The pointer that was registered: before its memory goes, and when no enqueued work uses it. Does nothing with any
   * other. */
  void (*unregister_host)(void* self, void* pointer);
} pliant_accelerator;

#ifdef __cplusplus
}
#endif
#endif
