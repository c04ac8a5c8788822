// Loads kernels and launches them.
#include "kernel_library.hpp"

#include <unistd.h>

#include <algorithm>

#include "kernel_image.hpp"
#include "kernels.hpp"
#include "result.hpp"

namespace pliant::cuda {

using sdk::Failure;

KernelLibrary::~KernelLibrary() {
  if (library_ == nullptr || ::getpid() != device_->owner) return;
  if (device_->api.cudaLibraryUnload(library_) != cudaSuccess) static_cast<void>(device_->api.cudaGetLastError());
}

std::string KernelLibrary::load(const DevicePtr& device) {
  const Api& api = device->api;
  if (kernel_image() == nullptr) return "the plugin was built without nvcc, and has no kernels";
  if (!api.launches_kernels()) return "this CUDA runtime lacks cudaLibraryLoadData or related functions";
  device_ = device;
  const OnDevice here(api, device->index);
  try {
    check(api, api.cudaLibraryLoadData(&library_, kernel_image(), nullptr, nullptr, 0, nullptr, nullptr, 0),
          "cudaLibraryLoadData");
    cudaKernel_t one = nullptr;  // a library may be loaded whose kernels are for other devices
    check(api, api.cudaLibraryGetKernel(&one, library_, "pliant_reduce_sum_f32"), "cudaLibraryGetKernel");
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

const std::string& KernelLibrary::why_none(const DevicePtr& device) {
  const std::lock_guard lock(mutex_);
  if (!asked_) why_none_ = load(device);
  asked_ = true;
  return why_none_;
}

cudaKernel_t KernelLibrary::find(const std::string& name) {
  const std::lock_guard lock(mutex_);
  cudaKernel_t& kernel = kernels_[name];
  if (kernel == nullptr) {
    check(device_->api, device_->api.cudaLibraryGetKernel(&kernel, library_, name.c_str()), "cudaLibraryGetKernel");
  }
  return kernel;
}

template <class Arguments>
void KernelLibrary::launch(const std::string& name, const Arguments& arguments, uint64_t threads, Stream& stream) {
  const uint64_t wanted = (threads + kernels::kThreads - 1) / kernels::kThreads;
  const uint64_t most = uint64_t{stream.device().processors} * 32;  // each thread goes on with more elements
  const auto blocks = static_cast<unsigned>(std::min(wanted, most));
  Stream::Turn(stream).on_device([kernel = find(name), arguments, blocks](const Api& api, cudaStream_t handle) {
    auto held = arguments;
    void* all[] = {&held};  // copied by the launch
    check(api, api.cudaLaunchKernel(kernel, dim3(blocks), dim3(kernels::kThreads), all, 0, handle), "cudaLaunchKernel");
  });
}

void KernelLibrary::reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op,
                           double scale, Stream& stream) {
  const std::string name = std::string("pliant_reduce_") + name_of(op) + "_" + name_of(elements.dtype);
  const auto go = [&](auto arguments, const char* suffix) {
    arguments.to = to;
    arguments.count = elements.count;
    arguments.scale = scale;
    arguments.sources = static_cast<int32_t>(from.size());
    std::copy(from.begin(), from.end(), arguments.from);
    launch(name + suffix, arguments, elements.count, stream);
  };
  if (from.size() <= kernels::kFewSources) return go(kernels::ReduceArguments<kernels::kFewSources>{}, "");
  go(kernels::ReduceArguments<kernels::kMostSources>{}, "_many");
}

void KernelLibrary::cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream) {
  launch(std::string("pliant_cast_") + name_of(elements.dtype) + "_" + name_of(to_type),
         kernels::CastArguments{to, from, elements.count}, elements.count, stream);
}

void KernelLibrary::digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
  launch("pliant_digest_blocks", kernels::DigestArguments{to, static_cast<const kernels::DigestBlock*>(from), blocks},
         blocks, stream);
}

void KernelLibrary::adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
  const kernels::AdamWNumbers numbers{update.gradient_scale, update.beta1,   update.beta2, update.rate,
                                      update.correction,     update.epsilon, update.decay};
  launch("pliant_adamw",
         kernels::AdamWArguments{numbers, arrays.weights, arrays.gradient, arrays.first_moment, arrays.second_moment,
                                 arrays.count},
         arrays.count, stream);
}

void KernelLibrary::squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
  launch("pliant_squared_norms", kernels::NormArguments{to, from, count}, sdk::norm_chunks(count) * kernels::kNormLanes,
         stream);
}

}  // namespace pliant::cuda
