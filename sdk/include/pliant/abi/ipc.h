/* Extension pliant.ipc/1 of an accelerator: device memory and events of one process in another of the same machine.
 * C11, append-only. */
#ifndef PLIANT_ABI_IPC_H
#define PLIANT_ABI_IPC_H

#include "pliant/abi/accelerator.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIANT_IPC "pliant.ipc/1"

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

  /* [any-thread] A handle to an event created with PLIANT_EVENT_EXPORTED. This slot and the next are NULL where events
   * do not pass between processes; event_create then answers that flag with PLIANT_UNIMPLEMENTED. */
  int32_t (*export_event)(void* self, pliant_event* event, pliant_ipc_handle* handle, pliant_error* error);
  /* [any-thread] The same event for this process: recorded, waited for and queried by any process, as recorded when
   * the call is made; the processes order recording and waiting between them. Ends with event_destroy, each process its
   * own, and has no event_elapsed. */
  int32_t (*import_event)(void* self, int32_t device, const pliant_ipc_handle* handle, pliant_event** out,
                          pliant_error* error);
} pliant_ipc;

#ifdef __cplusplus
}
#endif
#endif
