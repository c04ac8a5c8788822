// The accelerator cuda on its software runtime, with whatever settings of that stand in the environment.
#pragma once

#include <string>
#include <utility>

#include "driver_device.hpp"

namespace pliant_test {

/// Collectives are generic unless the settings say otherwise: so that no test opens an NCCL of the machine.
class SoftwareCuda : public DriverDevice {
 public:
  /// Settings of the software runtime, and how it refuses an allocation.
  static constexpr const char* kDevices = "PLIANT_SOFT_CUDA_DEVICES";
  static constexpr const char* kFailAllocAt = "PLIANT_SOFT_CUDA_FAIL_ALLOC_AT";
  static constexpr const char* kAllocRefused = "cudaMalloc: cudaErrorMemoryAllocation";

  explicit SoftwareCuda(OptionSettings settings = {}) : DriverDevice(completed(std::move(settings)), file()) {}

 private:
  static OptionSettings completed(OptionSettings settings) {
    settings.texts.emplace("collectives", "generic");
    return settings;
  }
  static const char* file() {
    use_software_cuda();
    return kCudaFile;
  }
};

}  // namespace pliant_test
