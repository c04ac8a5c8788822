// The links around a rule: smooth, clamp, timescale, momentum, and the schedules.
#include <doctest/doctest.h>

#include <cmath>

#include "rule.hpp"

using namespace pliant;
using pliant::test::Ask;
using pliant::test::Rule;

namespace {

doctest::Approx exactly(double value) {
  return doctest::Approx(value).epsilon(1e-14);
}

/// Step `step` over `batch`, for which the rule before asks `factor`.
Ask after_rule(int64_t step, double batch, double factor) {
  Ask ask;
  ask.step = step;
  ask.batch = batch;
  ask.lr_factor = factor;
  return ask;
}

/// Where a schedule stands after `steps` base batches.
Ask at(double steps) {
  Ask ask;
  ask.step = static_cast<int64_t>(steps);
  ask.progress = steps * ask.base_batch;
  ask.total = 100;
  return ask;
}

}  // namespace

TEST_CASE("smooth lets the first batch be, then moves evenly after a jump") {
  const Rule smooth("smooth", "over = 4");
  CHECK(smooth.factor(after_rule(0, 100, 1)) == 1);
  REQUIRE(smooth.commit(after_rule(0, 100, 1)));
  for (int64_t step = 1; step <= 6; ++step) {  // from 1 to 3 in 4 steps: 1, 1.5, 2, 2.5, 3, 3
    CAPTURE(step);
    const Ask ask = after_rule(step, 300, 3);
    const auto answer = *smooth.scale(ask);
    const double expected = std::min(3.0, 1 + 0.5 * static_cast<double>(step - 1));
    CHECK(answer.lr_factor == exactly(expected));
    CHECK(answer.lr == exactly(0.1 * expected));
    CHECK(answer.scheduled_lr == 0.1);
    REQUIRE(smooth.commit(ask));
  }
}

TEST_CASE("smooth begins again at the value reached when the batch jumps during a ramp") {
  const Rule smooth("smooth", "over = 4");
  REQUIRE(smooth.commit(after_rule(0, 100, 1)));
  for (int64_t step = 1; step <= 3; ++step) REQUIRE(smooth.commit(after_rule(step, 300, 3)));
  CHECK(smooth.factor(after_rule(4, 100, 1)) == exactly(2));  // reached at step 3
  REQUIRE(smooth.commit(after_rule(4, 100, 1)));
  CHECK(smooth.factor(after_rule(5, 100, 1)) == exactly(1.75));
}

TEST_CASE("smooth takes no jump from batches that differ a little, and none at all with over = 0") {
  const Rule smooth("smooth", "over = 100\ntolerance = 0.1");
  REQUIRE(smooth.commit(after_rule(0, 100, 1)));
  CHECK(smooth.factor(after_rule(1, 109, 1.09)) == 1.09);
  const Rule none("smooth", "over = 0");
  REQUIRE(none.commit(after_rule(0, 100, 1)));
  CHECK(none.factor(after_rule(1, 300, 3)) == 3);
}

TEST_CASE("smooth by progress counts base batches") {
  const Rule smooth("smooth", "over = 4\nby = \"progress\"");
  REQUIRE(smooth.commit(after_rule(0, 100, 1)));
  Ask ask = after_rule(1, 200, 2);
  ask.progress = 100;
  CHECK(smooth.factor(ask) == exactly(1));
  REQUIRE(smooth.commit(ask));
  ask.progress = 300;
  CHECK(smooth.factor(ask) == exactly(1.5));
}

TEST_CASE("a ramp goes on after save and load") {
  const Rule first("smooth", "over = 4");
  REQUIRE(first.commit(after_rule(0, 100, 1)));
  REQUIRE(first.commit(after_rule(1, 300, 3)));
  REQUIRE(first.commit(after_rule(2, 300, 3)));
  Rule second("smooth", "over = 4");
  REQUIRE(second.load(first.save()));
  for (int64_t step = 3; step < 7; ++step) {
    CHECK(second.factor(after_rule(step, 300, 3)) == first.factor(after_rule(step, 300, 3)));
  }
}

TEST_CASE("clamp bounds the factor, then the rate") {
  CHECK(Rule("clamp").scale(after_rule(0, 400, 4))->lr == 0.4);
  const auto high = *Rule("clamp", "highest_factor = 2").scale(after_rule(0, 400, 4));
  CHECK(high.lr_factor == 2);
  CHECK(high.lr == 0.2);
  CHECK(Rule("clamp", "lowest_factor = 0.5").scale(after_rule(0, 10, 0.1))->lr == exactly(0.05));
  CHECK(Rule("clamp", "highest_lr = 0.3").scale(after_rule(0, 400, 4))->lr == 0.3);
  CHECK(Rule("clamp", "lowest_lr = 0.02").scale(after_rule(0, 10, 0.1))->lr == 0.02);
  CHECK_THROWS_AS(Rule("clamp", "lowest_lr = 2\nhighest_lr = 1"), Error);
}

