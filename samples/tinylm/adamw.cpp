// Decoupled weight decay, bias-corrected moments (Loshchilov and Hutter, 2019).
#include "adamw.hpp"

#include <algorithm>
#include <cmath>

namespace tinylm {
namespace {

double norm_of(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

}  // namespace

AdamW::AdamW(const Options& options, size_t parameters) : options_(options), first_(parameters), second_(parameters) {}

double AdamW::BetaProduct::of(double beta) const {
  return std::pow(beta, static_cast<double>(plain)) * others;
}

void AdamW::BetaProduct::add(double beta, double plain_beta) {
  if (beta == plain_beta) {
    ++plain;
  } else {
    others *= beta;
  }
}

void AdamW::step(std::span<float> weights, std::span<const float> gradient, std::span<const float> decays,
                 double learning_rate) {
  step(weights, gradient, decays,
       {learning_rate, options_.beta1, options_.beta2, options_.epsilon, options_.weight_decay});
}

void AdamW::step(std::span<float> weights, std::span<const float> gradient, std::span<const float> decays,
                 const Update& update) {
  ++steps_;
  product1_.add(update.beta1, options_.beta1);
  product2_.add(update.beta2, options_.beta2);
  const double norm = options_.clip_norm > 0 ? norm_of(gradient) : 0;
  const auto scale = static_cast<float>(norm > options_.clip_norm ? options_.clip_norm / norm : 1.0);
  const auto rate = static_cast<float>(update.learning_rate / (1 - product1_.of(options_.beta1)));
  const auto correction = static_cast<float>(1 / std::sqrt(1 - product2_.of(options_.beta2)));
  const auto decay = static_cast<float>(update.learning_rate * update.weight_decay);
  const auto beta1 = static_cast<float>(update.beta1);
  const auto beta2 = static_cast<float>(update.beta2);
  const auto epsilon = static_cast<float>(update.epsilon);
  for (size_t i = 0; i < weights.size(); ++i) {
    const float g = gradient[i] * scale;
    first_[i] = beta1 * first_[i] + (1 - beta1) * g;
    second_[i] = beta2 * second_[i] + (1 - beta2) * g * g;
    weights[i] -= rate * first_[i] / (std::sqrt(second_[i]) * correction + epsilon) + decay * decays[i] * weights[i];
  }
}

void AdamW::restore(int64_t steps, const BetaProduct& beta1, const BetaProduct& beta2) {
  steps_ = steps;
  product1_ = beta1;
  product2_ = beta2;
}

}  // namespace tinylm
