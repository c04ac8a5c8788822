// Seat: a weight of a sharded model as a leaf of autograd. Includes libtorch; for model.cpp and its own test.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <pliant/sharded.hpp>
#include <vector>

namespace tinylm {

/// Whole only for a while, each time somewhere else. All tensors that share its storage, those that autograd saved
/// among them, see it where it is now. In between it points at nothing: libtorch refuses to read it, or the process
/// ends by a signal, but nobody computes with what lies in released memory.
struct Seat {
  pliant::ParameterId id{};
  at::Tensor leaf;

  Seat(pliant::ParameterId parameter, const std::vector<int64_t>& sizes)
      : id(parameter), leaf(at::from_blob(&nowhere(), sizes)) {
    leaf.set_requires_grad(true);
    stand_up();
  }
  void sit_at(float* values) { leaf.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr(values, at::kCPU)); }
  void add_gradient_to(float* gradient) { leaf.mutable_grad() = at::from_blob(gradient, leaf.sizes()); }
  void stand_up() {
    sit_at(nullptr);
    leaf.mutable_grad() = at::Tensor();
  }

 private:
  static float& nowhere() {
    static float value = 0;
    return value;
  }
};

}  // namespace tinylm
