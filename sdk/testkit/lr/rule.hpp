// A learning-rate rule under test, and the steps of jobs that it is asked about.
#pragma once

#include <string>
#include <vector>

#include "pliant/sdk/lr_rules.hpp"
#include "testkit/instance.hpp"

namespace pliant::testkit {

/// What goes into a link, and how the step ends.
struct LrStep {
  pliant_lr_input input{};      ///< `previous` is not set
  pliant_lr_output previous{};  ///< the answer of the link before
  pliant_lr_committed committed{};
};

struct Scaled {
  Reply told;
  pliant_lr_output answer{};
  std::string spilled;
  [[nodiscard]] bool ok() const { return told.ok(); }
  /// Bit by bit; messages apart.
  [[nodiscard]] bool same_as(const Scaled& other) const;
};

class LrRule : public Instance<pliant_lr_rule> {
 public:
  using Instance::Instance;
  /// Fails the check where describe does.
  [[nodiscard]] pliant_lr_facts facts();
  [[nodiscard]] Scaled scale(const LrStep& step);
  [[nodiscard]] Reply commit(const LrStep& step, const pliant_lr_output& answer);
};

inline constexpr uint64_t kRules = 12;
inline constexpr uint64_t kJobs = 4;
inline constexpr uint64_t kSteps = 24;

/// Steps of job number `index`, all that a rule may ask for given: the first at the base batch, later ones at batches
/// of a sixteenth to sixteen times that.
std::vector<LrStep> drawn_job(uint64_t seed, uint64_t index, const pliant_lr_facts& facts);

/// "at step 3, for a batch of 64 over 32, "
std::string at_step(const LrStep& step);

/// Does `look(rule, index)` under the default options and under drawn ones.
template <class Look>
void for_each_rule(const Subject& subject, const Look& look) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < kRules; ++index) {
    LrRule rule(plugin, subject, index);
    if (rule.is_made()) look(rule, index);
  }
}

/// Does `look(rule, step, answer)` for the steps of jobs, each committed.
template <class Look>
void for_each_step(const Subject& subject, const Look& look) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < kRules; ++index) {
    for (uint64_t job = 0; job < kJobs; ++job) {
      LrRule rule(plugin, subject, index);
      if (!rule.is_made()) break;
      for (const LrStep& step : drawn_job(subject.seed, job, rule.facts())) {
        const Scaled answer = rule.scale(step);
        look(rule, step, answer);
        if (answer.ok()) static_cast<void>(rule.commit(step, answer.answer));
      }
    }
  }
}

}  // namespace pliant::testkit
