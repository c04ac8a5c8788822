// The accelerator cuda on its software runtime, with whatever settings of that stand in the environment.
#pragma once

#include <string>
#include <utility>

#include "device.hpp"

namespace pliant_test {

/// Collectives are generic unless the settings say otherwise: so that no test opens an NCCL of the machine.
class SoftwareCuda : public Device {
 public:
  explicit SoftwareCuda(OptionSettings settings = {}) : Device(completed(std::move(settings)), file()) {}
  [[nodiscard]] Outcome alloc(uint64_t bytes, void** out, int32_t device = 0,
                              int32_t memory = PLIANT_MEMORY_DEVICE) const {
    return call(&pliant_accelerator::alloc, device, memory, bytes, out);
  }
  void free(void* pointer) const { slots().free(self(), 0, PLIANT_MEMORY_DEVICE, pointer); }

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

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace pliant_test
