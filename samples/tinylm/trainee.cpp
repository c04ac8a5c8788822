// Saved beside the arrays: a magic word, the number of weights, the steps done, the products of the betas, a digest of
// all that. Older snapshots had the weights and both moments before the digest.
#include "trainee.hpp"

#include <algorithm>
#include <array>
#include <cmath>
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

constexpr std::string_view kMagic = "tinylm03";
constexpr std::string_view kMagicWithArrays = "tinylm02";

template <class V>
void take(std::string_view& in, V* values, size_t count) {
  std::memcpy(values, in.data(), count * sizeof(V));
  in.remove_prefix(count * sizeof(V));
}

}  // namespace

AdamW::Update Schedule::next(const pliant::Scaling& scaling) const {
  const auto step = static_cast<double>(adamw_.steps() + 1);
  const double warm = warmup_steps_ == 0 ? 1.0 : std::min(1.0, step / static_cast<double>(warmup_steps_));
  const AdamW::Options& usual = adamw_.options();
  return {scaling.learning_rate * warm, pliant::Scaling::beta(usual.beta1, scaling.one_minus_beta1),
          pliant::Scaling::beta(usual.beta2, scaling.one_minus_beta2), usual.epsilon * scaling.epsilon,
          usual.weight_decay * scaling.weight_decay};
}

Trainee::Trainee(const Settings& settings, uint64_t seed)
    : model_(settings.shape, seed), schedule_(settings, model_.parameters().size()) {}

void Trainee::apply(std::span<const float> gradient, double learning_rate) {
  pliant::Scaling scaling;
  scaling.learning_rate = learning_rate;
  apply(gradient, scaling);
}

void Trainee::apply(std::span<const float> gradient, const pliant::Scaling& scaling) {
  schedule_.adamw().step(model_.parameters(), gradient, model_.parts(), schedule_.next(scaling));
}

std::vector<pliant::StateArray> Trainee::arrays() {
  const auto array = [](const char* name, std::span<float> values) {
    return pliant::StateArray{name, pliant::DType::kF32, {static_cast<int64_t>(values.size())}, values.data()};
  };
  return {array("weights", model_.parameters()), array("adamw.first_moment", schedule_.adamw().first_moment()),
          array("adamw.second_moment", schedule_.adamw().second_moment())};
}

void Trainee::save(std::ostream& out) const {
  schedule_.save(out, model_.parameters().size());
}

void Trainee::load(std::istream& in) {
  const std::array<std::span<float>, 3> arrays{model_.parameters(), schedule_.adamw().first_moment(),
                                               schedule_.adamw().second_moment()};
  schedule_.load(in, model_.parameters().size(), arrays);
}

void Schedule::save(std::ostream& out, uint64_t weights) const {
  std::string bytes(kMagic);
  const uint64_t counts[2] = {weights, static_cast<uint64_t>(adamw_.steps())};
  const AdamW::BetaProduct products[2] = {adamw_.beta1_product(), adamw_.beta2_product()};
  append(bytes, counts, 2);
  append(bytes, products, 2);
  const uint64_t digest = digest_of(bytes);
  append(bytes, &digest, 1);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void Schedule::load(std::istream& in, uint64_t weights, std::span<const std::span<float>> arrays) {
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const bool with_arrays = !arrays.empty() && std::string_view(bytes).substr(0, kMagic.size()) == kMagicWithArrays;
  uint64_t counts[2] = {};
  AdamW::BetaProduct products[2] = {};
  uint64_t digest = 0;
  const size_t in_arrays = with_arrays ? 3 * weights * sizeof(float) : 0;
  const size_t body = kMagic.size() + sizeof(counts) + sizeof(products) + in_arrays;
  if (bytes.size() != body + sizeof(digest)) {
    throw pliant::Error(pliant::Status::kDataLoss, "the saved training state has " + std::to_string(bytes.size()) +
                                                       " bytes, this model's has " +
                                                       std::to_string(body + sizeof(digest)));
  }
  std::string_view rest(bytes);
  std::memcpy(&digest, rest.data() + body, sizeof(digest));
  const bool whole =
      (with_arrays || rest.substr(0, kMagic.size()) == kMagic) && digest_of(rest.substr(0, body)) == digest;
  rest.remove_prefix(kMagic.size());
  take(rest, counts, 2);
  take(rest, products, 2);
  if (!whole || counts[0] != weights) {
    throw pliant::Error(pliant::Status::kDataLoss, "the saved training state is damaged");
  }
  if (with_arrays) {
    for (const std::span<float> values : arrays) take(rest, values.data(), values.size());
  }
  adamw_.restore(static_cast<int64_t>(counts[1]), products[0], products[1]);
}

ShardedTrainee::ShardedTrainee(pliant::Session& session, const Settings& settings)
    : shards_(session, {"adamw.first_moment", "adamw.second_moment"}),
      model_(shards_, settings.shape, session.seed()),
      schedule_(settings, 0) {}

void ShardedTrainee::apply(const pliant::Scaling& scaling) {
  const double norm = std::sqrt(shards_.squared_gradient_norm());
  const pliant::AdamWUpdate all = schedule_.adamw().next(schedule_.next(scaling), norm);
  pliant::AdamWUpdate of_range = all;
  shards_.update([&](const pliant::ShardRange& range) {
    of_range.decay = model_.decays(range.parameter) ? all.decay : 0;
    pliant::adamw(of_range, {range.weights, range.gradient, range.state[0], range.state[1], range.count});
  });
}

}  // namespace tinylm
