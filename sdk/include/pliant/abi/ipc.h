/* Extension pliant.ipc/0 of an accelerator: device memory and events of one process in another of the same machine.
 * C11, append-only. */
#ifndef PLIANT_ABI_IPC_H
#define PLIANT_ABI_IPC_H

#include "pliant/abi/accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_IPC "pliant.ipc/0"

/* Names memory or an event of one process to others. The bytes travel as they are; the descriptor, where there is one,
 * as SCM_RIGHTS, and belongs to whoever holds the handle: each side closes its own. */
typedef struct pliant_ipc_handle {
  uint8_t bytes[120];
  int32_t reserved;
  int32_t descriptor; /* -1: none */
} pliant_ipc_handle;

typedef struct pliant_ipc {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any-thread] A handle to the allocation that `pointer`, as alloc gave it, begins; of PLIANT_MEMORY_EXCHANGE. It
   * names this allocation and no later one at the same address, and is good until that is freed.
   * PLIANT_INVALID_ARGUMENT for memory of another kind, or none of this instance. */
  int32_t (*export_memory)(void* self, int32_t device, const void* pointer, pliant_ipc_handle* handle,
                           pliant_error* error);
  /* [any-thread] Memory of another process at an address of this one, for work on this device; the descriptor stays
   * the caller's. Memory that is imported twice may have one address. What one stream wrote is seen by work of another
   * process that is ordered after it, by an event or by the CPUs. PLIANT_FAILED_PRECONDITION when the allocation is
   * gone, or is of this process. */
  int32_t (*import_memory)(void* self, int32_t device, const pliant_ipc_handle* handle, void** out,
                           pliant_error* error);
  /* [any-thread] Once for each import_memory, when no enqueued work uses it, and before the owner frees the memory. */
  void (*release_memory)(void* self, int32_t device, void* pointer);

  /* [any-thread] A handle to an event created with PLIANT_EVENT_EXPORTED. It names this event and no later one, and is
   * good until the event is destroyed here. PLIANT_INVALID_ARGUMENT for an event without that flag, or an imported one.
   * Where events do not pass between processes event_create answers that flag with PLIANT_UNIMPLEMENTED; this slot and
   * the next may be NULL then, both. */
  int32_t (*export_event)(void* self, pliant_event* event, pliant_ipc_handle* handle, pliant_error* error);
  /* [any-thread] The same event for this process; the descriptor stays the caller's. Whoever has the event records it,
   * waits for it and queries it, and means the latest recording, of whatever process, as of that call: the processes
   * order recording and waiting between them, and a later recording does not disturb who waits for an earlier one.
   * event_record answers PLIANT_RESOURCE_EXHAUSTED when more recordings than the event has room for, at least 64, are
   * not reached or still waited for by others.
   * When work before a recording fails, or its process ends before it is reached, others wait for 100 ms more at
   * most: event_query says done; event_synchronize, and stream_synchronize of each stream that waited, answer
   * PLIANT_ABORTED and name the process.
   * Ends with event_destroy, each process its own, also while others wait: recordings that are made are still reached.
   * There is no event_elapsed. PLIANT_FAILED_PRECONDITION when the event is destroyed, or is of this process. */
  int32_t (*import_event)(void* self, int32_t device, const pliant_ipc_handle* handle, pliant_event** out,
                          pliant_error* error);
} pliant_ipc;

#ifdef __cplusplus
}
#endif
#endif
