// Every rule against numbers that no training has, damaged state, and the optimizers that it says it is for.
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "rule.hpp"

using namespace pliant;
using pliant::test::Ask;
using pliant::test::Rule;

namespace {

struct Named {
  const char* name;
  const char* options;
};

const std::vector<Named>& all_rules() {
  static const std::vector<Named> kAll{{"none", ""},
                                       {"linear", ""},
                                       {"sqrt", ""},
                                       {"power", ""},
                                       {"adam_sde", ""},
                                       {"adam_sde", "clamp = true"},
                                       {"legw", "warmup = 5"},
                                       {"adascale", ""},
                                       {"noise_scale", ""},
                                       {"noise_scale", "noise_batch = 1e18"},
                                       {"surge", ""},
                                       {"surge", "noise_batch = 1e18"},
                                       {"smooth", "by = \"progress\""},
                                       {"clamp", "highest_factor = 2"},
                                       {"timescale", ""},
                                       {"momentum", ""},
                                       {"warmup", "steps = 10"},
                                       {"linear_decay", ""},
                                       {"cosine", ""},
                                       {"step", ""},
                                       {"exponential", ""},
                                       {"inverse", ""}};
  return kAll;
}

bool finite(const pliant_lr_output& out) {
  for (const double value :
       {out.lr, out.scheduled_lr, out.lr_factor, out.one_minus_beta1, out.one_minus_beta2, out.epsilon,
        out.weight_decay, out.ema_power, out.momentum_buffer, out.second_moment, out.progress}) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kWide = std::numeric_limits<double>::max();
constexpr double kTiny = std::numeric_limits<double>::denorm_min();

}  // namespace

TEST_CASE("bad numbers give an error with the name of the rule, never a number that is not finite") {
  const double values[] = {test::kNotGiven, kInfinity, -kInfinity, 0.0, -0.0, -1.0, kWide, -kWide, kTiny, 1e-300, 1.0};
  for (const Named& named : all_rules()) {
    const Rule rule(named.name, named.options);
    CAPTURE(named.name);
    for (int round = 0; round < 2; ++round) {
      for (const double batch : values) {
        for (const double base : values) {
          for (const double lr : {0.1, 0.0, kWide, kInfinity, test::kNotGiven}) {
            for (const double progress : {0.0, kInfinity, kWide, test::kNotGiven, -1.0}) {
              Ask ask;
              ask.batch = batch;
              ask.base_batch = base;
              ask.base_lr = lr;
              ask.progress = progress;
              ask.total = 10;
              const auto answer = rule.scale(ask);
              if (answer) {
                REQUIRE(finite(*answer));
              } else {
                REQUIRE(answer.error().message().rfind(std::string("lr '") + named.name + "'", 0) == 0);
              }
            }
          }
        }
      }
      (void)rule.commit(Ask(), 5, 2);
    }
  }
}

TEST_CASE("norms that are not finite are refused and change nothing") {
  for (const char* name : {"adascale", "noise_scale", "surge"}) {
    CAPTURE(name);
    const Rule rule(name);
    REQUIRE(rule.commit(Ask(), 5, 2));
    const std::string before = rule.save();
    for (const double bad : {kInfinity, test::kNotGiven, kWide}) {
      const auto refused = rule.commit(Ask(), bad, -bad);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().message().find(std::string("lr '") + name + "'") != std::string::npos);
      CHECK(rule.save() == before);
    }
    REQUIRE(rule.commit(Ask()));  // a step without norms, such as one of a single part
    CHECK(rule.save() == before);
  }
}

TEST_CASE("state comes back in the middle of a run, and damage is refused and changes nothing") {
  for (const char* name : {"adascale", "noise_scale", "surge", "smooth", "momentum"}) {
    CAPTURE(name);
    const std::string options = std::string(name) == "noise_scale" ? "exponent = 1" : "";
    const Rule first(name, options);
    Ask ask;
    for (int64_t step = 0; step < 3; ++step) {
      ask.step = step;
      ask.batch = step == 2 ? 400 : 100;
      REQUIRE(first.commit(ask, 5 + static_cast<double>(step), 2));
    }
    Rule second(name, options);
    REQUIRE(second.load(first.save()));
    ask.step = 3;
    CHECK(second.scale(ask)->lr == first.scale(ask)->lr);
    CHECK(second.save() == first.save());
    const std::string whole = first.save();
    std::vector<std::string> damaged{whole + "x", whole.substr(1), "", whole.substr(0, whole.size() - 1)};
    std::string other_version = whole;
    other_version[8] = 9;
    damaged.push_back(other_version);
    std::string not_finite = whole;
    not_finite.replace(whole.size() - 8, 8, std::string("\0\0\0\0\0\0\xF8\x7F", 8));
    damaged.push_back(not_finite);
    for (const std::string& bytes : damaged) {
      const auto refused = second.load(bytes);
      REQUIRE_FALSE(refused.has_value());
      CHECK(refused.error().status() == Status::kDataLoss);
      CHECK(second.save() == whole);
    }
  }
}

TEST_CASE("a rule that is not for every optimizer says for which, and why") {
  const auto takes = [](const char* name, int32_t optimizer, const char* options = "") {
    const Rule rule(name, options);
    const pliant_lr_facts facts = rule.facts();
    if (facts.optimizers != 0x3FF) {
      REQUIRE(facts.reason != nullptr);
      CHECK(std::string(facts.reason).size() > 20);
    }
    return (facts.optimizers >> static_cast<uint32_t>(optimizer) & 1U) != 0;
  };
  for (const char* any : {"none", "sqrt", "power", "legw", "smooth", "clamp", "warmup", "cosine"}) {
    for (int32_t optimizer = PLIANT_OPTIMIZER_UNKNOWN; optimizer <= PLIANT_OPTIMIZER_OTHER; ++optimizer) {
      CHECK(takes(any, optimizer));
    }
  }
  CHECK(takes("linear", PLIANT_OPTIMIZER_UNKNOWN));
  CHECK(takes("linear", PLIANT_OPTIMIZER_NESTEROV));
  CHECK_FALSE(takes("linear", PLIANT_OPTIMIZER_ADAM));
  CHECK(takes("adam_sde", PLIANT_OPTIMIZER_ADAMW));
  CHECK_FALSE(takes("adam_sde", PLIANT_OPTIMIZER_UNKNOWN));
  CHECK_FALSE(takes("adam_sde", PLIANT_OPTIMIZER_SGD));
  CHECK(takes("adascale", PLIANT_OPTIMIZER_SGD_MOMENTUM));
  CHECK_FALSE(takes("adascale", PLIANT_OPTIMIZER_ADAM));
  CHECK(takes("adascale", PLIANT_OPTIMIZER_ADAM, "variant = \"adam\""));
  CHECK_FALSE(takes("noise_scale", PLIANT_OPTIMIZER_UNKNOWN));
  CHECK(takes("noise_scale", PLIANT_OPTIMIZER_UNKNOWN, "exponent = 1"));
  CHECK(takes("surge", PLIANT_OPTIMIZER_SIGN));
  CHECK_FALSE(takes("surge", PLIANT_OPTIMIZER_SGD));
  CHECK_FALSE(takes("timescale", PLIANT_OPTIMIZER_ADAM));
  CHECK(takes("timescale", PLIANT_OPTIMIZER_ADAM, "weight_decay = false"));
  CHECK_FALSE(takes("momentum", PLIANT_OPTIMIZER_UNKNOWN));
}
