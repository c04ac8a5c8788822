// The plugin's kernels, by name, run element by element on the CPU.
#include <map>

#include "../../../accelerators/cuda/kernels.hpp"
#include "soft.hpp"

namespace soft_cuda {
namespace {

using namespace pliant::cuda::kernels;
using Launcher = cudaError_t (*)(void** arguments, Command& command);

/// The range as the runtime sees it; the command uses it.
cudaError_t reach(const void* pointer, uint64_t bytes, Command& command, void*& inside) {
  AllocationPtr found;
  const cudaError_t result = state().find_range(pointer, bytes, found);
  if (result != cudaSuccess) return result;
  if (!found) {
    state().violation("a kernel was given plain memory");
    return cudaErrorInvalidValue;
  }
  command.uses.push_back(found);
  inside = State::inside(found, pointer);
  return cudaSuccess;
}

template <class T, class Op, int kRoom>
cudaError_t launch_reduce(void** arguments, Command& command) {
  auto job = *static_cast<const ReduceArguments<kRoom>*>(arguments[0]);
  cudaError_t result = reach(job.to, job.count * sizeof(T), command, job.to);
  for (int32_t r = 0; r < job.sources && result == cudaSuccess; ++r) {
    void* inside = nullptr;
    result = reach(job.from[r], job.count * sizeof(T), command, inside);
    job.from[r] = inside;
  }
  command.work = [job] {
    for (uint64_t i = 0; i < job.count; ++i) reduce_element<T, Op>(job, i);
  };
  return result;
}

template <class From, class To>
cudaError_t launch_cast(void** arguments, Command& command) {
  auto job = *static_cast<const CastArguments*>(arguments[0]);
  void* from = nullptr;
  cudaError_t result = reach(job.to, job.count * sizeof(To), command, job.to);
  if (result == cudaSuccess) result = reach(job.from, job.count * sizeof(From), command, from);
  job.from = from;
  command.work = [job] {
    for (uint64_t i = 0; i < job.count; ++i) cast_element<From, To>(job, i);
  };
  return result;
}

cudaError_t launch_digest(void** arguments, Command& command) {
  const auto job = *static_cast<const DigestArguments*>(arguments[0]);
  void* to = nullptr;
  void* from = nullptr;
  cudaError_t result = reach(job.to, job.count * sizeof(uint64_t), command, to);
  if (result == cudaSuccess) result = reach(job.from, job.count * sizeof(DigestBlock), command, from);
  command.work = [to, from, count = job.count] {
    const auto* const blocks = static_cast<const DigestBlock*>(from);
    for (uint64_t i = 0; i < count; ++i) static_cast<uint64_t*>(to)[i] = digest_of_block(blocks[i].words);
  };
  return result;
}

cudaError_t launch_adamw(void** arguments, Command& command) {
  auto job = *static_cast<const AdamWArguments*>(arguments[0]);
  cudaError_t result = cudaSuccess;
  const auto place = [&](const float* array) {
    void* inside = nullptr;
    if (result == cudaSuccess) result = reach(array, job.count * sizeof(float), command, inside);
    return static_cast<float*>(inside);
  };
  job.weights = place(job.weights);
  job.gradient = place(job.gradient);
  job.first_moment = place(job.first_moment);
  job.second_moment = place(job.second_moment);
  command.work = [job] {
    for (uint64_t i = 0; i < job.count; ++i) update_element(job, i);
  };
  return result;
}

cudaError_t launch_norms(void** arguments, Command& command) {
  const auto job = *static_cast<const NormArguments*>(arguments[0]);
  const uint64_t chunks = (job.count + kNormChunk - 1) / kNormChunk;
  void* to = nullptr;
  void* from = nullptr;
  cudaError_t result = reach(job.to, chunks * sizeof(double), command, to);
  if (result == cudaSuccess) result = reach(job.from, job.count * sizeof(float), command, from);
  command.work = [to, from, count = job.count] {
    const auto* const floats = static_cast<const float*>(from);
    constexpr uint64_t kMost = kNormChunk;
    for (uint64_t at = 0; at < count; at += kMost) {
      const uint64_t left = count - at;
      static_cast<double*>(to)[at / kMost] =
          norm_of_chunk(floats + at, static_cast<uint32_t>(left < kMost ? left : kMost));
    }
  };
  return result;
}

const std::map<std::string, Launcher>& kernels() {
  static const std::map<std::string, Launcher> kAll{{"pliant_digest_blocks", &launch_digest},
                                                    {"pliant_adamw", &launch_adamw},
                                                    {"pliant_squared_norms", &launch_norms},
#define SOFT_REDUCE(op, Op, type, T)                                    \
  {"pliant_reduce_" #op "_" #type, &launch_reduce<T, Op, kFewSources>}, \
      {"pliant_reduce_" #op "_" #type "_many", &launch_reduce<T, Op, kMostSources>},
#define SOFT_SUM(type, T) SOFT_REDUCE(sum, Sum, type, T)
#define SOFT_MIN(type, T) SOFT_REDUCE(min, Min, type, T)
#define SOFT_MAX(type, T) SOFT_REDUCE(max, Max, type, T)
                                                    PLIANT_KERNEL_TYPES(SOFT_SUM) PLIANT_KERNEL_TYPES(SOFT_MIN)
                                                        PLIANT_KERNEL_TYPES(SOFT_MAX)
#define SOFT_CAST(from, From, to, To) {"pliant_cast_" #from "_" #to, &launch_cast<From, To>},
#define SOFT_CASTS(to, To) PLIANT_KERNEL_CASTS_TO(SOFT_CAST, to, To)
                                                            PLIANT_KERNEL_TYPES(SOFT_CASTS)};
  return kAll;
}

}  // namespace

bool kernel_exists(const std::string& name) {
  return kernels().count(name) != 0;
}

cudaError_t launch(const std::string& name, void** arguments, Command& command) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? cudaErrorInvalidDeviceFunction : found->second(arguments, command);
}

}  // namespace soft_cuda
