// The kernels in SPIR-V as the build made them, or nothing where clang or llvm-spirv was missing.
#pragma once

#include <cstddef>
#include <span>

namespace pliant::level_zero {

/// Empty without kernels.
std::span<const std::byte> kernel_image();
/// Those of doubles.
std::span<const std::byte> kernel_image_of_doubles();

}  // namespace pliant::level_zero
