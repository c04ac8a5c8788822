// The extension pliant.stream_memory/0 of a device, called so that a failure is an Outcome.
#pragma once

#include "device.hpp"
#include "pliant/abi/stream_memory.h"

namespace pliant_test {

class StreamPool {
 public:
  explicit StreamPool(const Device& device)
      : calls_(device.extension_calls<pliant_stream_memory>(PLIANT_STREAM_MEMORY)) {}
  Outcome alloc(uint64_t bytes, pliant_stream* stream, void** out, int32_t on = 0) const {
    return calls_.ask(&pliant_stream_memory::alloc_async, on, bytes, stream, out);
  }
  /// Throws where it is refused.
  [[nodiscard]] char* take(uint64_t bytes, pliant_stream* stream) const {
    void* out = nullptr;
    calls_.must(&pliant_stream_memory::alloc_async, 0, bytes, stream, &out);
    return static_cast<char*>(out);
  }
  Outcome free(void* pointer, pliant_stream* stream) const {
    return calls_.ask(&pliant_stream_memory::free_async, 0, pointer, stream);
  }
  Outcome trim(uint64_t keep) const { return calls_.ask(&pliant_stream_memory::trim, 0, keep); }

 private:
  const pliant::sdk::Calls<pliant_stream_memory> calls_;
};

}  // namespace pliant_test
