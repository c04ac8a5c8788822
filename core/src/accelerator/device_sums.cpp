#include "accelerator/device_sums.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace pliant::detail {
namespace {

constexpr size_t kBlock = size_t{1} << 11;     // half a first-level cache for two operands
constexpr size_t kLookedAt = size_t{1} << 18;  // floats of a device that are looked at together

void add_here(float* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

DeviceSums::DeviceSums(const Accelerator& accelerator, int32_t device, Stream& stream)
    : accelerator_(accelerator), device_(device), stream_(stream), here_(accelerator.properties(device).host_visible) {}

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

void DeviceSums::sum(float* to, std::span<const void* const> from, size_t count) {
  if (from.size() == 1) return copy(to, from.front(), count * sizeof(float));
  stream_.reduce(to, from, count, DType::kF32, ReduceOp::kSum);
}

bool DeviceSums::finite(const float* there, size_t count) {
  if (!here_) return finite_there(there, count);
  return finite_here(there, count);
}

bool DeviceSums::finite_here(const float* values, size_t count) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t worst = 0;
  for (size_t i = 0; i < count; ++i) {
    worst |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? ~uint32_t{0} : 0;
  }
  return worst == 0;
}

// Times zero, what is finite is zero, and all else a NaN, which no addition takes away.
bool DeviceSums::finite_there(const float* there, size_t count) {
  if (count == 0) return true;
  const size_t width = std::min(count, kLookedAt);
  if (looked_at_.bytes() < 2 * width * sizeof(float)) {
    looked_at_ = Buffer();
    looked_at_ = Buffer(accelerator_, device_, 2 * width * sizeof(float));
  }
  auto* const all = static_cast<float*>(looked_at_.pointer());
  float* const chunk = all + width;
  for (size_t first = 0; first < count; first += width) {
    const size_t more = std::min(width, count - first);
    const std::array<const void*, 1> from{there + first};
    stream_.reduce(first == 0 ? all : chunk, from, more, DType::kF32, ReduceOp::kSum, 0.0);
    if (first > 0) add(all, chunk, more);
  }
  std::vector<float> zeros(width);
  stream_.copy(zeros.data(), all, width * sizeof(float));
  stream_.synchronize();
  return finite_here(zeros.data(), width);
}

void DeviceSums::cast(float* to, const void* from, DType type, size_t count) {
  stream_.cast(to, DType::kF32, from, type, count);
  if (here_) stream_.synchronize();
}

void DeviceSums::finish() {
  if (!here_) stream_.synchronize();
}

void DeviceSums::drain() noexcept {
  try {
    stream_.synchronize();
  } catch (...) {
    return;
  }
}

size_t DeviceSums::block(size_t all) const {
  return here_ ? kBlock : all;
}

}  // namespace pliant::detail
