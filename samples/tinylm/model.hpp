// Model: a small decoder-only transformer whose weights and gradient are two flat arrays. Torch stays behind this
// header.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tinylm {

using Token = uint16_t;
using Sequence = std::span<const Token>;

struct ModelShape {
  int64_t vocab = 0;
  int64_t dim = 0;  ///< width of the residual stream; a multiple of heads
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t max_sequence = 0;  ///< longest sequence that has positions
};

/// A tensor of weights.
struct Parameter {
  uint64_t size = 0;
  bool decays = false;  ///< the matrices do; biases, norms and positions do not
};

/// Computes on one thread: the same weights and sequences give the same bits in every process of the machine.
class Model {
 public:
  /// Random weights from `seed`.
  Model(const ModelShape& shape, uint64_t seed);
  ~Model();

  [[nodiscard]] std::span<float> parameters();
  [[nodiscard]] std::span<const float> parameters() const;
  /// Of the sum that loss_and_gradient returned last; one entry per parameter.
  [[nodiscard]] std::span<const float> gradient() const;
  /// What the weights are cut into, in their order.
  [[nodiscard]] const std::vector<Parameter>& parts() const;

  /// Summed cross-entropy (nats) of every token but the first of each sequence, given the tokens before it in the same
  /// sequence. Sequences have 2..max_sequence tokens < vocab; none sees another one. 0 without sequences.
  double loss_and_gradient(std::span<const Sequence> sequences);
  [[nodiscard]] double loss(std::span<const Sequence> sequences) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tinylm
