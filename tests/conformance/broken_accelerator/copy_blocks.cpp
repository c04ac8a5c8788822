// BROKEN: a copy keeps its caller until it is done.
#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CopyBlocks : Honest<CopyBlocks> {
  using Device::copy;
  void copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
    Device::copy(to, from, bytes, stream);
    stream.synchronize();
  }
};

}  // namespace

PLIANT_BROKEN(CopyBlocks, "copy-blocks")
