#include "elastic/device_sums.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace pliant::elastic {
namespace {

constexpr size_t kBlock = size_t{1} << 11;  // half a first-level cache for two operands

void add_here(float* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

DeviceSums::DeviceSums(const Accelerator& accelerator, int32_t device)
    : stream_(accelerator, device), here_(accelerator.properties(device).host_visible) {}

void DeviceSums::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (here_) {
    std::memcpy(to, from, bytes);
  } else {
    stream_.copy(to, from, bytes);
  }
}

void DeviceSums::zero(float* to, size_t count) {
  if (here_) {
    std::fill_n(to, count, 0.0F);
  } else {
    stream_.fill(to, 0, count * sizeof(float));
  }
}

void DeviceSums::add(float* to, const void* from, size_t count) {
  if (here_) return add_here(to, static_cast<const float*>(from), count);
  const std::array<const void*, 2> both{to, from};
  stream_.reduce(to, both, count, DType::kF32, ReduceOp::kSum);
}

void DeviceSums::cast(float* to, const void* from, DType type, size_t count) {
  stream_.cast(to, DType::kF32, from, type, count);
  if (here_) stream_.synchronize();
}

void DeviceSums::finish() {
  if (!here_) stream_.synchronize();
}

size_t DeviceSums::block(size_t all) const {
  return here_ ? kBlock : all;
}

}  // namespace pliant::elastic
