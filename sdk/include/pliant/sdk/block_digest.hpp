// What digest_blocks_async computes, on the processors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pliant::sdk {

inline constexpr uint64_t kDigestBlockBytes = 1024;

namespace detail {

inline constexpr size_t kDigestWords = kDigestBlockBytes / sizeof(uint32_t);

constexpr std::array<uint32_t, kDigestWords> make_digest_keys() {
  std::array<uint32_t, kDigestWords> keys{};
  for (size_t i = 0; i < kDigestWords; ++i) {
    // The finalizer of splitmix64, of i + 1.
    uint64_t x = i + 1 + 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    x ^= x >> 31U;
    keys[i] = static_cast<uint32_t>(x >> 32U);
  }
  return keys;
}
inline constexpr std::array<uint32_t, kDigestWords> kDigestKeys = make_digest_keys();

}  // namespace detail

/// NH of a block of kDigestBlockBytes bytes at any address: see digest_blocks_async in pliant/abi/accelerator.h.
inline uint64_t digest_of_block(const void* block) noexcept {
  std::array<uint32_t, detail::kDigestWords> words;
  std::memcpy(words.data(), block, sizeof(words));
  uint64_t sum = 0;
  for (size_t i = 0; i < words.size(); i += 2) {
    const uint32_t left = words[i] + detail::kDigestKeys[i];
    const uint32_t right = words[i + 1] + detail::kDigestKeys[i + 1];
    sum += uint64_t{left} * right;
  }
  return sum;
}

/// to[i] = that of the i-th block. O(bytes).
inline void digest_blocks(uint64_t* to, const void* from, uint64_t blocks) noexcept {
  const auto* const bytes = static_cast<const std::byte*>(from);
  for (uint64_t i = 0; i < blocks; ++i) to[i] = digest_of_block(bytes + i * kDigestBlockBytes);
}

}  // namespace pliant::sdk
