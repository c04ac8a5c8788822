// What an answer may depend on: the steps that were committed, and nothing else.
#include "testkit/lr/checks.hpp"
#include "testkit/lr/rule.hpp"

namespace pliant::testkit {

namespace {

/// Commits a job's steps to `rule`; `look(step, answer)` before each commit.
template <class Look>
void played(LrRule& rule, const std::vector<LrStep>& steps, const Look& look) {
  for (const LrStep& step : steps) {
    const Scaled answer = rule.scale(step);
    look(step, answer);
    if (answer.ok()) static_cast<void>(rule.commit(step, answer.answer));
  }
}

/// Does `look(rule, other, steps)` with two instances of the same options.
template <class Look>
void for_each_two(const Subject& subject, const Look& look) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < kRules; ++index) {
    for (uint64_t job = 0; job < kJobs; ++job) {
      LrRule rule(plugin, subject, index);
      LrRule other(plugin, subject, index);
      if (!rule.is_made() || !other.is_made()) break;
      look(rule, other, drawn_job(subject.seed, job, rule.facts()));
    }
  }
}

/// Two ranks commit the same steps; one is asked about others, too, and from another thread.
void same_commits(const Subject& subject) {
  for_each_two(subject, [](LrRule& rule, LrRule& other, const std::vector<LrStep>& steps) {
    played(rule, steps, [&](const LrStep& step, const Scaled& answer) {
      on_another_thread([&] {
        expect(answer.same_as(rule.scale(step)), at_step(step) + "it gives another rate from another thread");
      });
      const Scaled of_other = other.scale(step);
      expect(answer.same_as(of_other), at_step(step) + "another instance with the same commits gives another rate");
      if (of_other.ok()) static_cast<void>(other.commit(step, of_other.answer));
    });
  });
}

void asked_only(const Subject& subject) {
  for_each_two(subject, [](LrRule& rule, LrRule&, const std::vector<LrStep>& steps) {
    played(rule, steps, [&](const LrStep& step, const Scaled& answer) {
      const std::string before = rule.has_state() ? rule.saved() : "";
      for (const LrStep& dropped : steps) static_cast<void>(rule.scale(dropped));
      expect(answer.same_as(rule.scale(step)), at_step(step) + "it gives another rate after scale for other steps");
      if (rule.has_state()) expect(rule.saved() == before, at_step(step) + "scale changed the saved state");
    });
  });
}

/// A rank that joins loads what another one saved; of a rule that saves nothing it is as good as new.
void resumed_rule(const Subject& subject) {
  for_each_two(subject, [](LrRule& rule, LrRule& joined, const std::vector<LrStep>& steps) {
    const auto half = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    played(rule, {steps.begin(), half}, [](const LrStep&, const Scaled&) {});
    if (rule.has_state()) joined.load(rule.saved());
    const std::string what = rule.has_state() ? "an instance that loaded the state" : "a new instance";
    played(rule, {half, steps.end()}, [&](const LrStep& step, const Scaled& answer) {
      const Scaled of_joined = joined.scale(step);
      expect(answer.same_as(of_joined), at_step(step) + what + " gives another rate than the one that committed" +
                                            (rule.has_state() ? "" : "; a rule with memory needs save and load"));
      if (of_joined.ok()) static_cast<void>(joined.commit(step, of_joined.answer));
    });
  });
}

/// Norms that no gradients have.
void failed_commits(const Subject& subject) {
  bool has_refused = false;
  for_each_two(subject, [&](LrRule& rule, LrRule&, const std::vector<LrStep>& steps) {
    played(rule, steps, [&](const LrStep& step, const Scaled& answer) {
      if (!answer.ok()) return;
      LrStep wrong = step;
      wrong.committed.small_norm = wrong.committed.big_norm = 1.7e308;
      if (!answer.same_as(rule.scale(step))) return;  // another check's
      const std::string before = rule.has_state() ? rule.saved() : "";
      if (rule.commit(wrong, answer.answer).ok()) return;
      has_refused = true;
      if (rule.has_state()) {
        expect(rule.saved() == before, at_step(step) + "a failed commit changed the state");
      }
      expect(answer.same_as(rule.scale(step)), at_step(step) + "it gives another rate after a failed commit");
    });
  });
  if (!has_refused) skip("it refused no commit");
}

}  // namespace

std::vector<Check> state_checks() {
  return {
      {"commits.same", "the same commits give the same rates, in any instance and from any thread", same_commits, 60},
      {"commits.asked", "scale for steps that are not committed changes nothing", asked_only, 60},
      {"commits.resumed", "an instance that loads saved state gives the same rates as the one that saved it",
       resumed_rule, 60},
      {"commits.failed", "a failed commit changes nothing", failed_commits, 60},
  };
}

}  // namespace pliant::testkit
