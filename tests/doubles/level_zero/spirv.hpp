// What a file in SPIR-V asks for and offers, as far as a driver must know before it compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>

namespace soft_ze {

struct Spirv {
  std::string refusal;  ///< "" or why it is none, or none for kernels of 64-bit devices
  std::set<std::string> kernels;
  std::set<uint32_t> capabilities;
};

constexpr uint32_t kSpirvFloat64 = 10;      ///< a capability
constexpr uint32_t kNewestSpirv = 0x10200;  ///< 1.2

Spirv read_spirv(std::span<const std::byte> file);

}  // namespace soft_ze
