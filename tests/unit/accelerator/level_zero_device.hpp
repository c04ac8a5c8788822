// The accelerator level_zero on its software driver, with whatever settings of that stand in the environment.
#pragma once

#include "driver_device.hpp"

namespace pliant_test {

class SoftwareLevelZero : public DriverDevice {
 public:
  /// Settings of the software driver, and how it refuses an allocation.
  static constexpr const char* kDevices = "PLIANT_SOFT_ZE_DEVICES";
  static constexpr const char* kFailAllocAt = "PLIANT_SOFT_ZE_FAIL_ALLOC_AT";
  static constexpr const char* kAllocRefused = "zeMemAllocDevice: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY";

  explicit SoftwareLevelZero(const OptionSettings& settings = {}) : DriverDevice(settings, file()) {}

 private:
  static const char* file() {
    use_software_driver();
    return kLevelZeroFile;
  }
};

}  // namespace pliant_test
