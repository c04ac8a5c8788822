// The rules that follow the batch, against numbers worked out from the formulas of their papers.
#include <doctest/doctest.h>

#include <cmath>

#include "rule.hpp"

using namespace pliant;
using pliant::test::Ask;
using pliant::test::Rule;

namespace {

Ask batch(double size) {
  Ask ask;
  ask.batch = size;
  return ask;
}

doctest::Approx exactly(double value) {
  return doctest::Approx(value).epsilon(1e-14);
}

}  // namespace

TEST_CASE("power raises the ratio to its exponent") {
  CHECK(Rule("power", "exponent = 0.7").factor(batch(300)) == exactly(2.157669279974593));  // python: 3 ** 0.7
  CHECK(Rule("power", "exponent = 1.0").factor(batch(300)) == 3);
  CHECK(Rule("power", "exponent = 0.0").factor(batch(300)) == 1);
  CHECK(Rule("power").factor(batch(25)) == 0.5);
}

TEST_CASE("adam_sde moves rate, betas and epsilon together") {
  const auto four = *Rule("adam_sde").scale(batch(400));  // k = 4: sqrt 2, 1 - betas times 4, eps over 2
  CHECK(four.lr == 0.2);
  CHECK(four.one_minus_beta1 == 4);
  CHECK(four.one_minus_beta2 == 4);
  CHECK(four.epsilon == 0.5);
  const auto quarter = *Rule("adam_sde").scale(batch(25));
  CHECK(quarter.lr == 0.05);
  CHECK(quarter.one_minus_beta1 == 0.25);
  CHECK(quarter.epsilon == 2);
}

TEST_CASE("adam_sde refuses a batch that leaves no memory in a beta, or stops it at 0") {
  const auto refused = Rule("adam_sde").scale(batch(1000));  // 10 * (1 - 0.9) is 1
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().status() == Status::kOutOfRange);
  CHECK(refused.error().message().find("lr 'adam_sde'") != std::string::npos);
  CHECK(refused.error().message().find("beta1") != std::string::npos);
  CHECK(refused.error().message().find("clamp = true") != std::string::npos);
  CHECK(Rule("adam_sde").scale(batch(990)).has_value());
  const auto clamped = *Rule("adam_sde", "clamp = true").scale(batch(5000));
  CHECK(clamped.one_minus_beta1 == exactly(10));  // beta1' = 1 - 10 * 0.1 = 0
  CHECK(clamped.one_minus_beta2 == 50);           // beta2' = 1 - 50 * 0.01 = 0.5
  Ask without = batch(200);
  without.beta2 = test::kNotGiven;
  CHECK(Rule("adam_sde").scale(without).error().message().find("set [lr] beta2") != std::string::npos);
}

TEST_CASE("legw warms up in as many steps at every batch") {
  const Rule legw("legw", "warmup = 10");
  for (const double size : {100.0, 400.0}) {
    CAPTURE(size);
    const double k = size / 100;
    for (const double steps : {0.0, 5.0, 10.0, 100.0}) {
      CAPTURE(steps);
      Ask ask = batch(size);
      ask.progress = steps * size;
      CHECK(legw.scale(ask)->lr == exactly(0.1 * std::sqrt(k) * std::min(1.0, steps / 10)));
    }
  }
  CHECK(Rule("legw").scale(batch(400))->lr == 0.2);
}

TEST_CASE("adascale has the gain of its paper") {
  const Rule rule("adascale");
  CHECK(rule.factor(batch(400)) == 1);  // nothing measured yet
  // 8 parts of 50 with |g|^2 = 5, the whole of 400 with 2: G2 = (800 - 250) / 350 = 1.5714, S = 3 / (1/50 - 1/400) =
  // 171.43, variance at the base 1.7143, gain (1.7143 + 1.5714) / (1.7143 / 4 + 1.5714). fairscale's own words,
  // grad_var = 5 * 8 * (4/8) / 7 - 2 * 4/7 and grad_sqr = 2 - grad_var / 4, give the same 1.642857.
  REQUIRE(rule.commit(batch(400), 5, 2));
  CHECK(rule.factor(batch(400)) == exactly(1.6428571428571428));
  CHECK(rule.scale(batch(400))->progress == exactly(164.28571428571428));
  // A second step with 8 and 1, averages weighted 0.996 to 1: python gives 2.43067.
  REQUIRE(rule.commit(batch(400), 8, 1));
  CHECK(rule.factor(batch(400)) == exactly(2.4306722689075633));
}

