// Finds OpenBLAS among the loaded libraries, since torch may have been given another BLAS.
#include "blas_threads.hpp"

#include <dlfcn.h>

namespace tinylm {

bool use_one_blas_thread() {
  void* const symbol = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
  if (symbol == nullptr) return false;
  reinterpret_cast<void (*)(int)>(symbol)(1);
  return true;
}

}  // namespace tinylm
