// Network: the transformer as functions of its weights: pre-norm blocks, learned positions that restart with each
// sequence, output tied to the token embedding. Includes libtorch; for model.cpp alone.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nll_loss.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"

namespace tinylm {

using at::Tensor;

struct Block {
  Tensor norm1_weight, norm1_bias, qkv_weight, qkv_bias, mix_weight, mix_bias;
  Tensor norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
};

/// Attention blocks of one width. Short sequences share a block; each sees itself alone.
struct BlockGroup {
  Tensor places;  ///< [blocks * width] index into the tokens; padding repeats token 0
  Tensor mask;    ///< [blocks, 1, width, width] 0 where a place may look at another, -inf elsewhere
  int64_t blocks = 0;
  int64_t width = 0;
};

/// The sequences of one call, laid end to end for everything that works token by token, and in attention blocks.
struct Layout {
  Tensor tokens;      ///< [T] all tokens, sequence after sequence
  Tensor positions;   ///< [T] place of each token in its sequence
  Tensor predictors;  ///< tokens that have a successor, as indices into T
  Tensor targets;     ///< their successors
  std::vector<BlockGroup> groups;
  Tensor from_blocks;  ///< [T] index of each token among the places of all groups
};

/// The smallest block. A longer sequence goes to blocks of the next power of two: few widths, little padding.
constexpr int64_t kSmallestBlock = 64;

inline Tensor index_tensor(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

/// The sequences whose blocks have one width, being laid out.
struct Blocks {
  int64_t width;
  std::vector<int64_t> places;  ///< token at each place
  std::vector<int64_t> owners;  ///< sequence at each place, -1 for padding
  std::vector<int64_t> used;    ///< places of each block that are taken

  /// Takes `length` places of the first block with room for them, and returns the first.
  int64_t take(int64_t length) {
    size_t block = 0;
    while (block < used.size() && used[block] + length > width) ++block;
    if (block == used.size()) {
      used.push_back(0);
      places.resize(used.size() * static_cast<size_t>(width), 0);
      owners.resize(places.size(), -1);
    }
    const int64_t first = static_cast<int64_t>(block) * width + used[block];
    used[block] += length;
    return first;
  }

  /// Each place sees itself and earlier places of its own sequence. Padding sees itself, which keeps its softmax
  /// finite.
  [[nodiscard]] BlockGroup group() const {
    const auto blocks = static_cast<int64_t>(used.size());
    BlockGroup made{index_tensor(places), at::full({blocks, 1, width, width}, -std::numeric_limits<float>::infinity()),
                    blocks, width};
    float* row = made.mask.data_ptr<float>();
    for (int64_t place = 0; place < blocks * width; ++place, row += width) {
      const int64_t owner = owners[static_cast<size_t>(place)];
      row[place % width] = 0.0F;
      for (int64_t back = 1; back <= place % width; ++back) {
        if (owner < 0 || owners[static_cast<size_t>(place - back)] != owner) break;
        row[place % width - back] = 0.0F;
      }
    }
    return made;
  }
};

inline Layout lay_out(std::span<const Sequence> sequences) {
  std::vector<int64_t> tokens, positions, predictors, targets, from_blocks;
  std::map<int64_t, Blocks> by_width;
  std::vector<std::pair<int64_t, int64_t>> homes;  // width and place of each token
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto length = static_cast<int64_t>(sequences[s].size());
    int64_t width = kSmallestBlock;
    while (width < length) width *= 2;
    Blocks& blocks = by_width.try_emplace(width, Blocks{width, {}, {}, {}}).first->second;
    const int64_t first = blocks.take(length);
    for (int64_t i = 0; i < length; ++i) {
      const auto here = static_cast<int64_t>(tokens.size());
      blocks.places[static_cast<size_t>(first + i)] = here;
      blocks.owners[static_cast<size_t>(first + i)] = static_cast<int64_t>(s);
      homes.emplace_back(width, first + i);
      tokens.push_back(sequences[s][static_cast<size_t>(i)]);
      positions.push_back(i);
      if (i + 1 < length) {
        predictors.push_back(here);
        targets.push_back(sequences[s][static_cast<size_t>(i) + 1]);
      }
    }
  }
  Layout made;
  std::map<int64_t, int64_t> first_place;
  int64_t places = 0;
  for (const auto& [width, blocks] : by_width) {
    first_place[width] = places;
    places += static_cast<int64_t>(blocks.places.size());
    made.groups.push_back(blocks.group());
  }
  for (const auto& [width, place] : homes) from_blocks.push_back(first_place[width] + place);
  made.tokens = index_tensor(tokens);
  made.positions = index_tensor(positions);
  made.predictors = index_tensor(predictors);
  made.targets = index_tensor(targets);
  made.from_blocks = index_tensor(from_blocks);
  return made;
}

struct Network {
  ModelShape shape;
  Tensor embedding, positions, final_weight, final_bias;
  std::vector<Block> blocks;

