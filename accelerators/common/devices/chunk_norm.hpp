// The squared norm of a chunk as one work item of a kernel computes it: the bits of
// pliant/sdk/optimizer_arithmetic.hpp.
#pragma once

#include "element.hpp"

namespace pliant::kernels {

enum { kNormChunk = 1024, kNormLanes = 32 };

/// `from`: the first of `count` floats, at most kNormChunk.
template <class Floats>
PLIANT_KERNEL_CODE double norm_of_chunk(Floats from, uint32_t count) {
  double lanes[kNormLanes];
  uint32_t lane = 0;
  while (lane < kNormLanes) {
    double sum = 0;
    uint32_t i = lane;
    while (i < count) {
      const double value = from[i];
      sum += value * value;
      i += kNormLanes;
    }
    lanes[lane] = sum;
    ++lane;
  }
  uint32_t width = kNormLanes / 2;
  while (width > 0) {
    lane = 0;
    while (lane < width) {
      lanes[lane] += lanes[lane + width];
      ++lane;
    }
    width /= 2;
  }
  return lanes[0];
}

}  // namespace pliant::kernels
