// BROKEN: all_gather puts the parts of the ranks in descending order.
#include <algorithm>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct GatherBackwards : Honest<GatherBackwards> {
  void all_gather(Comm& comm, const void* send, void* recv, pliant::sdk::Elements elements, Stream& stream) {
    Device::all_gather(comm, send, recv, elements, stream);
    const auto ranks = static_cast<uint64_t>(comm.world_size());
    const uint64_t bytes = elements.bytes();
    stream.enqueue([=] {
      auto* parts = static_cast<char*>(recv);
      for (uint64_t r = 0; r < ranks / 2; ++r) {
        std::swap_ranges(parts + r * bytes, parts + (r + 1) * bytes, parts + (ranks - 1 - r) * bytes);
      }
    });
  }
};

}  // namespace

PLIANT_BROKEN(GatherBackwards, "gather-backwards")
