/* The same in the other order, and pliant.h twice. */
#include "pliant/abi/plugin.h"
/* and then */
#include "pliant.h"
/* and again */
#include "pliant.h"

_Static_assert(PLIANT_DEADLINE_EXCEEDED == 12, "the codes are there once");
