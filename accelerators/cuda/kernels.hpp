// What CUDA's kernels take, and which there are. Compiled for devices by nvcc, and for the CPU
// by the tests' software device.
#pragma once

#include "../common/devices/adamw.hpp"
#include "../common/devices/block_digest.hpp"
#include "../common/devices/chunk_norm.hpp"
#include "../common/devices/element.hpp"

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

/// The one argument of the kernel of updates.
struct AdamWArguments {
  AdamWNumbers numbers;
  float* weights;
  const float* gradient;
  float* first_moment;
  float* second_moment;
  uint64_t count;
};

/// The one argument of the kernel of squared norms. `count`: floats.
struct NormArguments {
  double* to;
  const float* from;
  uint64_t count;
};

PLIANT_KERNEL_CODE void update_element(const AdamWArguments& job, uint64_t i) {
  const float g = times(job.gradient[i], job.numbers.gradient_scale);
  const float first = new_moment(job.numbers.beta1, job.first_moment[i], first_addend(job.numbers, g));
  const float second = new_moment(job.numbers.beta2, job.second_moment[i], second_addend(job.numbers, g));
  job.first_moment[i] = first;
  job.second_moment[i] = second;
  job.weights[i] = new_weight(job.numbers, job.weights[i], first, second);
}

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

// Every kernel: pliant_reduce_<op>_<type>, with _many for more than kFewSources sources, pliant_cast_<from>_<to>,
// pliant_digest_blocks, pliant_adamw and pliant_squared_norms.
#define PLIANT_KERNEL_TYPES(use) \
  use(f32, float) use(f64, double) use(i32, int32_t) use(i64, int64_t) use(u8, uint8_t) use(f16, Half) use(bf16, BFloat)
#define PLIANT_KERNEL_CASTS_TO(use, to, To)                                                            \
  use(f32, float, to, To) use(f64, double, to, To) use(i32, int32_t, to, To) use(i64, int64_t, to, To) \
      use(u8, uint8_t, to, To) use(f16, Half, to, To) use(bf16, BFloat, to, To)
