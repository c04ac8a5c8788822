// Api: the functions of CUDA's runtime library, found at run time, so that the plugin opens on a machine that has none.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>
#include <string>

// Every call that the plugin makes whose form is the same in CUDA 12 and 13.
#define PLIANT_CUDA_CALLS(call)           \
  call(cudaRuntimeGetVersion);            \
  call(cudaDriverGetVersion);             \
  call(cudaGetErrorName);                 \
  call(cudaGetErrorString);               \
  call(cudaGetLastError);                 \
  call(cudaGetDeviceCount);               \
  call(cudaGetDevice);                    \
  call(cudaSetDevice);                    \
  call(cudaDeviceGetAttribute);           \
  call(cudaDeviceGetStreamPriorityRange); \
  call(cudaMalloc);                       \
  call(cudaFree);                         \
  call(cudaHostAlloc);                    \
  call(cudaFreeHost);                     \
  call(cudaHostRegister);                 \
  call(cudaHostUnregister);               \
  call(cudaMallocManaged);                \
  call(cudaMemGetInfo);                   \
  call(cudaPointerGetAttributes);         \
  call(cudaMemPoolCreate);                \
  call(cudaMemPoolDestroy);               \
  call(cudaMemPoolSetAttribute);          \
  call(cudaMemPoolTrimTo);                \
  call(cudaMallocFromPoolAsync);          \
  call(cudaFreeAsync);                    \
  call(cudaStreamCreateWithPriority);     \
  call(cudaStreamDestroy);                \
  call(cudaStreamQuery);                  \
  call(cudaStreamSynchronize);            \
  call(cudaStreamWaitEvent);              \
  call(cudaEventCreateWithFlags);         \
  call(cudaEventDestroy);                 \
  call(cudaEventRecord);                  \
  call(cudaEventQuery);                   \
  call(cudaEventSynchronize);             \
  call(cudaEventElapsedTime);             \
  call(cudaMemcpyAsync);                  \
  call(cudaMemsetAsync);                  \
  call(cudaDeviceGetPCIBusId);            \
  call(cudaIpcGetMemHandle);              \
  call(cudaIpcOpenMemHandle);             \
  call(cudaIpcCloseMemHandle)

// Calls that older runtimes lack: without them reductions and casts run on the processors.
#define PLIANT_CUDA_KERNEL_CALLS(call) \
  call(cudaLibraryLoadData);           \
  call(cudaLibraryUnload);             \
  call(cudaLibraryGetKernel);          \
  call(cudaLaunchKernel)

namespace pliant::cuda {

struct Api {
#define PLIANT_CUDA_MEMBER(name) decltype(&::name) name = nullptr  // NOLINT(bugprone-macro-parentheses): a declaration
  PLIANT_CUDA_CALLS(PLIANT_CUDA_MEMBER);
  PLIANT_CUDA_KERNEL_CALLS(PLIANT_CUDA_MEMBER);
#undef PLIANT_CUDA_MEMBER
  /// Called cudaGetDeviceProperties_v2 in CUDA 12. What it fills may be longer than cudaDeviceProp; the fields up to
  /// totalGlobalMem lie where they always lay.
  decltype(&::cudaGetDeviceProperties) cudaGetDeviceProperties = nullptr;  // NOLINT(readability-identifier-naming)

  /// Many copies in one call, in any order; both NULL where the runtime is older than 12.8. The form changed with
  /// CUDA 13.
  using Batch12 = cudaError_t (*)(void** to, void** from, size_t* bytes, size_t count, cudaMemcpyAttributes* attributes,
                                  size_t* attribute_at, size_t attribute_count, size_t* failed, cudaStream_t stream);
  using Batch13 = cudaError_t (*)(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                                  cudaMemcpyAttributes* attributes, size_t* attribute_at, size_t attribute_count,
                                  cudaStream_t stream);
  Batch12 copy_batch_12 = nullptr;
  Batch13 copy_batch_13 = nullptr;

  /// Why a file cannot be used.
  struct Refusal {
    bool is_there = false;  ///< it was opened, and is no runtime that can be used
    std::string why;
  };
  /// Opens the runtime, for good: it has threads and does not survive being closed.
  std::optional<Refusal> open(const std::string& file);
  [[nodiscard]] bool launches_kernels() const {
    return cudaLibraryLoadData != nullptr && cudaLibraryUnload != nullptr && cudaLibraryGetKernel != nullptr &&
           cudaLaunchKernel != nullptr;
  }
};

/// Makes a device the current one of this thread, and the one before again at the end.
class OnDevice {
 public:
  OnDevice(const Api& api, int device) : api_(api) {
    if (api_.cudaGetDevice(&before_) != cudaSuccess || before_ == device) {
      static_cast<void>(api_.cudaGetLastError());
      if (before_ == device) return;
    }
    changed_ = api_.cudaSetDevice(device) == cudaSuccess;
  }
  ~OnDevice() {
    if (changed_ && before_ >= 0) static_cast<void>(api_.cudaSetDevice(before_));
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const Api& api_;
  int before_ = -1;
  bool changed_ = false;
};

}  // namespace pliant::cuda
