// What an accelerator says of itself and its devices.
#pragma once

#include <cstdint>
#include <string>

#include "pliant/accelerator.hpp"

namespace pliant::cli {

struct DeviceSeen : DeviceProperties {
  bool native_collectives = false;  ///< its plugin has the extension PLIANT_COLLECTIVES
  bool collectives = false;         ///< it has, or the accelerator is there that carries generic ones
};

DeviceSeen see_device(const Accelerator& accelerator, int32_t device);
bool has_native_collectives(const Accelerator& accelerator);
/// Of the plugin.
std::string version_of(const Accelerator& accelerator);

}  // namespace pliant::cli
