// BROKEN: all_gather of more than 1000 bytes runs on a stream of its own, and nothing orders that with the one it was
// called on.
#include <memory>
#include <mutex>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CollectivesBeside : Honest<CollectivesBeside> {
  std::once_flag made;
  std::unique_ptr<Stream> beside;
  Stream& own() {
    std::call_once(made, [this] { beside = std::make_unique<Stream>(nullptr, uint64_t{0}); });
    return *beside;
  }
  void all_gather(Comm& comm, const void* send, void* recv, pliant::sdk::Elements elements, Stream& stream) {
    Device::all_gather(comm, send, recv, elements, elements.bytes() > 1000 ? own() : stream);
  }
  using Device::query;
  using Device::synchronize;
  bool query(Stream& stream) { return Device::query(stream) && Device::query(own()); }
  void synchronize(Stream& stream) {
    Device::synchronize(own());
    Device::synchronize(stream);
  }
};

}  // namespace

PLIANT_BROKEN(CollectivesBeside, "collectives-beside")
