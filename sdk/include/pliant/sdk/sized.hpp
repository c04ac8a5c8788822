// How structs of the ABI are read and written whose other side may be older or newer. Everything with a struct_size
// goes through here, on both sides of the border.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace pliant::sdk {

/// A copy of `from`, whose maker may know fewer fields or more: those that it does not know are zero or NULL in the
/// copy, those that this side does not know are left out. struct_size stays its maker's, up to sizeof(Struct).
template <class Struct>
requires std::is_trivially_copyable_v<Struct>
[[nodiscard]] Struct widened(const void* from) noexcept {
  Struct made{};
  uint32_t size = 0;
  std::memcpy(&size, from, sizeof(size));
  std::memcpy(static_cast<void*>(&made), from, std::min<size_t>(size, sizeof(Struct)));
  made.struct_size = std::min(size, static_cast<uint32_t>(sizeof(Struct)));
  return made;
}
template <class Struct>
[[nodiscard]] Struct widened(const Struct& from) noexcept {
  return widened<Struct>(static_cast<const void*>(&from));
}

/// Writes the fields of `made` to `to`, as many as its maker has room for. to->struct_size stays.
template <class Struct>
requires std::is_trivially_copyable_v<Struct>
void fill(Struct* to, const Struct& made) noexcept {
  const size_t size = std::min<size_t>(to->struct_size, sizeof(Struct));
  if (size <= sizeof(uint32_t)) return;
  std::memcpy(reinterpret_cast<std::byte*>(to) + sizeof(uint32_t),
              reinterpret_cast<const std::byte*>(&made) + sizeof(uint32_t), size - sizeof(uint32_t));
}

}  // namespace pliant::sdk
