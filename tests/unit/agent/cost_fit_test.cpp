// Costs fitted from times: found when there is something to find, kept when there is not.
#include "elastic/agent/cost_fit.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "elastic/share_clock.hpp"

namespace pliant::elastic {
namespace {

/// A share of `sequences` lengths around `length`, and the time that it takes at a and b microseconds.
ShareTime share(std::mt19937& random, double a, double b, double noise) {
  std::lognormal_distribution<double> lengths(6, 1.2);
  std::normal_distribution<double> relative(1, noise);
  double tokens = 0;
  double squares = 0;
  for (int i = 0; i < 20; ++i) {
    const double l = std::ceil(lengths(random));
    tokens += l;
    squares += l * l;
  }
  const double time = std::max(1.0, (a * tokens + b * squares) * relative(random));
  return {static_cast<int64_t>(tokens), squares, std::llround(time)};
}

CostFit after_steps(double a, double b, double noise, int steps, CostRates given = {1, 0}) {
  std::mt19937 random(17);
  CostFit fit(given);
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < 4; ++rank) fit.add(share(random, a, b, noise));
    fit.end_step();
  }
  return fit;
}

double ratio(CostRates rates) {
  return static_cast<double>(rates.per_square) / static_cast<double>(rates.per_token);
}

TEST_CASE("exact times give the exact ratio") {
  const CostRates rates = after_steps(50, 0.02, 0, 20).rates();
  CHECK(ratio(rates) == doctest::Approx(0.02 / 50).epsilon(0.01));
  CHECK(std::max(rates.per_token, rates.per_square) == int64_t{1} << 40);
}

TEST_CASE("noisy times give about the ratio") {
  const CostRates rates = after_steps(50, 0.02, 0.1, 100).rates();
  CHECK(ratio(rates) == doctest::Approx(0.02 / 50).epsilon(0.3));
}

TEST_CASE("a cost is never negative: times of tokens alone, or of squares alone, leave the other at 0 or near it") {
  const CostRates tokens = after_steps(50, -0.001, 0, 40, {1, 1}).rates();
  CHECK(tokens.per_square == 0);
  CHECK(tokens.per_token == int64_t{1} << 40);
  const CostRates squares = after_steps(-0.5, 0.05, 0, 40).rates();
  CHECK(squares.per_token == 0);
  CHECK(squares.per_square == int64_t{1} << 40);
}

TEST_CASE("with few shares, and with shares that are all alike, the given rates stay") {
  CHECK(after_steps(50, 0.02, 0, 7).rates() == CostRates{1, 0});
  CHECK(after_steps(50, 0.02, 0, 7, {24576, 1}).rates() == CostRates{24576, 1});
  CostFit alike({24576, 1});
  for (int step = 0; step < 500; ++step) {
    alike.add({1000, 1e6, 5000});
    alike.add({2000, 2e6, 10000});
    CHECK_FALSE(alike.end_step());
  }
  CHECK(alike.rates() == CostRates{24576, 1});
}

TEST_CASE("times that have nothing to do with the shares do not move the rates") {
  std::mt19937 random(3);
  std::lognormal_distribution<double> any(8, 3);
  CostFit fit({24576, 1});
  int changes = 0;
  for (int step = 0; step < 400; ++step) {
    ShareTime one = share(random, 1, 1, 0);
    one.microseconds = std::llround(std::min(any(random), 1e12)) + 1;
    fit.add(one);
    changes += fit.end_step() ? 1 : 0;
  }
  CHECK(changes == 0);
}

TEST_CASE("a change too small to matter is not told, a large one is, and old times are forgotten") {
  std::mt19937 random(5);
  CostFit fit({1, 0});
  const auto steps = [&](double a, double b, int count) {
    int changes = 0;
    for (int step = 0; step < count; ++step) {
      for (int rank = 0; rank < 4; ++rank) fit.add(share(random, a, b, 0.02));
      changes += fit.end_step() ? 1 : 0;
    }
    return changes;
  };
  CHECK(steps(50, 0.02, 300) >= 1);
  CHECK(steps(50, 0.0205, 300) == 0);
  CHECK(steps(50, 0.2, 600) >= 1);
  CHECK(ratio(fit.rates()) == doctest::Approx(0.2 / 50).epsilon(0.25));
}

TEST_CASE("times that say nothing and numbers that are none are left out") {
  CostFit fit({3, 2});
  const double infinite = std::numeric_limits<double>::infinity();
  for (int step = 0; step < 200; ++step) {
    fit.add({0, 0, 100});
    fit.add({10, 100, 0});
    fit.add({10, 100, -5});
    fit.add({-10, 100, 5});
    fit.add({10, infinite, 5});
    fit.add({10, std::nan(""), 5});
    CHECK_FALSE(fit.end_step());
  }
  CHECK(fit.rates() == CostRates{3, 2});
}

TEST_CASE("the largest shares that there are do not make the sums infinite") {
  CostFit fit({1, 0});
  std::mt19937 random(1);
  for (int step = 0; step < 300; ++step) {
    const auto tokens = static_cast<int64_t>(random()) << 29;
    fit.add({tokens, static_cast<double>(tokens) * static_cast<double>(random() % 1000 + 1), INT64_MAX / 2});
    fit.end_step();
    CHECK(fit.rates().per_token >= 0);
    CHECK(fit.rates().per_square >= 0);
    CHECK(fit.rates() != CostRates{0, 0});
  }
}

TEST_CASE("a share clock measures from start to stop, and leaves out what it is told to skip") {
  std::chrono::microseconds now{1000};
  ShareClock clock([&now] { return now; });
  balance::Shape shape;
  shape.add(3);
  shape.add(4);
  const auto step = [&] {
    clock.start();
    now += std::chrono::microseconds(70);
    clock.computed(shape);
    clock.computed(shape);
    clock.stop();
    now += std::chrono::microseconds(500);  // the reduction
    return clock.time();
  };
  const ShareTime first = step();
  CHECK(first.tokens == 14);
  CHECK(first.squares == 50.0);
  CHECK(first.microseconds == 70);
  clock.skip_next();
  CHECK(step().tokens == 0);
  CHECK(step().tokens == 14);
}

}  // namespace
}  // namespace pliant::elastic
