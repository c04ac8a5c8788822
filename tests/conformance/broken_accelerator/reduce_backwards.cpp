// BROKEN: a reduction takes its sources from the last to the first.
#include <vector>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct ReduceBackwards : Honest<ReduceBackwards> {
  void reduce(void* to, std::span<const void* const> from, pliant::sdk::Elements elements, pliant::sdk::ReduceOp op,
              double scale, Stream& stream) {
    const std::vector<const void*> backwards(from.rbegin(), from.rend());
    Device::reduce(to, backwards, elements, op, scale, stream);
  }
};

}  // namespace

PLIANT_BROKEN(ReduceBackwards, "reduce-backwards")
