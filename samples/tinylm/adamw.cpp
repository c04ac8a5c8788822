// Decoupled weight decay, bias-corrected moments (Loshchilov and Hutter, 2019).
#include "adamw.hpp"

#include <cmath>
#include <pliant/optimizer.hpp>

namespace tinylm {
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

void AdamW::step(std::span<float> weights, std::span<const float> gradient, std::span<const Parameter> parts,
                 double learning_rate) {
  step(weights, gradient, parts,
       {learning_rate, options_.beta1, options_.beta2, options_.epsilon, options_.weight_decay});
}

pliant::AdamWUpdate AdamW::next(const Update& update, double norm) {
  ++steps_;
  product1_.add(update.beta1, options_.beta1);
  product2_.add(update.beta2, options_.beta2);
  const bool clips = options_.clip_norm > 0 && norm > options_.clip_norm;
  return {.gradient_scale = static_cast<float>(clips ? options_.clip_norm / norm : 1.0),
          .beta1 = static_cast<float>(update.beta1),
          .beta2 = static_cast<float>(update.beta2),
          .rate = static_cast<float>(update.learning_rate / (1 - product1_.of(options_.beta1))),
          .correction = static_cast<float>(1 / std::sqrt(1 - product2_.of(options_.beta2))),
          .epsilon = static_cast<float>(update.epsilon),
          .decay = static_cast<float>(update.learning_rate * update.weight_decay)};
}

void AdamW::step(std::span<float> weights, std::span<const float> gradient, std::span<const Parameter> parts,
                 const Update& update) {
  const pliant::AdamWUpdate all = next(update, std::sqrt(pliant::squared_norm(gradient)));
  pliant::AdamWUpdate of_part = all;
  size_t first = 0;
  for (const Parameter& one : parts) {
    of_part.decay = one.decays ? all.decay : 0;
    pliant::adamw(of_part, {weights.data() + first, gradient.data() + first, first_.data() + first,
                            second_.data() + first, one.size});
    first += one.size;
  }
}

void AdamW::restore(int64_t steps, const BetaProduct& beta1, const BetaProduct& beta2) {
  steps_ = steps;
  product1_ = beta1;
  product2_ = beta2;
}

}  // namespace tinylm