  /// Attention inside the blocks of one group: [blocks * width, dim].
  [[nodiscard]] Tensor attend_in(const BlockGroup& group, const Tensor& qkv) const {
    const int64_t head = shape.dim / shape.heads;
    const Tensor parts = qkv.index_select(0, group.places)
                             .view({group.blocks, group.width, 3, shape.heads, head})
                             .permute({2, 0, 3, 1, 4});
    const Tensor queries = parts[0] * (1.0 / std::sqrt(static_cast<double>(head)));
    const Tensor weights = at::softmax(at::matmul(queries, parts[1].transpose(-1, -2)) + group.mask, -1);
    return at::matmul(weights, parts[2]).permute({0, 2, 1, 3}).reshape({group.blocks * group.width, shape.dim});
  }

  [[nodiscard]] Tensor attend(const Tensor& x, const Block& block, const Layout& layout) const {
    const Tensor qkv = at::linear(x, block.qkv_weight, block.qkv_bias);
    std::vector<Tensor> mixed;
    for (const BlockGroup& group : layout.groups) mixed.push_back(attend_in(group, qkv));
    return at::linear(at::cat(mixed).index_select(0, layout.from_blocks), block.mix_weight, block.mix_bias);
  }

  [[nodiscard]] Tensor embed(const Layout& layout) const {
    return at::embedding(embedding, layout.tokens) + at::embedding(positions, layout.positions);
  }
  [[nodiscard]] Tensor pass(const Block& block, const Tensor& in, const Layout& layout) const {
    const std::vector<int64_t> width{shape.dim};
    const Tensor x = in + attend(at::layer_norm(in, width, block.norm1_weight, block.norm1_bias), block, layout);
    const Tensor normed = at::layer_norm(x, width, block.norm2_weight, block.norm2_bias);
    const Tensor hidden = at::relu(at::linear(normed, block.up_weight, block.up_bias));
    return x + at::linear(hidden, block.down_weight, block.down_bias);
  }
  [[nodiscard]] Tensor loss(const Tensor& in, const Layout& layout) const {
    const std::vector<int64_t> width{shape.dim};
    const Tensor x = at::layer_norm(in.index_select(0, layout.predictors), width, final_weight, final_bias);
    const Tensor logits = at::matmul(x, embedding.t());
    return at::nll_loss(at::log_softmax(logits, 1), layout.targets, {}, at::Reduction::Sum);
  }
  [[nodiscard]] Tensor summed_loss(const Layout& layout) const {
    Tensor x = embed(layout);
    for (const Block& block : blocks) x = pass(block, x, layout);
    return loss(x, layout);
  }

  /// Makes all weights, in one order: `take` is given name, sizes, what fills it, and whether it decays.
  /// fill: above 0 the standard deviation of a normal distribution; 0 and -1 stand for zeros and ones.
  template <class Take>
  void build(const ModelShape& wanted, Take&& take) {
    shape = wanted;
    const int64_t d = shape.dim;
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(shape.layers));
    embedding = take("embedding", {shape.vocab, d}, 0.02, true);
    positions = take("positions", {shape.max_sequence, d}, 0.02, false);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      const std::string at = "blocks." + std::to_string(layer) + ".";
      Block block;
      block.norm1_weight = take(at + "norm1.weight", {d}, kOnes, false);
      block.norm1_bias = take(at + "norm1.bias", {d}, kZeros, false);
      block.qkv_weight = take(at + "qkv.weight", {3 * d, d}, 0.02, true);
      block.qkv_bias = take(at + "qkv.bias", {3 * d}, kZeros, false);
      block.mix_weight = take(at + "mix.weight", {d, d}, residual, true);
      block.mix_bias = take(at + "mix.bias", {d}, kZeros, false);
      block.norm2_weight = take(at + "norm2.weight", {d}, kOnes, false);
      block.norm2_bias = take(at + "norm2.bias", {d}, kZeros, false);
      block.up_weight = take(at + "up.weight", {4 * d, d}, 0.02, true);
      block.up_bias = take(at + "up.bias", {4 * d}, kZeros, false);
      block.down_weight = take(at + "down.weight", {d, 4 * d}, residual, true);
      block.down_bias = take(at + "down.bias", {d}, kZeros, false);
      blocks.push_back(std::move(block));
    }
    final_weight = take("final.weight", {d}, kOnes, false);
    final_bias = take("final.bias", {d}, kZeros, false);
  }
  static constexpr double kZeros = 0;
  static constexpr double kOnes = -1;
};

/// What build() says of the first values.
inline void fill(Tensor& values, double how, at::Generator& random) {
  const at::NoGradGuard no_gradient;
  if (how > 0) {
    values.normal_(0.0, how, random);
  } else {
    values.fill_(how == Network::kOnes ? 1.0 : 0.0);
  }
}

}  // namespace tinylm
