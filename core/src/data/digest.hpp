// A 64-bit mix and a running digest over it. Not for security: they tell equal from different, on one machine type.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace pliant::data {

/// Spreads every bit of `x` over all 64 (the finalizer of splitmix64).
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Depends on every value added and on their order.
class Digest {
 public:
  void add(uint64_t value) { state_ = mix64(state_ ^ value); }
  void add(std::string_view text) {
    add(text.size());
    for (; !text.empty(); text.remove_prefix(text.size() < 8 ? text.size() : 8)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data(), text.size() < 8 ? text.size() : 8);
      add(word);
    }
  }
  template <class T>
  void add(std::span<const T> values) {
    add(uint64_t{values.size()});
    for (const T value : values) add(static_cast<uint64_t>(value));
  }
  [[nodiscard]] uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

}  // namespace pliant::data
