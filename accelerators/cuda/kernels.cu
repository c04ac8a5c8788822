// The kernels of reductions, casts, digests, updates and norms.
#include "kernels.hpp"

namespace pliant::cuda::kernels {
namespace {

__device__ __forceinline__ uint64_t first() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ uint64_t stride() {
  return static_cast<uint64_t>(gridDim.x) * blockDim.x;
}

}  // namespace

#define PLIANT_REDUCE(op, Op, type, T)                                                                \
  extern "C" __global__ void __launch_bounds__(kThreads)                                              \
      pliant_reduce_##op##_##type(const __grid_constant__ ReduceArguments<kFewSources> job) {         \
    for (uint64_t i = first(); i < job.count; i += stride()) reduce_element<T, Op>(job, i);           \
  }                                                                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads)                                              \
      pliant_reduce_##op##_##type##_many(const __grid_constant__ ReduceArguments<kMostSources> job) { \
    for (uint64_t i = first(); i < job.count; i += stride()) reduce_element<T, Op>(job, i);           \
  }
#define PLIANT_REDUCE_SUM(type, T) PLIANT_REDUCE(sum, Sum, type, T)
#define PLIANT_REDUCE_MIN(type, T) PLIANT_REDUCE(min, Min, type, T)
#define PLIANT_REDUCE_MAX(type, T) PLIANT_REDUCE(max, Max, type, T)
PLIANT_KERNEL_TYPES(PLIANT_REDUCE_SUM)
PLIANT_KERNEL_TYPES(PLIANT_REDUCE_MIN)
PLIANT_KERNEL_TYPES(PLIANT_REDUCE_MAX)

#define PLIANT_CAST(from, From, to, To)                                                                       \
  extern "C" __global__ void __launch_bounds__(kThreads) pliant_cast_##from##_##to(const CastArguments job) { \
    for (uint64_t i = first(); i < job.count; i += stride()) cast_element<From, To>(job, i);                  \
  }
#define PLIANT_CASTS(to, To) PLIANT_KERNEL_CASTS_TO(PLIANT_CAST, to, To)
PLIANT_KERNEL_TYPES(PLIANT_CASTS)

extern "C" __global__ void __launch_bounds__(kThreads) pliant_digest_blocks(const DigestArguments job) {
  for (uint64_t i = first(); i < job.count; i += stride()) job.to[i] = digest_of_block(job.from[i].words);
}

extern "C" __global__ void __launch_bounds__(kThreads) pliant_adamw(const AdamWArguments job) {
  for (uint64_t i = first(); i < job.count; i += stride()) update_element(job, i);
}

// A warp adds a chunk, each of its threads what is one lane of it.
static_assert(kNormLanes == 32, "a warp has 32 threads");
extern "C" __global__ void __launch_bounds__(kThreads) pliant_squared_norms(const NormArguments job) {
  const uint64_t chunks = (job.count + kNormChunk - 1) / kNormChunk;
  const uint32_t lane = threadIdx.x % kNormLanes;
  for (uint64_t chunk = first() / kNormLanes; chunk < chunks; chunk += stride() / kNormLanes) {
    const uint64_t begin = chunk * kNormChunk;
    const uint64_t end = min(begin + kNormChunk, job.count);
    double sum = 0;
    for (uint64_t i = begin + lane; i < end; i += kNormLanes) {
      const double value = job.from[i];
      sum = __dadd_rn(sum, __dmul_rn(value, value));
    }
    for (int half = kNormLanes / 2; half > 0; half /= 2) {
      sum = __dadd_rn(sum, __shfl_down_sync(0xffffffffU, sum, half));
    }
    if (lane == 0) job.to[chunk] = sum;
  }
}

}  // namespace pliant::cuda::kernels
