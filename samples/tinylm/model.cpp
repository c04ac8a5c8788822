// The transformer: pre-norm blocks, learned positions that restart with each sequence, output tied to the token
// embedding.
#include "model.hpp"

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>

#include "blas_threads.hpp"

namespace tinylm {
namespace {

using torch::Tensor;

struct Block {
  Tensor norm1_weight, norm1_bias, qkv_weight, qkv_bias, mix_weight, mix_bias;
  Tensor norm2_weight, norm2_bias, up_weight, up_bias, down_weight, down_bias;
};

/// The sequences of one call, laid end to end for everything that works token by token, and in padded attention blocks.
struct Layout {
  Tensor tokens;       ///< [T] all tokens, sequence after sequence
  Tensor positions;    ///< [T] place of each token in its sequence
  Tensor predictors;   ///< tokens that have a successor, as indices into T
  Tensor targets;      ///< their successors
  Tensor to_blocks;    ///< [blocks * width] index into T of each place of each block; padding repeats token 0
  Tensor from_blocks;  ///< [T] index of each token among the places
  Tensor mask;         ///< [blocks, 1, width, width] 0 where a place may look at another, -inf elsewhere
  int64_t blocks = 0;
  int64_t width = 0;
};

/// Several short sequences share an attention block of this many places; a longer sequence makes all blocks as wide as
/// itself.
constexpr int64_t kBlockWidth = 128;

Tensor index_tensor(const std::vector<int64_t>& values) {
  return torch::tensor(values, torch::kInt64);
}

/// Fills `mask` so that each place sees itself and earlier places of its own sequence. Padding sees itself only, which
/// keeps its softmax finite; nothing reads it.
void allow_within_sequences(Tensor& mask, int64_t block, const std::vector<int64_t>& owner, int64_t width) {
  float* rows = mask.data_ptr<float>() + block * width * width;
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const auto places = static_cast<size_t>(block * width);
      const int64_t mine = owner[places + static_cast<size_t>(i)];
      if (i == j || (mine >= 0 && mine == owner[places + static_cast<size_t>(j)])) rows[i * width + j] = 0.0F;
    }
  }
}

Layout lay_out(std::span<const Sequence> sequences) {
  Layout made;
  made.width = kBlockWidth;
  for (const Sequence& sequence : sequences) made.width = std::max(made.width, static_cast<int64_t>(sequence.size()));

  std::vector<int64_t> tokens, positions, predictors, targets, to_blocks, from_blocks, owner, used;
  for (size_t s = 0; s < sequences.size(); ++s) {
    const auto length = static_cast<int64_t>(sequences[s].size());
    size_t block = 0;
    while (block < used.size() && used[block] + length > made.width) ++block;
    if (block == used.size()) {
      used.push_back(0);
      to_blocks.resize(used.size() * static_cast<size_t>(made.width), 0);
      owner.resize(to_blocks.size(), -1);
    }
    for (int64_t i = 0; i < length; ++i) {
      const auto place = static_cast<int64_t>(block) * made.width + used[block] + i;
      const auto here = static_cast<int64_t>(tokens.size());
      to_blocks[static_cast<size_t>(place)] = here;
      owner[static_cast<size_t>(place)] = static_cast<int64_t>(s);
      from_blocks.push_back(place);
      tokens.push_back(sequences[s][static_cast<size_t>(i)]);
      positions.push_back(i);
      if (i + 1 < length) {
        predictors.push_back(here);
        targets.push_back(sequences[s][static_cast<size_t>(i) + 1]);
      }
    }
    used[block] += length;
  }
  made.blocks = static_cast<int64_t>(used.size());
  made.tokens = index_tensor(tokens);
  made.positions = index_tensor(positions);
  made.predictors = index_tensor(predictors);
  made.targets = index_tensor(targets);
  made.to_blocks = index_tensor(to_blocks);
  made.from_blocks = index_tensor(from_blocks);
  made.mask = torch::full({made.blocks, 1, made.width, made.width}, -std::numeric_limits<float>::infinity());
  for (int64_t block = 0; block < made.blocks; ++block) allow_within_sequences(made.mask, block, owner, made.width);
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
    torch::set_num_threads(1);
    const int64_t d = shape.dim;
    const int64_t per_block = 12 * d * d + 13 * d;
    const int64_t total = shape.vocab * d + shape.max_sequence * d + shape.layers * per_block + 2 * d;
    flat = torch::empty({total});
    flat_gradient = torch::zeros({total});
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
    const torch::NoGradGuard no_gradient;
    leaf.normal_(0.0, deviation, random);
    return leaf;
  }
  Tensor take_constant(int64_t count, double value) {
    Tensor leaf = take_part({count}, false);
    const torch::NoGradGuard no_gradient;
    leaf.fill_(value);
    return leaf;
  }

  [[nodiscard]] Tensor attend(const Tensor& x, const Block& block, const Layout& layout) const {
    const int64_t head = shape.dim / shape.heads;
    const Tensor qkv = torch::linear(x, block.qkv_weight, block.qkv_bias)
                           .index_select(0, layout.to_blocks)
                           .view({layout.blocks, layout.width, 3, shape.heads, head})
                           .permute({2, 0, 3, 1, 4});
    const Tensor scale = qkv[0] * (1.0 / std::sqrt(static_cast<double>(head)));
    const Tensor weights = torch::softmax(torch::matmul(scale, qkv[1].transpose(-1, -2)) + layout.mask, -1);
    const Tensor mixed = torch::matmul(weights, qkv[2])
                             .permute({0, 2, 1, 3})
                             .reshape({layout.blocks * layout.width, shape.dim})
                             .index_select(0, layout.from_blocks);
    return torch::linear(mixed, block.mix_weight, block.mix_bias);
  }

  [[nodiscard]] Tensor summed_loss(const Layout& layout) const {
    const std::vector<int64_t> width{shape.dim};
    Tensor x = torch::embedding(embedding, layout.tokens) + torch::embedding(positions, layout.positions);
    for (const Block& block : blocks) {
      x = x + attend(torch::layer_norm(x, width, block.norm1_weight, block.norm1_bias), block, layout);
      const Tensor normed = torch::layer_norm(x, width, block.norm2_weight, block.norm2_bias);
      const Tensor hidden = torch::relu(torch::linear(normed, block.up_weight, block.up_bias));
      x = x + torch::linear(hidden, block.down_weight, block.down_bias);
    }
    x = torch::layer_norm(x.index_select(0, layout.predictors), width, final_weight, final_bias);
    const Tensor logits = torch::matmul(x, embedding.t());
    return torch::nll_loss(torch::log_softmax(logits, 1), layout.targets, {}, at::Reduction::Sum);
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
  const torch::NoGradGuard no_gradient;
  return static_cast<double>(state_->summed_loss(lay_out(sequences)).item<float>());
}

}  // namespace tinylm
