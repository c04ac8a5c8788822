// Gives an accelerator the extension pliant.stream_memory/0: return stream_memory_table<T>() from `extension` for
// PLIANT_STREAM_MEMORY. The SDK checks every argument that can be checked before the class sees it.
#pragma once

#include <cstdint>

#include "pliant/abi/stream_memory.h"
#include "pliant/sdk/accelerator.hpp"

namespace pliant::sdk {

namespace detail {

template <class T>
struct StreamMemoryAdapter : private AcceleratorAdapter<T> {
  using AcceleratorAdapter<T>::device_of;
  using AcceleratorAdapter<T>::known_device;
  using AcceleratorAdapter<T>::open;

  static int32_t alloc_async(void* self, int32_t device, uint64_t bytes, pliant_stream* stream, void** out,
                             pliant_error* error) noexcept {
    return guarded(error, [&] {
      *out = nullptr;
      known_device(device_of(self), device);
      *out = device_of(self).alloc_async(device, bytes, open(stream));
    });
  }
  static int32_t free_async(void* self, int32_t device, void* pointer, pliant_stream* stream,
                            pliant_error* error) noexcept {
    return guarded(error, [&] {
      known_device(device_of(self), device);
      auto& on = open(stream);
      if (pointer != nullptr) device_of(self).free_async(device, pointer, on);
    });
  }
  static int32_t trim(void* self, int32_t device, uint64_t keep_bytes, pliant_error* error) noexcept {
    return guarded(error, [&] {
      known_device(device_of(self), device);
      device_of(self).trim(device, keep_bytes);
    });
  }
};

}  // namespace detail

/// The extension's table for accelerator class T, which has
///   void* alloc_async(int32_t device, uint64_t bytes, Stream&);
///   void free_async(int32_t device, void* pointer, Stream&);   // refuses what alloc_async did not give; never NULL
///   void trim(int32_t device, uint64_t keep_bytes);
template <class T>
const pliant_stream_memory* stream_memory_table() {
  using A = detail::StreamMemoryAdapter<T>;
  static const pliant_stream_memory kTable{sizeof(pliant_stream_memory), 0, &A::alloc_async, &A::free_async, &A::trim};
  return &kTable;
}

}  // namespace pliant::sdk
