// KernelLibrary: the kernels that the build put into the plugin, as CUDA has loaded them.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "stream.hpp"

namespace pliant::cuda {

/// All calls may come from any thread.
class KernelLibrary {
 public:
  KernelLibrary() = default;
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  /// "" when kernels can be launched on the device, else why not: for good. Loads them when first called.
  const std::string& why_none(const DevicePtr& device);

  /// All want operands that the device reaches, and why_none() to have said "".
  void reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
              Stream& stream);
  void cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream);
  void digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream);
  void adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream);
  void squared_norms(double* to, const float* from, uint64_t count, Stream& stream);

 private:
  std::string load(const DevicePtr& device);
  cudaKernel_t find(const std::string& name);
  /// `threads`: how many there is work for.
  template <class Arguments>
  void launch(const std::string& name, const Arguments& arguments, uint64_t threads, Stream& stream);

  std::mutex mutex_;
  bool asked_ = false;
  std::string why_none_;
  DevicePtr device_;  ///< through which it was loaded: a library is there for all devices
  cudaLibrary_t library_ = nullptr;
  std::map<std::string, cudaKernel_t> kernels_;
};

}  // namespace pliant::cuda
