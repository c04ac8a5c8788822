// What a learning-rate rule answers, held against pliant/abi/lr_rule.h. For hosts, which refuse what breaks it, and for
// tests of rules. Every function says in words what is wrong, "" for nothing.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include "pliant/abi/lr_rule.h"
#include "pliant/sdk/lr_rule.hpp"

namespace pliant::sdk {

namespace detail {

struct LrField {
  const char* name;
  double pliant_lr_output::*value;
};
/// Those that are not below 0, the rate apart.
inline constexpr LrField kLrFactors[] = {{"lr_factor", &pliant_lr_output::lr_factor},
                                         {"one_minus_beta1", &pliant_lr_output::one_minus_beta1},
                                         {"one_minus_beta2", &pliant_lr_output::one_minus_beta2},
                                         {"epsilon", &pliant_lr_output::epsilon},
                                         {"weight_decay", &pliant_lr_output::weight_decay},
                                         {"ema_power", &pliant_lr_output::ema_power},
                                         {"momentum_buffer", &pliant_lr_output::momentum_buffer},
                                         {"second_moment", &pliant_lr_output::second_moment},
                                         {"progress", &pliant_lr_output::progress}};

/// As short as it reads back the same.
inline std::string number_text(double value) {
  char text[32] = {};
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  return {text, end};
}

}  // namespace detail

/// The answer to `input`.
[[nodiscard]] inline std::string scaling_fault(const pliant_lr_input& input, const pliant_lr_output& answer) {
  constexpr double kRounding = 1e-9;
  const auto wrong = [&](const char* what, double value) {
    using detail::number_text;
    return std::string(what) + " is " + number_text(value) + " at step " + std::to_string(input.step) +
           ", for a batch of " + number_text(input.batch) + " over " + number_text(input.base_batch) + " and base_lr " +
           number_text(input.base_lr);
  };
  if (!std::isfinite(answer.lr) || answer.lr < 0) return wrong("the rate", answer.lr);
  if (!std::isfinite(answer.scheduled_lr)) return wrong("scheduled_lr", answer.scheduled_lr);
  for (const detail::LrField& field : detail::kLrFactors) {
    const double value = answer.*field.value;
    if (!std::isfinite(value) || value < 0) return wrong(field.name, value);
  }
  const auto leaves_range = [](double factor, double beta) { return factor * (1 - beta) > 1 + kRounding; };
  if (leaves_range(answer.one_minus_beta1, input.base_beta1)) return wrong("one_minus_beta1", answer.one_minus_beta1);
  if (leaves_range(answer.one_minus_beta2, input.base_beta2)) return wrong("one_minus_beta2", answer.one_minus_beta2);
  return {};
}

/// What a rule says about itself.
[[nodiscard]] inline std::string facts_fault(const pliant_lr_facts& facts) {
  if ((facts.optimizers & kEveryOptimizer) == 0) return "it is valid for no optimizer";
  const bool takes_all = (facts.optimizers & kEveryOptimizer) == kEveryOptimizer;
  if (!takes_all && (facts.reason == nullptr || *facts.reason == '\0')) {
    return "it refuses optimizers and gives no reason";
  }
  return {};
}

}  // namespace pliant::sdk
