// Each list of actions against the rules: one check a rule, over the same models and visits.
#include <algorithm>
#include <initializer_list>

#include "testkit/coordinator/checks.hpp"
#include "testkit/coordinator/performance.hpp"

namespace pliant::testkit {

namespace {

using Rule = sdk::CoordinatorRule;
constexpr uint64_t kRooms[] = {0, 1, 2, 5};  // too few for most lists

/// What breaks another rule is another check's, and ends that training here.
void hold(const Subject& subject, std::initializer_list<Rule> rules) {
  const OpenedPlugin kept(subject.file);  // so that unloading hides nothing
  for (uint64_t index = 0; index < kTrainings; ++index) {
    const Performance made = performed_alone(subject, drawn_training(subject.seed, index));
    if (!made.stop || made.stop->kind != Stop::Kind::kRule) continue;
    if (std::find(rules.begin(), rules.end(), made.stop->rule) != rules.end()) fail(made.stop->text);
  }
}

void answered(const Subject& subject) {
  const OpenedPlugin kept(subject.file);  // so that unloading hides nothing
  for (uint64_t index = 0; index < kTrainings; ++index) {
    const Performance made = performed_alone(subject, drawn_training(subject.seed, index));
    if (made.stop && made.stop->kind == Stop::Kind::kRefusal) fail(made.stop->text);
  }
}

void form(const Subject& subject) {
  hold(subject, {Rule::kForm, Rule::kTier});
}
void gathered(const Subject& subject) {
  hold(subject, {Rule::kGather});
}
void waited(const Subject& subject) {
  hold(subject, {Rule::kWait});
}
void used(const Subject& subject) {
  hold(subject, {Rule::kUse});
}
void released(const Subject& subject) {
  hold(subject, {Rule::kRelease});
}
void reduced(const Subject& subject) {
  hold(subject, {Rule::kReduce});
}
void groups(const Subject& subject) {
  hold(subject, {Rule::kGroup});
}
void places(const Subject& subject) {
  hold(subject, {Rule::kPlace});
}
void step_end(const Subject& subject) {
  hold(subject, {Rule::kStepEnd});
}

/// Each with so little room that lists must be refused, and then with enough.
void room(const Subject& subject) {
  const OpenedPlugin kept(subject.file);  // so that unloading hides nothing
  for (uint64_t index = 0; index < kTrainings; ++index) {
    const Training training = drawn_training(subject.seed, index);
    const Performance whole = performed_alone(subject, training);
    if (whole.stop && whole.stop->kind == Stop::Kind::kRoom) fail(whole.stop->text);
    for (const uint64_t capacity : kRooms) {
      Coordinator coordinator(subject);
      coordinator.set_room(capacity);
      const Performance cut = performed(coordinator, training);
      if (!cut.stop || cut.stop->kind == Stop::Kind::kRule) continue;
      if (cut.stop->kind == Stop::Kind::kRoom) fail(cut.stop->text);
      if (whole.stop && whole.stop->kind == Stop::Kind::kRefusal) continue;
      expect(cut.stop->status == PLIANT_RESOURCE_EXHAUSTED,
             "with a list for " + std::to_string(capacity) + " actions: " + cut.stop->text +
                 "; a list that is too short is PLIANT_RESOURCE_EXHAUSTED (5)");
      coordinator.give_full_room();
      const Performance after = performed(coordinator, training);
      if (after.stop && !whole.stop) fail("after a list that was too short and set_model: " + after.stop->text);
    }
  }
}

}  // namespace

std::vector<Check> action_checks() {
  return {
      {"actions.answered", "valid models and visits are accepted", answered},
      {"actions.form", "every action is known to hosts and concerns an existing parameter", form},
      {"actions.gathered", "gathered parameters are not gathered again", gathered},
      {"actions.waited", "only gathered parameters are waited for", waited},
      {"actions.used", "parameters of a module are gathered and waited for before it is entered", used},
      {"actions.released",
       "released parameters were gathered and waited for, and no entered module uses them or may use them unannounced",
       released},
      {"actions.reduced", "only complete gradients are reduced, each once per pass, and none of frozen parameters",
       reduced},
      {"actions.groups", "the actions of one collective are adjacent", groups},
      {"actions.places", "places in the arena are multiples of 256 and do not overlap", places},
      {"actions.step_end", "nothing stays gathered after the end of a step", step_end},
      {"actions.room", "a list that is too short is refused, and nothing is written past its end", room, 60},
  };
}

}  // namespace pliant::testkit
