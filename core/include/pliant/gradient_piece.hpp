// GradientPiece: a part of a micro-batch's gradient, wherever it lies.
#pragma once

#include <cstdint>

#include "pliant/accelerator.hpp"

namespace pliant {

/// Elements [offset, offset + count) of the gradient of a micro-batch.
struct GradientPiece {
  uint64_t offset = 0;
  uint64_t count = 0;
  /// `count` elements: plain or pinned host memory, or memory of the rank's device. Who may overwrite it when:
  /// Step::add_piece.
  const void* data = nullptr;
  DType dtype = DType::kF32;  ///< kF32, or kBF16 or kF16, which are cast to kF32 before they are added
};

}  // namespace pliant
