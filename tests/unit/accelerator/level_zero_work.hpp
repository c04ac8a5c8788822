// What the tests of kernels on devices of Level Zero share: device memory with known contents, and how many kernels
// were launched.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "level_zero_device.hpp"
#include "pliant/sdk/arithmetic.hpp"

namespace pliant_test {

using pliant::sdk::DType;

using Slots = pliant_accelerator;
using Bytes = std::vector<std::byte>;

/// Device memory that begins with some bytes and is freed in time.
class OnDevice {
 public:
  OnDevice(const Device& device, const Stream& stream, const Bytes& bytes) : device_(device), bytes_(bytes.size()) {
    REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, bytes_, &pointer_).ok());
    REQUIRE(device.call(&Slots::copy_async, pointer_, bytes.data(), bytes_, stream).ok());
    REQUIRE(stream.synchronize().ok());
  }
  ~OnDevice() { device_.slots().free(device_.self(), 0, PLIANT_MEMORY_DEVICE, pointer_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  [[nodiscard]] void* get() const { return pointer_; }
  [[nodiscard]] Bytes read(const Stream& stream) const {
    Bytes bytes(bytes_);
    REQUIRE(device_.call(&Slots::copy_async, bytes.data(), pointer_, bytes_, stream).ok());
    REQUIRE(stream.synchronize().ok());
    return bytes;
  }

 private:
  const Device& device_;
  const uint64_t bytes_;
  void* pointer_ = nullptr;
};

inline Bytes some_values(DType dtype, uint64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> floats(count);
  for (float& one : floats) one = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-19F;
  Bytes bytes(count * pliant::sdk::size_of(dtype));
  pliant::sdk::cast(DType::kF32, floats.data(), dtype, bytes.data(), count);
  return bytes;
}

inline int64_t launched() {
  return software_driver_counts().launched;
}

#ifdef PLIANT_LEVEL_ZERO_KERNELS
inline constexpr int64_t kLaunch = 1;
#else
inline constexpr int64_t kLaunch = 0;  // built without kernels: all is done by the processors
#endif

}  // namespace pliant_test
