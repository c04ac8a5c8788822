/* A file that embeds Pliant and is a plugin, too: pliant.h goes with every header for plugins, in this order. */
#include "pliant.h"
/* and then */
#include "pliant/abi/accelerator.h"
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

_Static_assert(PLIANT_DEADLINE_EXCEEDED == 12, "the codes are there once");
