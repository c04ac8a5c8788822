// Optimizer and saved state.
#include "trainee.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <pliant/error.hpp>
#include <sstream>

#include "cache.hpp"

using namespace tinylm;

namespace {

Settings small_settings() {
  Settings settings;
  settings.shape = {40, 16, 1, 2, 32};
  settings.warmup_steps = 4;
  return settings;
}

std::string rest_of(const Trainee& trainee) {
  std::ostringstream out;
  trainee.save(out);
  return out.str();
}

std::string arrays_of(Trainee& trainee) {
  std::string bytes;
  for (const pliant::StateArray& array : trainee.arrays())
    bytes.append(static_cast<const char*>(array.data), static_cast<size_t>(array.shape[0]) * sizeof(float));
  return bytes;
}

std::string saved(Trainee& trainee) {
  return arrays_of(trainee) + rest_of(trainee);
}

void give(Trainee& from, Trainee& to) {
  const std::vector<pliant::StateArray> source = from.arrays();
  const std::vector<pliant::StateArray> target = to.arrays();
  for (size_t i = 0; i < source.size(); ++i)
    std::memcpy(target[i].data, source[i].data, static_cast<size_t>(source[i].shape[0]) * sizeof(float));
  std::istringstream in(rest_of(from));
  to.load(in);
}

std::vector<float> ramp(const Trainee& trainee) {
  std::vector<float> gradient(trainee.gradient_size());
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = 0.001F * static_cast<float>(i % 7) - 0.002F;
  return gradient;
}

}  // namespace

TEST_CASE("the first AdamW update moves each weight by the rate against its gradient") {
  AdamW::Options options;
  options.weight_decay = 0;
  AdamW adamw(options, 3);
  std::vector<float> weights{1, 1, 1};
  adamw.step(weights, std::vector<float>{0.1F, -0.2F, 0}, std::vector<Parameter>{{3, true}}, 0.01);
  CHECK(weights[0] == doctest::Approx(0.99));
  CHECK(weights[1] == doctest::Approx(1.01));
  CHECK(weights[2] == 1.0F);
}

TEST_CASE("AdamW follows the formula over several updates") {
  const AdamW::Options options;
  AdamW adamw(options, 1);
  std::vector<float> weights{0.5F};
  double weight = 0.5;
  double first = 0;
  double second = 0;
  for (int step = 1; step <= 5; ++step) {
    const double gradient = 0.3 / step;
    adamw.step(weights, std::vector<float>{static_cast<float>(gradient)}, std::vector<Parameter>{{1, true}}, 0.05);
    first = 0.9 * first + 0.1 * gradient;
    second = 0.95 * second + 0.05 * gradient * gradient;
    const double update = first / (1 - std::pow(0.9, step)) / (std::sqrt(second / (1 - std::pow(0.95, step))) + 1e-8);
    weight -= 0.05 * (update + 0.1 * weight);
    CHECK(weights[0] == doctest::Approx(weight).epsilon(1e-5));
  }
}

TEST_CASE("a long gradient is clipped to clip_norm, a short one is not touched") {
  AdamW::Options options;
  options.clip_norm = 1.0;
  AdamW clipped(options, 2);
  AdamW unclipped(options, 2);
  std::vector<float> one{0, 0};
  std::vector<float> two{0, 0};
  clipped.step(one, std::vector<float>{30, 40}, std::vector<Parameter>{{2, false}}, 0.1);
  unclipped.step(two, std::vector<float>{0.6F, 0.8F}, std::vector<Parameter>{{2, false}}, 0.1);
  CHECK(clipped.first_moment()[0] == doctest::Approx(0.06));
  CHECK(clipped.first_moment()[1] == doctest::Approx(0.08));
  CHECK(unclipped.first_moment()[0] == doctest::Approx(0.06));
}

TEST_CASE("the learning rate rises over the warm-up") {
  Trainee trainee(small_settings(), 1);
  const float before = trainee.model().parameters()[1];
  std::vector<float> gradient(trainee.gradient_size());
  gradient[1] = 1;
  trainee.apply(gradient, 0.04);
  const float moved = before - trainee.model().parameters()[1];
  CHECK(moved == doctest::Approx(0.01 * (1 + 0.1 * static_cast<double>(before))).epsilon(1e-3));
}

