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
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  for (const uintptr_t byte : {begin, begin + bytes - 1}) {
    unsigned char resident = 0;
    if (bytes != 0 && ::mincore(reinterpret_cast<void*>(byte / page * page), 1, &resident) != 0) return false;
  }
  return true;
}

/// Throws PLIANT_INVALID_ARGUMENT unless is_mapped. `what` names the memory in the message.
inline void require_mapped(const void* pointer, uint64_t bytes, const char* what) {
  sdk::require(is_mapped(pointer, bytes),
               std::string(what) +
                   " is memory neither of the device nor of this process; it was freed, or the "
                   "pointer is wrong");
}

}  // namespace pliant::devices
