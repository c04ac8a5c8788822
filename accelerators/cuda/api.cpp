// Opens CUDA's runtime library and finds its functions.
#include "api.hpp"

#include <dlfcn.h>

namespace pliant::cuda {

std::optional<Api::Refusal> Api::open(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return Refusal{false, why == nullptr ? file + ": cannot be opened" : why};
  }
  std::string missing;
  const auto find = [&](const char* name) {
    void* found = ::dlsym(library, name);
    if (found == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
    return found;
  };
#define PLIANT_CUDA_FIND(name) name = reinterpret_cast<decltype(name)>(find(#name))
  PLIANT_CUDA_CALLS(PLIANT_CUDA_FIND);
#undef PLIANT_CUDA_FIND
#define PLIANT_CUDA_FIND(name) name = reinterpret_cast<decltype(name)>(::dlsym(library, #name))
  PLIANT_CUDA_KERNEL_CALLS(PLIANT_CUDA_FIND);
#undef PLIANT_CUDA_FIND
  void* properties = ::dlsym(library, "cudaGetDeviceProperties_v2");
  if (properties == nullptr) properties = find("cudaGetDeviceProperties");
  cudaGetDeviceProperties = reinterpret_cast<decltype(cudaGetDeviceProperties)>(properties);
  int version = 0;
  if (void* batch = ::dlsym(library, "cudaMemcpyBatchAsync");
      batch != nullptr && cudaRuntimeGetVersion != nullptr && cudaRuntimeGetVersion(&version) == cudaSuccess) {
    if (version >= 13000) copy_batch_13 = reinterpret_cast<Batch13>(batch);
    if (version < 13000) copy_batch_12 = reinterpret_cast<Batch12>(batch);
  }
  if (missing.empty()) return std::nullopt;
  return Refusal{true, file + " is not a usable CUDA runtime: it lacks " + missing};
}

}  // namespace pliant::cuda
