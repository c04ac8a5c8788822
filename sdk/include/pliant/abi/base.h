/* Status codes, the error struct and the views that every Pliant ABI header uses. C11, append-only.
 *
 * Rules of the border: nothing allocated on one side is freed on the other; views are valid for the call only, unless
 * the slot says otherwise; every struct that may grow starts with struct_size, set by the side that fills the struct,
 * or for an answer by the side that has the room for it; whoever reads or writes tests with PLIANT_HAS whether a field
 * is there (C++: pliant/sdk/sized.hpp) and never compares sizes for equality. What a struct had in its first draft may
 * be taken for granted. */
#ifndef PLIANT_ABI_BASE_H
#define PLIANT_ABI_BASE_H

#include <stddef.h>
#include <stdint.h>

#define PLIANT_ABI_MAJOR 1
#define PLIANT_ABI_MINOR 1

#ifdef __cplusplus
extern "C" {
#endif

/* True when *ptr was made by a side that knows `field`. */
#define PLIANT_HAS(type, ptr, field) ((size_t)(ptr)->struct_size >= offsetof(type, field) + sizeof(((type*)0)->field))

/* Result of a call: PLIANT_OK or one of the codes below. int32_t on the border, never an enum type. pliant.h, which a
 * program may include beside this, has the same. */
#ifndef PLIANT_STATUS_CODES
#define PLIANT_STATUS_CODES
enum {
  PLIANT_OK = 0,
  PLIANT_INVALID_ARGUMENT = 1, /* an option or argument is wrong by itself */
  PLIANT_OUT_OF_RANGE = 2,     /* a value is outside what the others allow */
  PLIANT_NOT_FOUND = 3,
  PLIANT_FAILED_PRECONDITION = 4, /* the call is right, the situation is not */
  PLIANT_RESOURCE_EXHAUSTED = 5,  /* no memory, no shared memory, no disk */
  PLIANT_UNIMPLEMENTED = 6,
  PLIANT_INTERNAL = 7,   /* the plugin threw or broke its contract */
  PLIANT_ABORTED = 8,    /* abort() was called on the communicator */
  PLIANT_PEER_LOST = 9,  /* a rank of the communicator died; rank of the error is its number */
  PLIANT_DATA_LOSS = 10, /* saved state is truncated or damaged */
  PLIANT_INCOMPATIBLE_WORLD_SIZE = 11,
  PLIANT_DEADLINE_EXCEEDED = 12
};
#endif

/* Owned by the caller, who sets struct_size, and rank and device to -1; the callee writes it only when it returns a
 * status other than PLIANT_OK. The message is for people: what a caller must know has a field. */
typedef struct pliant_error {
  uint32_t struct_size;
  int32_t status;
  char message[504]; /* NUL-terminated UTF-8, cut when longer */
  /* Keys of the options that the failure is about, the likeliest first, with a space between: the host shows where the
   * first of them was set. NUL-terminated; empty when it is about none. */
  char options[128];
  /* What the failure is about; -1: none, or it is not known. The rank, a number in the communicator: that was lost,
   * that aborted, that called something else than the one that is told, or that is no number of a rank. */
  int32_t rank;   /* since minor 1 */
  int32_t device; /* that there is not, or that failed; since minor 1 */
} pliant_error;

/* UTF-8 bytes, not NUL-terminated. data == NULL means "not given". */
typedef struct pliant_str {
  const char* data;
  uint64_t size;
} pliant_str;

/* Sink for saved state. write returns PLIANT_OK or a status that the caller of save must pass on. [the thread that
 * called save] */
typedef struct pliant_writer {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*write)(void* context, const void* bytes, uint64_t size);
} pliant_writer;

/* Source of saved state. read stores 0..size bytes and says how many in *got; 0 means the end. Short reads are legal.
 */
typedef struct pliant_reader {
  uint32_t struct_size;
  uint32_t reserved;
  void* context;
  int32_t (*read)(void* context, void* bytes, uint64_t size, uint64_t* got);
} pliant_reader;

#ifdef __cplusplus
}
#endif
#endif
