// Saved form: a magic word, the number of weights, the steps done, the products of the betas, weights, both moments, a
// digest of all that.
#include "trainee.hpp"

#include <algorithm>
#include <cstring>
#include <istream>
#include <iterator>
#include <ostream>
#include <pliant/error.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cache.hpp"

namespace tinylm {
namespace {

constexpr std::string_view kTraineeMagic = "tinylm02";

template <class V>
void take(std::string_view& in, V* values, size_t count) {
  std::memcpy(values, in.data(), count * sizeof(V));
  in.remove_prefix(count * sizeof(V));
}

}  // namespace

Trainee::Trainee(const Settings& settings, uint64_t seed)
    : model_(settings.shape, seed),
      adamw_(settings.adamw, model_.parameters().size()),
      warmup_steps_(settings.warmup_steps) {}

void Trainee::apply(std::span<const float> gradient, double learning_rate) {
  pliant::Scaling scaling;
  scaling.learning_rate = learning_rate;
  apply(gradient, scaling);
}

void Trainee::apply(std::span<const float> gradient, const pliant::Scaling& scaling) {
  const auto next = static_cast<double>(adamw_.steps() + 1);
  const double warm = warmup_steps_ == 0 ? 1.0 : std::min(1.0, next / static_cast<double>(warmup_steps_));
  const AdamW::Options& usual = adamw_.options();
  adamw_.step(model_.parameters(), gradient, model_.decays(),
              {scaling.learning_rate * warm, pliant::Scaling::beta(usual.beta1, scaling.one_minus_beta1),
               pliant::Scaling::beta(usual.beta2, scaling.one_minus_beta2), usual.epsilon * scaling.epsilon,
               usual.weight_decay * scaling.weight_decay});
}

void Trainee::save(std::ostream& out) const {
  std::string bytes(kTraineeMagic);
  const auto weights = model_.parameters();
  const uint64_t counts[2] = {weights.size(), static_cast<uint64_t>(adamw_.steps())};
  const AdamW::BetaProduct products[2] = {adamw_.beta1_product(), adamw_.beta2_product()};
  append(bytes, counts, 2);
  append(bytes, products, 2);
  append(bytes, weights.data(), weights.size());
  append(bytes, adamw_.first_moment().data(), weights.size());
  append(bytes, adamw_.second_moment().data(), weights.size());
  const uint64_t digest = digest_of(bytes);
  append(bytes, &digest, 1);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void Trainee::load(std::istream& in) {
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const auto weights = model_.parameters();
  uint64_t counts[2] = {};
  AdamW::BetaProduct products[2] = {};
  uint64_t digest = 0;
  const size_t body = kTraineeMagic.size() + sizeof(counts) + sizeof(products) + 3 * weights.size_bytes();
  if (bytes.size() != body + sizeof(digest)) {
    throw pliant::Error(pliant::Status::kDataLoss, "the saved training state has " + std::to_string(bytes.size()) +
                                                       " bytes, this model's has " +
                                                       std::to_string(body + sizeof(digest)));
  }
  std::string_view rest(bytes);
  std::memcpy(&digest, rest.data() + body, sizeof(digest));
  const bool whole = rest.substr(0, kTraineeMagic.size()) == kTraineeMagic && digest_of(rest.substr(0, body)) == digest;
  rest.remove_prefix(kTraineeMagic.size());
  take(rest, counts, 2);
  take(rest, products, 2);
  if (!whole || counts[0] != weights.size()) {
    throw pliant::Error(pliant::Status::kDataLoss, "the saved training state is damaged");
  }
  std::vector<float> first(weights.size());
  std::vector<float> second(weights.size());
  take(rest, weights.data(), weights.size());
  take(rest, first.data(), first.size());
  take(rest, second.data(), second.size());
  adamw_.restore(static_cast<int64_t>(counts[1]), products[0], products[1], std::move(first), std::move(second));
}

}  // namespace tinylm
