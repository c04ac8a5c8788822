// The transformer: pre-norm blocks, learned positions that restart with each sequence, output tied to the token
// embedding.
#include "model.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
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
#include <utility>

#include "blas_threads.hpp"

namespace tinylm {
namespace {

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

Tensor index_tensor(const std::vector<int64_t>& values) {
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

Layout lay_out(std::span<const Sequence> sequences) {
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

}  // namespace

struct Model::State {
  ModelShape shape;
  Tensor flat;           ///< all parameters
  Tensor flat_gradient;  ///< same order
  std::vector<float> decays;
  Tensor embedding, positions, final_weight, final_bias;
  std::vector<Block> blocks;

  State(const ModelShape& wanted, uint64_t seed) : shape(wanted) {
    use_one_blas_thread();
    at::set_num_threads(1);
    const int64_t d = shape.dim;
    const int64_t per_block = 12 * d * d + 13 * d;
    const int64_t total = shape.vocab * d + shape.max_sequence * d + shape.layers * per_block + 2 * d;
    flat = at::empty({total});
    flat_gradient = at::zeros({total});
    decays.reserve(static_cast<size_t>(total));
    at::Generator random = at::detail::createCPUGenerator(seed);
    const double residual_scale = 0.02 / std::sqrt(2.0 * static_cast<double>(shape.layers));
    embedding = take({shape.vocab, d}, 0.02, random, true);
    positions = take({shape.max_sequence, d}, 0.02, random, false);
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      Block block;
      block.norm1_weight = take_constant(d, 1);
      block.norm1_bias = take_constant(d, 0);
      block.qkv_weight = take({3 * d, d}, 0.02, random, true);
      block.qkv_bias = take_constant(3 * d, 0);
      block.mix_weight = take({d, d}, residual_scale, random, true);
      block.mix_bias = take_constant(d, 0);
      block.norm2_weight = take_constant(d, 1);
      block.norm2_bias = take_constant(d, 0);
      block.up_weight = take({4 * d, d}, 0.02, random, true);
      block.up_bias = take_constant(4 * d, 0);
      block.down_weight = take({d, 4 * d}, residual_scale, random, true);
      block.down_bias = take_constant(d, 0);
      blocks.push_back(std::move(block));
    }
    final_weight = take_constant(d, 1);
    final_bias = take_constant(d, 0);
    TORCH_INTERNAL_ASSERT(static_cast<int64_t>(decays.size()) == total);
  }

  /// The next parameters of `flat`, as a leaf whose gradient is the same part of `flat_gradient`.
  Tensor take_part(at::IntArrayRef sizes, bool decay) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    const auto first = static_cast<int64_t>(decays.size());
    decays.resize(decays.size() + static_cast<size_t>(count), decay ? 1.0F : 0.0F);
    Tensor leaf = flat.narrow(0, first, count).view(sizes).detach();
    leaf.set_requires_grad(true);
    leaf.mutable_grad() = flat_gradient.narrow(0, first, count).view(sizes);
    return leaf;
  }
  Tensor take(at::IntArrayRef sizes, double deviation, at::Generator& random, bool decay) {
    Tensor leaf = take_part(sizes, decay);
    const at::NoGradGuard no_gradient;
    leaf.normal_(0.0, deviation, random);
    return leaf;
  }
  Tensor take_constant(int64_t count, double value) {
    Tensor leaf = take_part({count}, false);
    const at::NoGradGuard no_gradient;
    leaf.fill_(value);
    return leaf;
  }

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

  [[nodiscard]] Tensor summed_loss(const Layout& layout) const {
    const std::vector<int64_t> width{shape.dim};
    Tensor x = at::embedding(embedding, layout.tokens) + at::embedding(positions, layout.positions);
    for (const Block& block : blocks) {
      x = x + attend(at::layer_norm(x, width, block.norm1_weight, block.norm1_bias), block, layout);
      const Tensor normed = at::layer_norm(x, width, block.norm2_weight, block.norm2_bias);
      const Tensor hidden = at::relu(at::linear(normed, block.up_weight, block.up_bias));
      x = x + at::linear(hidden, block.down_weight, block.down_bias);
    }
    x = at::layer_norm(x.index_select(0, layout.predictors), width, final_weight, final_bias);
    const Tensor logits = at::matmul(x, embedding.t());
    return at::nll_loss(at::log_softmax(logits, 1), layout.targets, {}, at::Reduction::Sum);
  }
};

Model::Model(const ModelShape& shape, uint64_t seed) : state_(std::make_unique<State>(shape, seed)) {}
Model::~Model() = default;

std::span<float> Model::parameters() {
  return {state_->flat.data_ptr<float>(), state_->decays.size()};
}
std::span<const float> Model::parameters() const {
  return {state_->flat.data_ptr<float>(), state_->decays.size()};
}
std::span<const float> Model::gradient() const {
  return {state_->flat_gradient.data_ptr<float>(), state_->decays.size()};
}
const std::vector<float>& Model::decays() const {
  return state_->decays;
}

double Model::loss_and_gradient(std::span<const Sequence> sequences) {
  state_->flat_gradient.zero_();
  if (sequences.empty()) return 0;
  const Tensor sum = state_->summed_loss(lay_out(sequences));
  sum.backward();
  return static_cast<double>(sum.item<float>());
}

double Model::loss(std::span<const Sequence> sequences) const {
  if (sequences.empty()) return 0;
  const at::NoGradGuard no_gradient;
  return static_cast<double>(state_->summed_loss(lay_out(sequences)).item<float>());
}

}  // namespace tinylm
