// An update of AdamW as kernels compute it, element by element: the bits of pliant/sdk/optimizer_arithmetic.hpp.
#pragma once

#include "element.hpp"

namespace pliant::kernels {

/// The numbers of pliant_adamw_update that differ from element to element in nothing.
struct AdamWNumbers {
  float gradient_scale;
  float beta1;
  float beta2;
  float rate;
  float correction;
  float epsilon;
  float decay;
};

// Each rounded once to the nearest, and none fused with the next. On devices with SPIR-V it is the driver that is told
// so when it builds the kernel.
#if defined(__CUDACC__)
PLIANT_KERNEL_CODE float times(float a, float b) {
  return __fmul_rn(a, b);
}
PLIANT_KERNEL_CODE float plus(float a, float b) {
  return __fadd_rn(a, b);
}
PLIANT_KERNEL_CODE float over(float a, float b) {
  return __fdiv_rn(a, b);
}
PLIANT_KERNEL_CODE float root(float a) {
  return __fsqrt_rn(a);
}
#else
PLIANT_KERNEL_CODE float times(float a, float b) {
  return a * b;
}
PLIANT_KERNEL_CODE float plus(float a, float b) {
  return a + b;
}
PLIANT_KERNEL_CODE float over(float a, float b) {
  return a / b;
}
#if defined(__OPENCL_CPP_VERSION__)
PLIANT_KERNEL_CODE float root(float a) {
  return sqrt(a);
}
#else
PLIANT_KERNEL_CODE float root(float a) {
  return __builtin_sqrtf(a);
}
#endif
#endif

PLIANT_KERNEL_CODE float new_moment(float beta, float moment, float addend) {
  return plus(times(beta, moment), addend);
}
/// Of the new moments.
PLIANT_KERNEL_CODE float new_weight(const AdamWNumbers& u, float weight, float first, float second) {
  const float below = plus(times(root(second), u.correction), u.epsilon);
  return weight - plus(over(times(u.rate, first), below), times(u.decay, weight));
}
PLIANT_KERNEL_CODE float first_addend(const AdamWNumbers& u, float g) {
  return times(1.0F - u.beta1, g);
}
PLIANT_KERNEL_CODE float second_addend(const AdamWNumbers& u, float g) {
  return times(times(1.0F - u.beta2, g), g);
}

}  // namespace pliant::kernels
