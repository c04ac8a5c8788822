// BROKEN: a fill of an odd number of bytes writes one byte too many.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct FillOneMore : Honest<FillOneMore> {
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    Device::fill(to, byte, bytes + bytes % 2, stream);
  }
};

}  // namespace

PLIANT_BROKEN(FillOneMore, "fill-one-more")
