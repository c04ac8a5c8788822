/* Extension pliant.stream_memory/0 of an accelerator: memory that is taken and given back in stream order. An
 * accelerator without it gets the host's, made of alloc, free and events. C11, append-only. */
#ifndef PLIANT_ABI_STREAM_MEMORY_H
#define PLIANT_ABI_STREAM_MEMORY_H

#include "pliant/abi/accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_STREAM_MEMORY "pliant.stream_memory/0"

typedef struct pliant_stream_memory {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any-thread] PLIANT_MEMORY_DEVICE of the stream's device for work enqueued on the stream from now on, or on another
   * stream that waits for an event recorded from now on. As alloc otherwise. */
  int32_t (*alloc_async)(void* self, int32_t device, uint64_t bytes, pliant_stream* stream, void** out,
                         pliant_error* error);
  /* [any-thread] Gives it back when all that is enqueued on the stream by now has run; not with free. NULL does
   * nothing. */
  int32_t (*free_async)(void* self, int32_t device, void* pointer, pliant_stream* stream, pliant_error* error);
  /* [any-thread] What has been given back is kept for later calls, up to this many bytes; more goes back to the device
   * now, as far as no work uses it. 0 keeps nothing. */
  int32_t (*trim)(void* self, int32_t device, uint64_t keep_bytes, pliant_error* error);
} pliant_stream_memory;

#ifdef __cplusplus
}
#endif
#endif
