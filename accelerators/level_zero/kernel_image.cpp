// Holds the files that llvm-spirv made, byte by byte.
#include "kernel_image.hpp"

#ifdef PLIANT_LEVEL_ZERO_SPIRV
#define PLIANT_HELD(symbol, file)                     \
  asm(".pushsection .rodata." #symbol                 \
      ",\"a\"\n"                                      \
      ".balign 16\n"                                  \
      ".globl " #symbol                               \
      "\n"                                            \
      ".hidden " #symbol "\n" #symbol                 \
      ":\n"                                           \
      ".incbin \"" file                               \
      "\"\n"                                          \
      ".globl " #symbol                               \
      "_end\n"                                        \
      ".hidden " #symbol "_end\n" #symbol             \
      "_end:\n"                                       \
      ".popsection\n");                               \
  extern "C" {                                        \
  extern const std::byte symbol[];       /* NOLINT */ \
  extern const std::byte symbol##_end[]; /* NOLINT */ \
  }
PLIANT_HELD(pliant_level_zero_kernels, PLIANT_LEVEL_ZERO_SPIRV)
PLIANT_HELD(pliant_level_zero_kernels_of_doubles, PLIANT_LEVEL_ZERO_SPIRV_OF_DOUBLES)
#undef PLIANT_HELD
#endif

namespace pliant::level_zero {

#ifdef PLIANT_LEVEL_ZERO_SPIRV
std::span<const std::byte> kernel_image() {
  return {pliant_level_zero_kernels, pliant_level_zero_kernels_end};
}
std::span<const std::byte> kernel_image_of_doubles() {
  return {pliant_level_zero_kernels_of_doubles, pliant_level_zero_kernels_of_doubles_end};
}
#else
std::span<const std::byte> kernel_image() {
  return {};
}
std::span<const std::byte> kernel_image_of_doubles() {
  return {};
}
#endif

}  // namespace pliant::level_zero
