// How structs of the ABI are read and written whose other side may be older or newer. Everything with a struct_size
// goes through here, on both sides of the border.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace pliant::sdk {

namespace detail {

/// To the `size` bytes at `to`, as widened() says. Sizes are multiples of `alignment`: a slot or field that a maker's
/// size cuts is not there.
inline void widen(void* to, uint32_t size, const void* from, uint32_t alignment) noexcept {
  uint32_t given = 0;
  std::memcpy(&given, from, sizeof(given));
  const uint32_t known = std::min(given, size) / alignment * alignment;
  std::memset(to, 0, size);
  std::memcpy(to, from, known);
  std::memcpy(to, &known, sizeof(known));
}

}  // namespace detail

/// Bytes of a struct up to its field `last`, that included: what a maker must know who knows that field.
template <class Struct, class Field>
[[nodiscard]] size_t bytes_to(Field Struct::*last) noexcept {
  const Struct known{};
  constexpr size_t kBytes = sizeof(Field);  // NOLINT(bugprone-sizeof-expression): some are pointers
  return static_cast<size_t>(reinterpret_cast<const std::byte*>(&(known.*last)) -
                             reinterpret_cast<const std::byte*>(&known)) +
         kBytes;
}

/// A copy of `from`, whose maker may know fewer fields or more: those that it does not know are zero or NULL in the
/// copy, those that this side does not know are left out. struct_size stays its maker's, up to sizeof(Struct).
template <class Struct>
requires std::is_trivially_copyable_v<Struct>
[[nodiscard]] Struct widened(const void* from) noexcept {
  Struct made{};
  detail::widen(&made, sizeof(Struct), from, alignof(Struct));
  return made;
}
template <class Struct>
[[nodiscard]] Struct widened(const Struct& from) noexcept {
  return widened<Struct>(static_cast<const void*>(&from));
}

/// The same of a struct of `size` bytes whose type the caller does not know, as of a table of slots that is kept by its
/// id.
[[nodiscard]] inline std::vector<std::byte> widened(const void* from, uint32_t size) {
  std::vector<std::byte> made(size);
  detail::widen(made.data(), size, from, alignof(void*));
  return made;
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
