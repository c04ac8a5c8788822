/* Pins the layout of the ABI as a C11 compiler sees it. Compiling is the test. */
#include "pliant/abi/balancer.h"
#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/collectives.h"
#include "pliant/abi/coordinator.h"
#include "pliant/abi/elasticity_policy.h"
#include "pliant/abi/ipc.h"
#include "pliant/abi/lr_rule.h"
#include "pliant/abi/optimizer.h"
#include "pliant/abi/packing.h"
#include "pliant/abi/plugin.h"
#include "pliant/abi/rendezvous.h"
#include "pliant/abi/row_stream.h"
#include "pliant/abi/stream_memory.h"

#define PLIANT_PIN_STRUCT(type, bytes) _Static_assert(sizeof(type) == (bytes), "sizeof(" #type ") changed");
#define PLIANT_PIN(type, field, at, bytes)                                      \
  _Static_assert(offsetof(type, field) == (at), #type "." #field " has moved"); \
  _Static_assert(sizeof(((type*)0)->field) == (bytes), #type "." #field " has another size");

#include "abi/layout_pins.h"

_Static_assert(PLIANT_ABI_MAJOR == 1, "the major version is in the entry symbol's name");
/* Values that both sides compiled in. */
_Static_assert(PLIANT_OK == 0 && PLIANT_INVALID_ARGUMENT == 1 && PLIANT_OUT_OF_RANGE == 2 && PLIANT_NOT_FOUND == 3 &&
                   PLIANT_FAILED_PRECONDITION == 4 && PLIANT_RESOURCE_EXHAUSTED == 5 && PLIANT_UNIMPLEMENTED == 6 &&
                   PLIANT_INTERNAL == 7 && PLIANT_ABORTED == 8 && PLIANT_PEER_LOST == 9 && PLIANT_DATA_LOSS == 10 &&
                   PLIANT_INCOMPATIBLE_WORLD_SIZE == 11 && PLIANT_DEADLINE_EXCEEDED == 12,
               "a status code has another number");
_Static_assert(PLIANT_BOOL == 1 && PLIANT_INT == 2 && PLIANT_FLOAT == 3 && PLIANT_STRING == 4 &&
                   PLIANT_BOOL_LIST == 5 && PLIANT_INT_LIST == 6 && PLIANT_FLOAT_LIST == 7 && PLIANT_STRING_LIST == 8,
               "an option type has another number");
_Static_assert(PLIANT_OPTION_REQUIRED == 1 && PLIANT_OPTION_HAS_MIN == 2 && PLIANT_OPTION_HAS_MAX == 4 &&
                   PLIANT_OPTION_ROW_OFFSETS == 8 && PLIANT_OPTION_ROW_IDS == 16,
               "an option flag has another bit");
_Static_assert(PLIANT_LOG_DEBUG == 0 && PLIANT_LOG_INFO == 1 && PLIANT_LOG_WARNING == 2 && PLIANT_LOG_ERROR == 3,
               "a log level has another number");
_Static_assert(PLIANT_MEMORY_DEVICE == 1 && PLIANT_MEMORY_PINNED == 2 && PLIANT_MEMORY_SHARED == 3 &&
                   PLIANT_MEMORY_EXCHANGE == 4 && PLIANT_MEMORY_WINDOW == 5 && PLIANT_CAP_SHARED_MEMORY == 4 &&
                   PLIANT_CAP_EXCHANGE_MEMORY == 8 && PLIANT_CAP_WINDOW_MEMORY == 16 && PLIANT_EVENT_TIMING == 1 &&
                   PLIANT_EVENT_EXPORTED == 2 && PLIANT_F32 == 1 && PLIANT_F64 == 2 && PLIANT_I32 == 3 &&
                   PLIANT_I64 == 4 && PLIANT_U8 == 5 && PLIANT_SUM == 1 && PLIANT_MIN == 2 && PLIANT_MAX == 3 &&
                   PLIANT_CAP_HOST_VISIBLE == 1 && PLIANT_CAP_FIXED_ORDER == 2 && PLIANT_PLAN_WANT_MICRO_BATCH == 1 &&
                   PLIANT_BALANCE_COSTLIEST_FIRST == 1 && PLIANT_LR_WANTS_GRADIENT_NORMS == 1 &&
                   PLIANT_LR_WANTS_TOTAL == 2 && PLIANT_BATCH_ROWS == 1 && PLIANT_BATCH_SEQUENCES == 2 &&
                   PLIANT_BATCH_TOKENS == 3 && PLIANT_BATCH_LOSS_TOKENS == 4 && PLIANT_UNIT_TOKENS == 0 &&
                   PLIANT_UNIT_PADDED_TOKENS == 1 && PLIANT_UNIT_LOSS_TOKENS == 2 && PLIANT_UNIT_COST == 3 &&
                   PLIANT_OPTIMIZER_UNKNOWN == 0 && PLIANT_OPTIMIZER_SGD == 1 && PLIANT_OPTIMIZER_SGD_MOMENTUM == 2 &&
                   PLIANT_OPTIMIZER_NESTEROV == 3 && PLIANT_OPTIMIZER_ADAM == 4 && PLIANT_OPTIMIZER_ADAMW == 5 &&
                   PLIANT_OPTIMIZER_LAMB == 6 && PLIANT_OPTIMIZER_LARS == 7 && PLIANT_OPTIMIZER_SIGN == 8 &&
                   PLIANT_OPTIMIZER_OTHER == 9 && PLIANT_NORM_CHUNK == 1024,
               "a constant of a kind has another number");
_Static_assert(PLIANT_PARAMETER_FROZEN == 1 && PLIANT_PARAMETER_PERSISTENT == 2 && PLIANT_PARAMETER_EXTERNAL == 4 &&
                   PLIANT_MODULE_LEAF == 1 && PLIANT_PASS_NO_GRADIENT == 1 && PLIANT_FORWARD == 1 &&
                   PLIANT_BACKWARD == 2 && PLIANT_VISIT_RECOMPUTE == 1 && PLIANT_ACTION_GATHER == 1 &&
                   PLIANT_ACTION_WAIT == 2 && PLIANT_ACTION_RELEASE == 3 && PLIANT_ACTION_REDUCE == 4 &&
                   PLIANT_ACTION_LOAD == 5 && PLIANT_ACTION_STORE == 6 && PLIANT_ACTION_DROP_TRACE == 7 &&
                   PLIANT_ACTION_BOUND_WAITS == 8 && PLIANT_ACTION_PREFETCH == 1 && PLIANT_NO_PARAMETER == UINT32_MAX &&
                   PLIANT_ANY_PLACE == UINT64_MAX && PLIANT_TRACE_NONE == 0 && PLIANT_TRACE_RECORDING == 1 &&
                   PLIANT_TRACE_COMPLETE == 2 && PLIANT_TRACE_INVALID == 3,
               "a constant of a coordinator has another number");
