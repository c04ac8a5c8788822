// Gives an accelerator the extension pliant.ipc/0: return ipc_table<T>() from `extension` for PLIANT_IPC. The SDK
// checks every argument that can be checked before the class sees it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>

#include "pliant/abi/ipc.h"
#include "pliant/sdk/accelerator.hpp"

namespace pliant::sdk {

namespace detail {

template <class T>
struct IpcAdapter : private AcceleratorAdapter<T> {
  using Event = typename T::Event;
  using AcceleratorAdapter<T>::device_of;
  using AcceleratorAdapter<T>::known_device;
  using AcceleratorAdapter<T>::open;

  static void given(const pliant_ipc_handle* handle) {
    require(handle != nullptr, "the handle is NULL");
    const bool blank =
        std::all_of(std::begin(handle->bytes), std::end(handle->bytes), [](uint8_t byte) { return byte == 0; });
    require(!blank, "the handle is blank; give the one that the exporting process got");
    require(handle->descriptor >= -1, "the handle's descriptor is " + std::to_string(handle->descriptor) +
                                          "; give the descriptor as received, or -1 where there is none");
  }

  static int32_t export_memory(void* self, int32_t device, const void* pointer, pliant_ipc_handle* handle,
                               pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(handle != nullptr, "the place for the handle is NULL");
      *handle = {};
      handle->descriptor = -1;
      known_device(device_of(self), device);
      require(pointer != nullptr, "the memory to export is NULL");
      *handle = device_of(self).export_memory(device, pointer);
    });
  }
  static int32_t import_memory(void* self, int32_t device, const pliant_ipc_handle* handle, void** out,
                               pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(out != nullptr, "the place for the address is NULL");
      *out = nullptr;
      known_device(device_of(self), device);
      given(handle);
      *out = device_of(self).import_memory(device, *handle);
    });
  }
  static void release_memory(void* self, int32_t device, void* pointer) noexcept {
    if (pointer == nullptr) return;
    guarded(nullptr, [&] { device_of(self).release_memory(device, pointer); });
  }

  static int32_t export_event(void* self, pliant_event* event, pliant_ipc_handle* handle,
                              pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(handle != nullptr, "the place for the handle is NULL");
      *handle = {};
      handle->descriptor = -1;
      *handle = device_of(self).export_event(open(event));
    });
  }
  static int32_t import_event(void* self, int32_t device, const pliant_ipc_handle* handle, pliant_event** out,
                              pliant_error* error) noexcept {
    return guarded(error, [&] {
      require(out != nullptr, "the place for the event is NULL");
      *out = nullptr;
      known_device(device_of(self), device);
      given(handle);
      std::unique_ptr<Event> made = device_of(self).import_event(device, *handle);
      *out = reinterpret_cast<pliant_event*>(made.release());
    });
  }
  static constexpr auto export_event_slot() -> decltype(&export_event) {
    if constexpr (requires { &T::export_event; }) return &export_event;
    return nullptr;
  }
  static constexpr auto import_event_slot() -> decltype(&import_event) {
    if constexpr (requires { &T::import_event; }) return &import_event;
    return nullptr;
  }
};

}  // namespace detail

/// The extension's table for accelerator class T, which has
///   pliant_ipc_handle export_memory(int32_t device, const void* pointer);        // the descriptor becomes the
///   caller's void* import_memory(int32_t device, const pliant_ipc_handle&);               // the descriptor stays the
///   caller's void release_memory(int32_t device, void* pointer);
/// and, where its events pass between processes, beside make_exported_event (accelerator.hpp),
///   pliant_ipc_handle export_event(Event&);
///   std::unique_ptr<Event> import_event(int32_t device, const pliant_ipc_handle&);
template <class T>
const pliant_ipc* ipc_table() {
  using A = detail::IpcAdapter<T>;
  static const pliant_ipc kTable{
      sizeof(pliant_ipc),    0, &A::export_memory, &A::import_memory, &A::release_memory, A::export_event_slot(),
      A::import_event_slot()};
  return &kTable;
}

}  // namespace pliant::sdk
