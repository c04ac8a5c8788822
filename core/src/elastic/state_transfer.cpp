#include "elastic/state_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace pliant::elastic {
namespace {

constexpr uint64_t kChunkBytes = StateArrays::kChunkBytes;

// Broadcasts bytes through a device buffer, chunk by chunk.
class Relay {
 public:
  Relay(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor)
      : group_(group), stream_(stream), donor_(donor), chunk_(accelerator, device, kChunkBytes) {}

  void share(void* bytes, uint64_t size) {
    auto* at = static_cast<char*>(bytes);
    while (size > 0) {
      const uint64_t n = std::min(size, kChunkBytes);
      if (group_.rank() == donor_) stream_.copy(chunk_.pointer(), at, n);
      group_.broadcast(chunk_.pointer(), n, DType::kU8, donor_, stream_);
      if (group_.rank() != donor_) stream_.copy(at, chunk_.pointer(), n);
      stream_.synchronize();
      at += n;
      size -= n;
    }
  }
  /// Of at most one chunk. `takes`: this rank's bytes become the donor's. Has been copied once the stream has come
  /// here.
  void share_chunk(void* bytes, uint64_t size, bool takes) {
    if (group_.rank() == donor_) stream_.copy(chunk_.pointer(), bytes, size);
    group_.broadcast(chunk_.pointer(), size, DType::kU8, donor_, stream_);
    if (takes) stream_.copy(bytes, chunk_.pointer(), size);
  }
  void share(std::string& text) {
    uint64_t size = text.size();
    share(&size, sizeof(size));
    text.resize(size);
    share(text.data(), size);
  }

 private:
  Communicator& group_;
  Stream& stream_;
  int32_t donor_;
  Buffer chunk_;
};

}  // namespace

void share_state(Communicator& group, Stream& stream, const Accelerator& accelerator, int32_t device, int32_t donor,
                 SharedState& state, const StateArrays& arrays, bool takes, const std::function<void()>& midway) {
  Relay relay(group, stream, accelerator, device, donor);
  relay.share(&state.step, sizeof(state.step));
  relay.share(state.lr_state);
  relay.share(state.program);
  std::string layout = arrays.layout();
  relay.share(layout);
  arrays.require(layout, fmt::format("rank {}", donor));
  bool struck = false;
  const auto strike = [&] {
    if (!std::exchange(struck, true) && midway) midway();
  };
  arrays.each_chunk([&](void* data, uint64_t bytes) {
    relay.share_chunk(data, bytes, takes);
    strike();
  });
  strike();  // there are none
  stream.synchronize();
}

}  // namespace pliant::elastic