TEST_CASE("a loaded state goes on exactly as the saved one") {
  Trainee one(small_settings(), 1);
  Trainee two(small_settings(), 2);
  const auto gradient = ramp(one);
  for (int i = 0; i < 3; ++i) one.apply(gradient, 0.01);
  give(one, two);
  CHECK(two.steps() == 3);
  CHECK(saved(two) == saved(one));
  one.apply(gradient, 0.01);
  two.apply(gradient, 0.01);
  CHECK(saved(one) == saved(two));
}

TEST_CASE("a state that was saved before there were arrays is loaded whole") {
  Trainee one(small_settings(), 1);
  Trainee two(small_settings(), 2);
  for (int i = 0; i < 3; ++i) one.apply(ramp(one), 0.01);
  std::string bytes = rest_of(one);
  bytes.resize(bytes.size() - sizeof(uint64_t));
  bytes[7] = '2';
  bytes += arrays_of(one);
  const uint64_t digest = digest_of(bytes);
  bytes.append(reinterpret_cast<const char*>(&digest), sizeof(digest));
  std::istringstream in(bytes);
  two.load(in);
  CHECK(saved(two) == saved(one));
}

TEST_CASE("betas that change correct the bias by their product, and a loaded state knows it") {
  AdamW::Options options;
  options.weight_decay = 0;
  options.clip_norm = 0;
  AdamW adamw(options, 1);
  std::vector<float> weights{0};
  const std::vector<float> gradient{0.5F};
  const double beta1[] = {0.9, 0.8, 0.6, 0.9};
  const double beta2[] = {0.95, 0.9, 0.8, 0.95};
  for (int i = 0; i < 4;
       ++i) {  // the same gradient every time: corrected moments are g and g^2, so each step is the rate
    const float before = weights[0];
    adamw.step(weights, gradient, std::vector<Parameter>{{1, true}}, {0.01, beta1[i], beta2[i], 1e-8, 0});
    CHECK(before - weights[0] == doctest::Approx(0.01).epsilon(1e-5));
  }
  pliant::Scaling scaling;
  scaling.learning_rate = 0.01;
  scaling.one_minus_beta1 = 3;
  scaling.one_minus_beta2 = 3;
  scaling.epsilon = 0.5;
  Trainee one(small_settings(), 1);
  Trainee two(small_settings(), 1);
  const auto ramped = ramp(one);
  for (int i = 0; i < 3; ++i) one.apply(ramped, scaling);
  give(one, two);
  one.apply(ramped, 0.01);
  two.apply(ramped, 0.01);
  CHECK(saved(one) == saved(two));
}

TEST_CASE("factors of 1 are the rate alone, to the bit") {
  Trainee one(small_settings(), 1);
  Trainee two(small_settings(), 1);
  const auto gradient = ramp(one);
  pliant::Scaling scaling;
  scaling.learning_rate = 0.01;
  for (int i = 0; i < 5; ++i) {
    one.apply(gradient, 0.01);
    two.apply(gradient, scaling);
  }
  CHECK(saved(one) == saved(two));
}

TEST_CASE("damaged states are refused and change nothing") {
  Trainee trainee(small_settings(), 1);
  trainee.apply(ramp(trainee), 0.01);
  const std::string good = rest_of(trainee);
  trainee.apply(ramp(trainee), 0.01);
  const std::string now = saved(trainee);
  const auto refuse = [&](std::string bytes) {
    std::istringstream in(bytes);
    CHECK_THROWS_AS(trainee.load(in), pliant::Error);
    CHECK(saved(trainee) == now);
  };
  refuse("");
  refuse(good.substr(0, 20));
  refuse(good.substr(0, good.size() - 1));
  refuse(good + "x");
  for (const size_t at : {size_t{0}, size_t{9}, size_t{17}, size_t{33}, good.size() / 2, good.size() - 1}) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    refuse(damaged);
  }
}
