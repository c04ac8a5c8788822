/* Pins structs and functions of pliant.h as a C11 compiler sees them. Compiling is the test. */
#include "pliant.h"

#define PLIANT_PIN_STRUCT(type, bytes) _Static_assert(sizeof(type) == (bytes), "sizeof(" #type ") changed");
#define PLIANT_PIN(type, field, at, bytes)                                      \
  _Static_assert(offsetof(type, field) == (at), #type "." #field " has moved"); \
  _Static_assert(sizeof(((type*)0)->field) == (bytes), #type "." #field " has another size");

#include "capi/layout_pins.h"
#include "capi/signatures.h"

_Static_assert(PLIANT_OK == 0 && PLIANT_INVALID_ARGUMENT == 1 && PLIANT_OUT_OF_RANGE == 2 && PLIANT_NOT_FOUND == 3 &&
                   PLIANT_FAILED_PRECONDITION == 4 && PLIANT_RESOURCE_EXHAUSTED == 5 && PLIANT_UNIMPLEMENTED == 6 &&
                   PLIANT_INTERNAL == 7 && PLIANT_ABORTED == 8 && PLIANT_PEER_LOST == 9 && PLIANT_DATA_LOSS == 10 &&
                   PLIANT_INCOMPATIBLE_WORLD_SIZE == 11 && PLIANT_DEADLINE_EXCEEDED == 12,
               "a status has another number");
_Static_assert(PLIANT_LEVEL_DEBUG == 0 && PLIANT_LEVEL_INFO == 1 && PLIANT_LEVEL_WARNING == 2 &&
                   PLIANT_LEVEL_ERROR == 3 && PLIANT_CONFIG_NO_ENVIRONMENT == 1 && PLIANT_LINE_SEQUENCE == 0 &&
                   PLIANT_LINE_ROW == 1 && PLIANT_PAD_TO_MICRO_BATCH == 0 && PLIANT_PAD_TO_NOTHING == 1 &&
                   PLIANT_PAD_TO_BATCH == 2 && PLIANT_LAYOUT_INTERLEAVED == 1 && PLIANT_LAYOUT_EVEN == 2 &&
                   PLIANT_LAYOUT_ONE_SHAPE == 4 && PLIANT_SHARING_DETERMINISTIC == 1 && PLIANT_SHARING_IN_TURN == 2 &&
                   PLIANT_LR_NEEDS_GRADIENT_NORMS == 1 && PLIANT_LR_NEEDS_JOB_LENGTH == 2 && PLIANT_DTYPE_F32 == 1 &&
                   PLIANT_DTYPE_F64 == 2 && PLIANT_DTYPE_I32 == 3 && PLIANT_DTYPE_I64 == 4 && PLIANT_DTYPE_U8 == 5 &&
                   PLIANT_DTYPE_F16 == 6 && PLIANT_DTYPE_BF16 == 7,
               "a constant has another number");
_Static_assert(PLIANT_DEVICE_HOST_VISIBLE == 1 && PLIANT_DEVICE_FIXED_ORDER == 2 && PLIANT_DEVICE_SHARED_MEMORY == 4 &&
                   PLIANT_DEVICE_EXCHANGE_MEMORY == 8 && PLIANT_DEVICE_WINDOW_MEMORY == 16 &&
                   PLIANT_BUFFER_DEVICE == 1 && PLIANT_BUFFER_PINNED == 2 && PLIANT_BUFFER_SHARED == 3 &&
                   PLIANT_BUFFER_EXCHANGE == 4 && PLIANT_BUFFER_WINDOW == 5 && PLIANT_ROLE_COMPUTE == 0 &&
                   PLIANT_ROLE_GATHER == 1 && PLIANT_ROLE_SCATTER == 2 && PLIANT_ROLE_TO_DEVICE == 3 &&
                   PLIANT_ROLE_TO_HOST == 4 && PLIANT_REDUCE_SUM == 1 && PLIANT_REDUCE_MIN == 2 &&
                   PLIANT_REDUCE_MAX == 3 && PLIANT_COMMUNICATOR_ID_BYTES == 128 && PLIANT_SHARDED_FROZEN == 1 &&
                   PLIANT_SHARDED_PERSISTENT == 2 && PLIANT_SHARDED_EXTERNAL == 4 && PLIANT_DIRECTION_FORWARD == 0 &&
                   PLIANT_DIRECTION_BACKWARD == 1 && PLIANT_DIRECTION_RECOMPUTE == 2 && PLIANT_FLOATS_OF_NORM == 1024,
               "a constant of devices, communicators or sharded models has another number");
_Static_assert(PLIANT_GROUP_UNKNOWN == 0 && PLIANT_GROUP_START == 1 && PLIANT_GROUP_RESUME == 2 &&
                   PLIANT_GROUP_LOSS == 3 && PLIANT_GROUP_LEAVE == 4 && PLIANT_GROUP_JOIN == 5 &&
                   PLIANT_GROUP_FAULT == 6 && PLIANT_EXPORT_BEST == 1 && PLIANT_EXPORT_REPLACE == 2,
               "a constant of what a run has left has another number");
