// ArrayDigests: blocks are taken in order and counted for the part that they lie in.
#include "data/array_digests.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

namespace pliant::data {
namespace {

/// Blocks whose digests the device gives at once: those of 256 MiB.
constexpr uint64_t kBlocksAtOnce = uint64_t{1} << 18U;
/// That come to the CPU at once.
constexpr uint64_t kCopiedAtOnce = uint64_t{8} << 20U;
static_assert(kCopiedAtOnce % ArrayDigests::kBlockBytes == 0);

}  // namespace

class ArrayDigests::Parts {
 public:
  Parts(uint64_t block, uint64_t blocks_each, std::span<uint64_t> sums)
      : block_(block), blocks_each_(blocks_each), sums_(sums) {
    std::fill(sums_.begin(), sums_.end(), 0);
  }
  /// Bytes that the CPU sees; only the last of all may be no whole block.
  void add(const std::byte* at, uint64_t bytes) {
    for (; bytes >= kBlockBytes; at += kBlockBytes, bytes -= kBlockBytes) put(sdk::digest_of_block(at));
    if (bytes == 0) return;
    std::array<std::byte, kBlockBytes> rest{};
    std::memcpy(rest.data(), at, bytes);
    put(sdk::digest_of_block(rest.data()));
  }
  void put(uint64_t nh) {
    sums_[part_] += value_of_block(nh, block_++);
    if (++in_part_ < blocks_each_) return;
    in_part_ = 0;
    ++part_;
  }

 private:
  uint64_t block_;
  const uint64_t blocks_each_;
  std::span<uint64_t> sums_;
  uint64_t in_part_ = 0;
  size_t part_ = 0;
};

uint64_t ArrayDigests::digest_of(const void* data, uint64_t bytes, uint64_t block) {
  uint64_t sum = 0;
  digests_of(data, bytes, block, std::numeric_limits<uint64_t>::max(), std::span(&sum, 1));
  return sum;
}

uint64_t ArrayDigests::digest_here(const void* data, uint64_t bytes) {
  uint64_t sum = 0;
  Parts(0, std::numeric_limits<uint64_t>::max(), std::span(&sum, 1)).add(static_cast<const std::byte*>(data), bytes);
  return sum;
}

void ArrayDigests::digests_of(const void* data, uint64_t bytes, uint64_t block, uint64_t blocks_each,
                              std::span<uint64_t> parts) {
  Parts made(block, blocks_each, parts);
  const auto* const at = static_cast<const std::byte*>(data);
  if (host_visible_) return made.add(at, bytes);
  take_on_device(made, at, bytes);
}

void ArrayDigests::take_on_device(Parts& parts, const std::byte* at, uint64_t bytes) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(at) % sizeof(uint32_t) == 0;
  const uint64_t blocks = is_aligned ? bytes / kBlockBytes : 0;
  uint64_t done = 0;
  while (device_can_ && done < blocks) {
    const uint64_t now = std::min(blocks - done, kBlocksAtOnce);
    if (values_.bytes() < now * sizeof(uint64_t)) {
      values_ = Buffer(accelerator_, device_, now * sizeof(uint64_t), MemoryKind::kPinned);
    }
    auto* const values = static_cast<uint64_t*>(values_.pointer());
    device_can_ = stream_.digest_blocks(values, at + done * kBlockBytes, now);
    if (!device_can_) break;
    stream_.synchronize();
    for (uint64_t i = 0; i < now; ++i) parts.put(values[i]);
    done += now;
  }
  const uint64_t taken = done * kBlockBytes;
  take_copies(parts, at + taken, bytes - taken);
}

void ArrayDigests::take_copies(Parts& parts, const std::byte* at, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += kCopiedAtOnce) {
    const uint64_t now = std::min(bytes - done, kCopiedAtOnce);
    if (chunk_.size() < now) chunk_.resize(now);
    stream_.copy(chunk_.data(), at + done, now);
    stream_.synchronize();
    parts.add(reinterpret_cast<const std::byte*>(chunk_.data()), now);
    copied_bytes_ += now;
  }
}

}  // namespace pliant::data
