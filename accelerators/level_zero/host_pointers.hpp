// HostPointers: how a driver pins memory of the program: functions of Intel's driver that are no part of Level Zero.
#pragma once

#include <cstdint>

#include "api.hpp"

namespace pliant::level_zero {

/// Of one driver. What is pinned is so for all of its devices and contexts; copies and kernels find it by its address.
class HostPointers {
 public:
  HostPointers() = default;
  /// Asks the driver, by the handle that the loader gave. A driver that lacks a function, or a loader that cannot say
  /// what handle the driver's functions take, has none.
  HostPointers(const Api& api, ze_driver_handle_t driver);

  [[nodiscard]] bool are_there() const { return driver_ != nullptr; }
  /// Throws PLIANT_UNIMPLEMENTED where an end of it is pinned already, by whomever: the driver would count it as part
  /// of that, and give that back with it.
  void pin(void* pointer, uint64_t bytes) const;
  void unpin(void* pointer) const noexcept;

 private:
  ze_driver_handle_t driver_ = nullptr;  ///< its own: the loader may have given another
  ze_result_t(ZE_APICALL* import_)(ze_driver_handle_t, void*, size_t) = nullptr;
  ze_result_t(ZE_APICALL* release_)(ze_driver_handle_t, void*) = nullptr;
  ze_result_t(ZE_APICALL* base_of_)(ze_driver_handle_t, void*, void**) = nullptr;
};

}  // namespace pliant::level_zero
