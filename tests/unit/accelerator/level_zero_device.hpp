// The accelerator level_zero on its software driver, with whatever settings of that stand in the environment.
#pragma once

#include "driver_device.hpp"

namespace pliant_test {

class SoftwareLevelZero : public DriverDevice {
 public:
  explicit SoftwareLevelZero(const OptionSettings& settings = {}) : DriverDevice(settings, file()) {}

 private:
  static const char* file() {
    use_software_driver();
    return kLevelZeroFile;
  }
};

}  // namespace pliant_test
