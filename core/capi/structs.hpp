// Structs that grow, as they cross the border: read from, and written to, callers who know fewer fields or more.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "failure.hpp"

namespace pliant::capi {

/// struct_size and what lies beside it in the first 8 bytes: what every maker knows.
constexpr uint32_t kLeastSize = 8;
/// A larger struct_size was never set: no struct of the header comes near.
constexpr uint32_t kMostSize = 4096;

inline void check_size(const void* structure, const char* name) {
  require(structure, name);
  uint32_t size = 0;
  std::memcpy(&size, structure, sizeof(size));
  if (size < kLeastSize || size > kMostSize || size % sizeof(uint32_t) != 0) {  // every version ends with a field
    throw wrong("struct_size of " + std::string(name) + " is " + std::to_string(size) +
                ", which no version has: begin it with PLIANT_INIT");
  }
}

/// A copy of `from` in which fields that its maker does not know are 0. Throws for NULL, for a struct_size that is
/// none, and kUnimplemented for a field that is set and not known here.
template <class Struct>
requires std::is_trivially_copyable_v<Struct>
[[nodiscard]] Struct read(const Struct* from, const char* name) {
  check_size(from, name);
  const uint32_t size = from->struct_size;
  Struct made{};
  std::memcpy(static_cast<void*>(&made), from, std::min<size_t>(size, sizeof(Struct)));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(from);
  if (size > sizeof(Struct) && std::any_of(bytes + sizeof(Struct), bytes + size, [](auto byte) { return byte != 0; })) {
    throw Error(Status::kUnimplemented, std::string(name) +
                                            " has a field set that this library does not know: it is older than the "
                                            "header that the program was compiled with");
  }
  return made;
}

/// The same; NULL stands for a struct of defaults.
template <class Struct>
[[nodiscard]] Struct read_or_default(const Struct* from, const char* name) {
  return from == nullptr ? Struct{} : read(from, name);
}

/// Writes the fields of `made` that the caller knows; struct_size stays the caller's.
template <class Struct>
requires std::is_trivially_copyable_v<Struct>
void write(Struct* to, const Struct& made, const char* name) {
  check_size(to, name);
  const size_t size = std::min<size_t>(to->struct_size, sizeof(Struct));
  constexpr size_t kHead = sizeof(uint32_t);
  std::memcpy(reinterpret_cast<unsigned char*>(to) + kHead, reinterpret_cast<const unsigned char*>(&made) + kHead,
              size - kHead);
}

/// 0 stands for 1.
[[nodiscard]] inline int64_t at_least_one(int64_t given) {
  return given == 0 ? 1 : given;
}

/// Refuses bits that no flag of `known` has.
inline void check_flags(uint32_t flags, uint32_t known, const char* name) {
  if ((flags & ~known) != 0)
    throw Error(Status::kUnimplemented, std::string(name) + " has a flag that this library does not know");
}

/// Copies `from` to the caller's room; `to` NULL asks for the number alone. Throws kOutOfRange where it is too small.
template <class Element>
void fill_room(std::span<const Element> from, Element* to, uint64_t room, uint64_t* count, const char* name) {
  require(count, name);
  *count = from.size();
  if (to == nullptr) return;
  if (room < from.size()) {
    throw Error(Status::kOutOfRange,
                "there is room for " + std::to_string(room) + " of " + std::to_string(from.size()) + " elements");
  }
  std::copy(from.begin(), from.end(), to);
}

/// What the caller brings as an array.
template <class Element>
[[nodiscard]] std::span<const Element> given_array(const Element* elements, uint64_t count, const char* name) {
  if (count > 0) require(elements, name);
  // NOLINTNEXTLINE(bugprone-sizeof-expression): of pointers, too
  if (count > UINT64_MAX / 2 / sizeof(Element)) throw wrong(std::string(name) + " has more elements than memory has");
  return {elements, static_cast<size_t>(count)};
}

}  // namespace pliant::capi
