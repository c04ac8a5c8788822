// BROKEN: a stream that a communicator was used on is of no more use when that was destroyed.
#include <map>
#include <mutex>
#include <set>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)

struct CommKeepsStream : Honest<CommKeepsStream> {
  std::mutex mutex;
  std::multimap<const pliant_comm*, const Stream*> used;
  std::set<const Stream*> spoilt;

  const void* extension(const char* id) const {
    if (std::strcmp(id, PLIANT_COLLECTIVES) != 0) return nullptr;
    static const pliant_collectives kTable = [] {
      pliant_collectives made = *pliant::sdk::collectives_table<CommKeepsStream>();
      made.comm_destroy = [](void* self, pliant_comm* comm) {
        using Adapter = pliant::sdk::detail::CollectivesAdapter<CommKeepsStream>;
        Adapter::device_of(self).spoil(comm);
        Adapter::comm_destroy(self, comm);
      };
      return made;
    }();
    return &kTable;
  }
  void spoil(const pliant_comm* comm) {
    const std::lock_guard lock(mutex);
    const auto [first, last] = used.equal_range(comm);
    for (auto one = first; one != last; ++one) spoilt.insert(one->second);
    used.erase(first, last);
  }
  std::unique_ptr<Stream> make_stream(int32_t device, pliant::sdk::StreamUse use) {
    auto made = Device::make_stream(device, use);
    const std::lock_guard lock(mutex);
    spoilt.erase(made.get());
    return made;
  }
  void all_reduce(Comm& comm, const void* send, void* recv, pliant::sdk::Elements elements, pliant::sdk::ReduceOp op,
                  Stream& stream) {
    {
      const std::lock_guard lock(mutex);
      used.emplace(reinterpret_cast<const pliant_comm*>(&comm), &stream);
    }
    Device::all_reduce(comm, send, recv, elements, op, stream);
  }
  void fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
    {
      const std::lock_guard lock(mutex);
      if (spoilt.count(&stream) != 0) throw pliant::sdk::Failure(PLIANT_INTERNAL, "its communicator is gone");
    }
    Device::fill(to, byte, bytes, stream);
  }
};

}  // namespace

PLIANT_BROKEN(CommKeepsStream, "comm-keeps-stream")