TEST_CASE("timescale keeps B / (lr wd) and the memory of an average") {
  const auto sqrt_rule = *Rule("timescale").scale(after_rule(0, 400, 2));  // k = 4, lr'/lr = 2
  CHECK(sqrt_rule.weight_decay == 2);
  CHECK(sqrt_rule.ema_power == 4);
  CHECK(Rule("timescale").scale(after_rule(0, 400, 4))->weight_decay == 1);  // linear: nothing to do
  CHECK(Rule("timescale", "ema = false\nweight_decay = false").scale(after_rule(0, 400, 2))->ema_power == 1);
}

TEST_CASE("momentum scales the buffer by the change of the rate") {
  const Rule momentum("momentum");
  CHECK(momentum.scale(after_rule(0, 100, 1))->momentum_buffer == 1);
  REQUIRE(momentum.commit(after_rule(0, 100, 1)));
  CHECK(momentum.scale(after_rule(1, 400, 4))->momentum_buffer == exactly(4));
  REQUIRE(momentum.commit(after_rule(1, 400, 4)));
  CHECK(momentum.scale(after_rule(2, 100, 1))->momentum_buffer == exactly(0.25));
}

TEST_CASE("warmup rises evenly or with the logarithm, to exactly the rate") {
  const Rule even("warmup", "steps = 10\nfrom = 0.02");
  CHECK(even.scale(at(0))->lr == 0.02);
  CHECK(even.scale(at(5))->lr == exactly(0.06));
  CHECK(even.scale(at(10))->lr == 0.1);
  const Rule log("warmup", "steps = 10\nshape = \"log\"");
  CHECK(log.scale(at(3))->lr == exactly(0.06020599913279623));  // 0.1 log(4) / log(10)
  CHECK(log.scale(at(10))->lr == 0.1);
  CHECK(Rule("warmup").scale(at(0))->lr == 0.1);
  const Rule falling("warmup", "steps = 10\nfrom = 50\nshape = \"log\"");
  CHECK(falling.scale(at(9.5))->lr == exactly(0.1));  // not below, between the last two steps
}

TEST_CASE("decays end where they say, or with the job") {
  CHECK(Rule("linear_decay", "start = 20").scale(at(20))->lr == 0.1);
  CHECK(Rule("linear_decay", "start = 20").scale(at(60))->lr == exactly(0.05));
  CHECK(Rule("linear_decay", "end = 50\nlowest = 0.01").scale(at(70))->lr == 0.01);
  CHECK(Rule("cosine").scale(at(0))->lr == 0.1);
  CHECK(Rule("cosine").scale(at(50))->lr == exactly(0.05));
  CHECK(Rule("cosine", "lowest = 0.02").scale(at(150))->lr == exactly(0.02));
  CHECK(Rule("cosine", "after = \"rise\"").scale(at(200))->lr == exactly(0.1));
  CHECK(Rule("step", "every = 30").scale(at(29))->lr == 0.1);
  CHECK(Rule("step", "every = 30").scale(at(60))->lr == exactly(0.001));
  CHECK(Rule("exponential", "gamma = 0.9").scale(at(3))->lr == exactly(0.0729));
  CHECK(Rule("inverse", "over = 3").scale(at(9))->lr == exactly(0.05));
  CHECK(Rule("inverse", "exponent = 1").scale(at(4))->lr == exactly(0.02));
}

TEST_CASE("a decay to the end of a job of unknown length says what to set") {
  for (const char* name : {"linear_decay", "cosine"}) {
    CAPTURE(name);
    CHECK((Rule(name).facts().flags & PLIANT_LR_WANTS_TOTAL) != 0);
    CHECK((Rule(name, "end = 5").facts().flags & PLIANT_LR_WANTS_TOTAL) == 0);
    const auto refused = Rule(name).scale(Ask());
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message().find("end = 0 means the length of the job") != std::string::npos);
  }
}

TEST_CASE("a schedule keeps what the batch made of the rate") {
  Ask scaled = at(50);
  scaled.lr_factor = 4;
  const auto answer = *Rule("cosine").scale(scaled);
  CHECK(answer.scheduled_lr == exactly(0.05));
  CHECK(answer.lr == exactly(0.2));
  CHECK(answer.lr_factor == 4);
}
