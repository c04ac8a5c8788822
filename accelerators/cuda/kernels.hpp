// What CUDA's kernels of reductions and casts take, and which there are. Compiled for devices by nvcc, and for the CPU
// by the tests' software device.
#pragma once

#include "../devices/block_digest.hpp"
#include "../devices/element.hpp"

namespace pliant::cuda::kernels {

using namespace pliant::kernels;

enum { kThreads = 256, kFewSources = 16, kMostSources = 1024 };

/// The one argument of a reduction's kernel.
template <int kRoom>
struct ReduceArguments {
  void* to;
  uint64_t count;
  double scale;
  int32_t sources;
  const void* from[kRoom];
};

/// The one argument of a cast's kernel.
struct CastArguments {
  void* to;
  const void* from;
  uint64_t count;
};

/// The one argument of the kernel of digests. `count`: blocks.
struct DigestArguments {
  uint64_t* to;
  const DigestBlock* from;
  uint64_t count;
};

template <class T, class Op, int kRoom>
PLIANT_KERNEL_CODE void reduce_element(const ReduceArguments<kRoom>& job, uint64_t i) {
  typename Element<T>::Computed value = Element<T>::load(static_cast<const T*>(job.from[0])[i]);
  for (int32_t r = 1; r < job.sources; ++r) {
    value = Op::fold(value, Element<T>::load(static_cast<const T*>(job.from[r])[i]));
  }
  static_cast<T*>(job.to)[i] = Element<T>::store(scaled(value, job.scale));
}

template <class From, class To>
PLIANT_KERNEL_CODE void cast_element(const CastArguments& job, uint64_t i) {
  static_cast<To*>(job.to)[i] = converted<From, To>(static_cast<const From*>(job.from)[i]);
}

}  // namespace pliant::cuda::kernels

// Every kernel: pliant_reduce_<op>_<type>, with _many for more than kFewSources sources, pliant_cast_<from>_<to>, and
// pliant_digest_blocks.
#define PLIANT_KERNEL_TYPES(use) \
  use(f32, float) use(f64, double) use(i32, int32_t) use(i64, int64_t) use(u8, uint8_t) use(f16, Half) use(bf16, BFloat)
#define PLIANT_KERNEL_CASTS_TO(use, to, To)                                                            \
  use(f32, float, to, To) use(f64, double, to, To) use(i32, int32_t, to, To) use(i64, int64_t, to, To) \
      use(u8, uint8_t, to, To) use(f16, Half, to, To) use(bf16, BFloat, to, To)
