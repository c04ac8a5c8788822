// One learning-rate rule behind the ABI, so that tests can ask it what no session would.
#pragma once

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "config/instances.hpp"
#include "pliant/abi/lr_rule.h"
#include "pliant/config.hpp"
#include "plugin/plugin.hpp"

namespace pliant::test {

inline constexpr double kNotGiven = std::numeric_limits<double>::quiet_NaN();

/// One question. What is not set is a step of 400 units over a base of 100, early in a long job.
struct Ask {
  double batch = 400;
  double base_batch = 100;
  double base_lr = 0.1;
  int32_t optimizer = PLIANT_OPTIMIZER_UNKNOWN;
  int64_t step = 0;
  double progress = 0;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double total = 0;      ///< steps of the base batch in the whole job
  double lr_factor = 1;  ///< what the link before made
};

class Rule {
 public:
  /// `options`: lines of TOML below [lr.<name>].
  explicit Rule(const std::string& name, const std::string& options = "") : instance_(open(name, options)) {}

  Result<pliant_lr_output> scale(const Ask& ask) const {
    const pliant_lr_output before = previous(ask);
    const pliant_lr_input input = input_of(ask, before);
    pliant_lr_output output = before;
    pliant_error error = plugin::fresh_error();
    const int32_t status = slots().scale(instance_.self(), &input, &output, &error);
    if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
    return output;
  }
  [[nodiscard]] double factor(const Ask& ask) const { return scale(ask)->lr_factor; }

  /// The step is final; `small` and `big`: squared norms of parts an eighth as large, and of the whole.
  Result<> commit(const Ask& ask, double small = 0, double big = 0) const {
    const pliant_lr_output before = previous(ask);
    const pliant_lr_input input = input_of(ask, before);
    auto answer = scale(ask);
    if (!answer) return tl::unexpected<Error>(answer.error());
    pliant_lr_committed committed{sizeof(pliant_lr_committed), 0, 0, 0, 0, 0};
    if (small != 0 || big != 0) {
      committed = {sizeof(pliant_lr_committed), 0, ask.batch / 8, small, ask.batch, big};
    }
    pliant_error error = plugin::fresh_error();
    const int32_t status = slots().commit(instance_.self(), &input, &*answer, &committed, &error);
    if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(instance_.plugin(), status, error));
    return {};
  }

  [[nodiscard]] pliant_lr_facts facts() const {
    pliant_lr_facts made{};
    made.struct_size = sizeof(made);
    pliant_error error = plugin::fresh_error();
    REQUIRE(slots().describe(instance_.self(), &made, &error) == PLIANT_OK);
    return made;
  }
  [[nodiscard]] std::string save() const { return *instance_.save(); }
  Result<> load(const std::string& saved) { return instance_.load(saved); }

 private:
  static plugin::Instance open(const std::string& name, const std::string& options) {
    const ConfigNeeds needs{"lr"};
    ConfigOverrides overrides;
    overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
    overrides.read_environment = false;
    const std::string toml = "config_version = 1\n[lr]\nuse = \"" + name + "\"\n[lr." + name + "]\n" + options + "\n";
    return or_throw(config::instantiate(Config::parse(toml, needs, overrides), "lr"));
  }
  static pliant_lr_output previous(const Ask& ask) {
    return {sizeof(pliant_lr_output),
            0,
            ask.base_lr * ask.lr_factor,
            ask.base_lr,
            ask.lr_factor,
            1,
            1,
            1,
            1,
            1,
            1,
            1,
            ask.batch};
  }
  static pliant_lr_input input_of(const Ask& ask, const pliant_lr_output& before) {
    pliant_lr_input input{};
    input.struct_size = sizeof(input);
    input.optimizer = ask.optimizer;
    input.unit = PLIANT_BATCH_TOKENS;
    input.base_lr = ask.base_lr;
    input.base_batch = ask.base_batch;
    input.batch = ask.batch;
    input.step = ask.step;
    input.progress = ask.progress;
    input.total_steps = static_cast<int64_t>(ask.total);
    input.total_progress = ask.total * ask.base_batch;
    input.base_beta1 = ask.beta1;
    input.base_beta2 = ask.beta2;
    input.base_epsilon = input.base_weight_decay = input.base_ema = kNotGiven;
    input.previous = &before;
    return input;
  }
  [[nodiscard]] const pliant_lr_rule& slots() const { return instance_.table<pliant_lr_rule>(); }

  plugin::Instance instance_;
};

}  // namespace pliant::test
