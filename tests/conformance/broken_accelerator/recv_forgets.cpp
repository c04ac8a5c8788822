// BROKEN: a message arrives, but not where it was wanted.
#include <list>
#include <mutex>
#include <vector>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct RecvForgets : Honest<RecvForgets> {
  void recv(Comm& comm, void*, pliant::sdk::Elements elements, int32_t peer, Stream& stream) {
    const std::lock_guard lock(mutex);
    std::vector<char>& elsewhere = buffers.emplace_back(elements.bytes() + 1);
    Device::recv(comm, elsewhere.data(), elements, peer, stream);
  }
  std::mutex mutex;
  std::list<std::vector<char>> buffers;
};

}  // namespace

PLIANT_BROKEN(RecvForgets, "recv-forgets")
