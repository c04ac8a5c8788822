// Holds the file that nvcc made, byte by byte.
#include "kernel_image.hpp"

#ifdef PLIANT_CUDA_FATBIN
asm(".pushsection .rodata.pliant_cuda_kernels,\"a\"\n"
    ".balign 16\n"
    ".globl pliant_cuda_kernels\n"
    ".hidden pliant_cuda_kernels\n"
    "pliant_cuda_kernels:\n"
    ".incbin \"" PLIANT_CUDA_FATBIN
    "\"\n"
    ".popsection\n");
extern "C" {
extern const unsigned char pliant_cuda_kernels[];
}
#endif

namespace pliant::cuda {

const void* kernel_image() {
#ifdef PLIANT_CUDA_FATBIN
  return static_cast<const unsigned char*>(pliant_cuda_kernels);
#else
  return nullptr;
#endif
}

}  // namespace pliant::cuda
