// What kernels are launched with: known to the device's code and to the CPU's.
#pragma once

#include "../common/devices/adamw.hpp"
#include "../common/devices/block_digest.hpp"
#include "../common/devices/chunk_norm.hpp"
#include "../common/devices/element.hpp"

namespace pliant::level_zero::kernels {

using namespace pliant::kernels;

enum {
  kGroupSize = 256,  ///< work items of a group, at most
  kSources = 16      ///< that one launch of a reduction takes
};
/// Which part of a reduction a launch is. More than kSources sources take several, which hand on what they have in
/// `partial`, in the type in which elements are computed: so the order and the rounding are those of one.
enum Part : uint32_t { kBegins = 1, kEnds = 2 };

}  // namespace pliant::level_zero::kernels

// Kernels are named pliant_reduce_<op>_<type>, pliant_cast_<from>_<to>, pliant_digest_blocks, pliant_adamw and
// pliant_squared_norms. Those of doubles are an image of their own: a device without doubles would refuse all of it.
#define PLIANT_KERNEL_SINGLES(use) \
  use(f32, float) use(i32, int32_t) use(i64, int64_t) use(u8, uint8_t) use(f16, Half) use(bf16, BFloat)
#define PLIANT_KERNEL_CASTS_TO_SINGLE(use, to, To)                                                     \
  use(f32, float, to, To) use(i32, int32_t, to, To) use(i64, int64_t, to, To) use(u8, uint8_t, to, To) \
      use(f16, Half, to, To) use(bf16, BFloat, to, To)
