// performed(): drives a coordinator through a training, holds every answer against the rules and keeps the lists.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pliant/sdk/coordinator_rules.hpp"
#include "testkit/coordinator/coordinator.hpp"
#include "testkit/coordinator/training.hpp"

namespace pliant::testkit {

/// What stopped a performance.
struct Stop {
  enum class Kind { kRule, kRefusal, kRoom, kGradients };
  Kind kind = Kind::kRule;
  sdk::CoordinatorRule rule = sdk::CoordinatorRule::kForm;  ///< of kRule
  int32_t status = PLIANT_OK;                               ///< of kRefusal
  std::string text;
};

/// What was answered until the end, or until something stopped it.
struct Performance {
  std::vector<Actions> lists;
  std::optional<Stop> stop;
  [[nodiscard]] bool same_as(const Performance& other) const;
};

/// Gives the model and performs all steps. With costs between two steps where the coordinator takes them.
Performance performed(Coordinator& coordinator, const Training& training);
/// The model was given already: with these rules, which know what is whole.
Performance performed_steps(Coordinator& coordinator, sdk::CoordinatorRules& rules, const std::vector<Moves>& steps);
/// In an instance of its own.
Performance performed_alone(const Subject& subject, const Training& training);

inline constexpr uint64_t kTrainings = 80;

}  // namespace pliant::testkit
