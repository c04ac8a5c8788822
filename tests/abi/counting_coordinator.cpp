// The coordinator `eager`, of the sources that it is built with, with the extension pliant.coordinator_counters/0: it
// says that it follows a trace, so that whoever reads it counts the passes.
#include "pliant/sdk/coordinator.hpp"

#pragma push_macro("PLIANT_COORDINATOR")
#undef PLIANT_COORDINATOR
#define PLIANT_COORDINATOR(...)  // the entry is that of the class below
#include "coordinator/eager/eager.cpp"
#pragma pop_macro("PLIANT_COORDINATOR")

namespace {

class Counting : public Eager {
 public:
  [[nodiscard]] sdk::CoordinatorCounts counts() const {
    sdk::CoordinatorCounts made{};
    made.struct_size = sizeof(made);
    made.trace = PLIANT_TRACE_COMPLETE;
    return made;
  }
  static const void* extension(const char* id) { return sdk::counters_of<Counting>(id); }
};

}  // namespace

PLIANT_COORDINATOR(Counting, "counting", "0.1.0", "Gathers and releases as eager does, and says what it counts")