TEST_CASE("adascale for adam takes the root of the gain") {
  const Rule rule("adascale", "variant = \"adam\"");
  REQUIRE(rule.commit(batch(400), 5, 2));
  CHECK(rule.factor(batch(400)) == exactly(1.2817398889233114));
}

TEST_CASE("the gain of adascale stays between 1 and the ratio") {
  const Rule noise("adascale");  // nothing but noise: linear
  REQUIRE(noise.commit(batch(400), 8, 1));
  CHECK(noise.factor(batch(400)) == exactly(4));
  CHECK(noise.factor(batch(50)) == exactly(0.5));
  const Rule none("adascale");  // no noise: a larger batch is worth nothing
  REQUIRE(none.commit(batch(400), 3, 3));
  CHECK(none.factor(batch(400)) == 1);
  const Rule zero("adascale");
  REQUIRE(zero.commit(batch(400), 0, 0));
  CHECK(zero.factor(batch(400)) == 1);
}

TEST_CASE("noise_scale approaches lr_max") {
  Ask sgd = batch(400);
  sgd.optimizer = PLIANT_OPTIMIZER_SGD;
  Ask adam = batch(400);
  adam.optimizer = PLIANT_OPTIMIZER_ADAM;
  const Rule given("noise_scale", "noise_batch = 300");
  CHECK(given.factor(sgd) == exactly(16.0 / 7));             // (1 + 300/100) / (1 + 300/400)
  CHECK(given.factor(adam) == exactly(1.5118578920369088));  // its root
  sgd.batch = 1e15;
  CHECK(given.factor(sgd) == doctest::Approx(4).epsilon(1e-12));  // 1 + 300/100
  const Rule measured("noise_scale", "exponent = 1");
  CHECK(measured.factor(batch(400)) == 1);
  REQUIRE(measured.commit(batch(400), 5, 2));  // S / G2 = 109.09
  CHECK(measured.factor(batch(400)) == exactly(1.6428571428571428));
}

TEST_CASE("surge rises, peaks at the noise scale and falls") {
  const Rule rule("surge", "noise_batch = 300");
  // python: f = lambda B: 2 / (sqrt(300 / B) + sqrt(B / 300)); f(B) / f(100)
  CHECK(rule.factor(batch(300)) == exactly(1.1547005383792515));
  CHECK(rule.factor(batch(400)) == exactly(1.142857142857143));
  CHECK(rule.factor(batch(2700)) == exactly(0.6928203230275508));
  CHECK(rule.factor(batch(299)) < rule.factor(batch(300)));
  CHECK(rule.factor(batch(301)) < rule.factor(batch(300)));
}

TEST_CASE("at the base batch every rule gives exactly 1, measured or not") {
  for (const char* name :
       {"none", "linear", "sqrt", "power", "adam_sde", "legw", "adascale", "noise_scale", "surge", "timescale"}) {
    CAPTURE(name);
    const Rule rule(name);
    for (int i = 0; i < 2; ++i) {
      const auto answer = *rule.scale(batch(100));
      CHECK(answer.lr == 0.1);
      for (const double factor : {answer.lr_factor, answer.one_minus_beta1, answer.one_minus_beta2, answer.epsilon,
                                  answer.weight_decay, answer.ema_power, answer.momentum_buffer}) {
        CHECK(factor == 1);
      }
      REQUIRE(rule.commit(batch(400), 5, 2));
    }
  }
}

TEST_CASE("all but surge grow with the batch, on both sides of the base") {
  for (const char* name : {"linear", "sqrt", "power", "adam_sde", "legw", "adascale", "noise_scale"}) {
    CAPTURE(name);
    const Rule rule(name);
    REQUIRE(rule.commit(batch(400), 5, 2));
    double last = 0;
    for (const double size : {1.0, 10.0, 99.0, 100.0, 101.0, 500.0, 900.0}) {
      CAPTURE(size);
      const double factor = rule.factor(batch(size));
      CHECK(factor > last);
      CHECK((size < 100 ? factor < 1 : factor >= 1));
      last = factor;
    }
  }
}

TEST_CASE("an empty batch has a rate of 0") {
  for (const char* name : {"linear", "sqrt", "power", "adam_sde", "legw", "adascale", "noise_scale", "surge"}) {
    CAPTURE(name);
    CHECK(Rule(name).scale(batch(0))->lr == 0);
  }
}
