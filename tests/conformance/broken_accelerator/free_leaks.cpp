// BROKEN: free keeps the memory.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FreeLeaks : Honest<FreeLeaks> {
  void free(int32_t, pliant::sdk::Memory, void*) {}
};

}  // namespace

PLIANT_BROKEN(FreeLeaks, "free-leaks")
