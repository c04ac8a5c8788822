// What a backend may ask of a pointer that its driver does not know, before it touches the memory itself.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::devices {

/// This process has something mapped where the range begins and where it ends: with nothing there, a copy by the CPU
/// would end the process. Costs two calls of the system.
inline bool is_mapped(const void* pointer, uint64_t bytes) {
  static const auto kPageBytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0) return true;
  for (const uint64_t offset : {uint64_t{0}, bytes - 1}) {
    auto* at = static_cast<char*>(const_cast<void*>(pointer)) + offset;
    at -= reinterpret_cast<uintptr_t>(at) % kPageBytes;
    unsigned char resident = 0;
    if (::mincore(at, 1, &resident) != 0) return false;
  }
  return true;
}

/// Throws PLIANT_INVALID_ARGUMENT unless is_mapped. `what` names the memory in the message.
inline void require_mapped(const void* pointer, uint64_t bytes, const char* what) {
  sdk::require(
      is_mapped(pointer, bytes),
      std::string(what) + " is memory of neither the device nor this process; it was freed, or the pointer is wrong");
}

}  // namespace pliant::devices
