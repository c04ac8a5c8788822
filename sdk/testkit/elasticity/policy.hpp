// A policy under test, asked as any host asks, under options that are drawn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pliant/sdk/elasticity_rules.hpp"
#include "testkit/instance.hpp"

namespace pliant::testkit {

struct PlanAsked {
  int64_t world_size = 0;
  bool want_micro_batch = false;
  std::optional<std::string> text;  ///< WORLD_SIZE of the environment
};

/// What `plan` answered.
struct Planned {
  int64_t world_size = 0;  ///< that was asked for
  Reply told;
  pliant_plan plan{};
  std::vector<sdk::WorldRange> sizes;
  std::string not_taken;  ///< why the host took no more world sizes
  std::string spilled;    ///< what it wrote that is the host's
  [[nodiscard]] bool ok() const { return told.ok(); }
  /// Whether numbers and granule keep the rules, so that the world sizes can be looked at.
  [[nodiscard]] bool has_numbers() const;
  /// Whether all of it does, up to the micro-batch.
  [[nodiscard]] bool has_sizes() const;
  [[nodiscard]] bool has(int64_t size) const { return has_sizes() && sdk::has_world_size(sizes, size); }
  /// "" or how it differs.
  [[nodiscard]] std::string difference(const Planned& other) const;
};

class Policy : public Instance<pliant_elasticity_policy> {
 public:
  using Instance::Instance;
  /// `garbage`: what the plan has in it before the call; hosts give zeros.
  [[nodiscard]] Planned plan(const PlanAsked& asked, unsigned char garbage = 0);
  [[nodiscard]] Planned plan(int64_t world_size) { return plan(PlanAsked{world_size, false, {}}); }
};

inline constexpr uint64_t kPolicies = 40;

/// World sizes to ask for: 0, some that the plan for 0 lists, their neighbours, and small ones.
std::vector<int64_t> sizes_to_ask(Policy& policy, Draws& draws);

/// Does `look(policy, draws, index)` under the default options and under drawn ones. Warns where every plan is refused.
template <class Look>
void for_each_policy(const Subject& subject, const Look& look) {
  const OpenedPlugin plugin(subject.file);
  bool has_planned = false;
  for (uint64_t index = 0; index < kPolicies; ++index) {
    Policy policy(plugin, subject, index);
    if (!policy.is_made()) continue;
    Draws draws(subject.seed, (index << 20U) + 2);
    look(policy, draws, index);
    has_planned = has_planned || policy.plan(0).ok() || policy.plan(1).ok();
  }
  if (!has_planned) warn("it refuses to plan under every drawn set of options; set valid ones with --set");
}

/// The same for each of sizes_to_ask and its answer: `look(policy, answer, index)`.
template <class Look>
void for_each_plan(const Subject& subject, const Look& look) {
  for_each_policy(subject, [&](Policy& policy, Draws& draws, uint64_t index) {
    for (const int64_t size : sizes_to_ask(policy, draws)) look(policy, policy.plan(size), index);
  });
}

}  // namespace pliant::testkit
