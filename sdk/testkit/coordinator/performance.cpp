// One move of the program after the other.
#include "testkit/coordinator/performance.hpp"

#include <cstring>
#include <set>

#include "testkit/coordinator/gradients.hpp"

namespace pliant::testkit {

namespace {

using Wrong = sdk::CoordinatorRules::Wrong;

/// What became complete and was not reduced yet, ascending.
class Pending {
 public:
  std::vector<uint32_t> with(const std::vector<uint32_t>& completed, const sdk::CoordinatorRules& rules) {
    numbers_.insert(completed.begin(), completed.end());
    std::erase_if(numbers_, [&](uint32_t number) { return rules.is_reduced(number); });
    return {numbers_.begin(), numbers_.end()};
  }
  void clear() { numbers_.clear(); }

 private:
  std::set<uint32_t> numbers_;
};

struct Asked {
  ListAnswer answer;
  std::vector<uint32_t> complete;
};

Asked ask(Coordinator& coordinator, const Move& move, Pending& pending, const sdk::CoordinatorRules& rules) {
  switch (move.kind) {
    case Move::Kind::kBeginPass:
      pending.clear();
      return {coordinator.begin_pass(move.with_gradient), {}};
    case Move::Kind::kEnter:
      return {coordinator.enter(move.visit), {}};
    case Move::Kind::kLeave: {
      std::vector<uint32_t> complete = pending.with(move.completed, rules);
      sdk::Visit visit = move.visit;
      visit.complete = complete;
      return {coordinator.leave(visit), std::move(complete)};
    }
    case Move::Kind::kEndPass:
      return {coordinator.end_pass(), {}};
    case Move::Kind::kEndStep:
      pending.clear();
      break;
  }
  return {coordinator.end_step(), {}};
}

Wrong judge(sdk::CoordinatorRules& rules, const Move& move, const Asked& asked) {
  sdk::Visit visit = move.visit;
  visit.complete = asked.complete;
  switch (move.kind) {
    case Move::Kind::kBeginPass:
      return rules.begin_pass(move.with_gradient, asked.answer.actions);
    case Move::Kind::kEnter:
      return rules.enter(visit, asked.answer.actions);
    case Move::Kind::kLeave:
      return rules.leave(visit, asked.answer.actions);
    case Move::Kind::kEndPass:
      return rules.end_pass(asked.answer.actions);
    case Move::Kind::kEndStep:
      break;
  }
  return rules.end_step(asked.answer.actions);
}

const char* name_of(Move::Kind kind) {
  const char* const names[] = {"begin_pass", "enter", "leave", "end_pass", "end_step"};
  return names[static_cast<size_t>(kind)];
}

/// What is whole and what gradients take fit into the budget together.
std::optional<Stop> beside_gradients(GradientBooks& gradients, const sdk::CoordinatorRules& rules, const Move& move,
                                     const Actions& actions) {
  gradients.called();
  if (move.kind == Move::Kind::kBeginPass || move.kind == Move::Kind::kEndStep) gradients.cleared();
  if (move.kind == Move::Kind::kEndPass) gradients.reducing();
  const pliant_action* before = nullptr;
  for (const pliant_action& action : actions) {
    const bool goes_on = before != nullptr && before->kind == action.kind && before->group == action.group;
    before = &action;
    if (action.kind != PLIANT_ACTION_REDUCE) continue;
    if (!goes_on) gradients.reducing();
    gradients.reduced(action.parameter, (action.flags & PLIANT_ACTION_LINGER) != 0);
  }
  if (move.kind == Move::Kind::kEnter && move.visit.backward) gradients.entered_backward(move.visit.module);
  const uint64_t budget = rules.model().budget;
  if (budget == 0 || gradients.bytes() == 0 || rules.whole_bytes() + gradients.bytes() <= budget) return std::nullopt;
  return Stop{Stop::Kind::kGradients, sdk::CoordinatorRule::kBudget, PLIANT_OK,
              std::to_string(rules.whole_bytes()) + " bytes are whole while gradients take " +
                  std::to_string(gradients.bytes()) + ", and the budget is " + std::to_string(budget)};
}

std::optional<Stop> moved(Coordinator& coordinator, sdk::CoordinatorRules& rules, const Move& move, Pending& pending,
                          GradientBooks& gradients, Performance& made) {
  Asked asked = ask(coordinator, move, pending, rules);
  if (!asked.answer.spilled.empty()) {
    return Stop{Stop::Kind::kRoom, {}, PLIANT_OK, std::string(name_of(move.kind)) + ": " + asked.answer.spilled};
  }
  if (!asked.answer.ok()) {
    return Stop{Stop::Kind::kRefusal,
                {},
                asked.answer.status,
                std::string(name_of(move.kind)) + " returned " + asked.answer.text()};
  }
  const Wrong wrong = judge(rules, move, asked);
  made.lists.push_back(std::move(asked.answer.actions));
  if (wrong) return Stop{Stop::Kind::kRule, rules.broken(), PLIANT_OK, *wrong};
  std::optional<Stop> stop = beside_gradients(gradients, rules, move, made.lists.back());
  if (stop) stop->text = std::string(name_of(move.kind)) + ": " + stop->text;
  return stop;
}

std::string words(const Training& training) {
  return "a model of " + std::to_string(training.model.parameters.size()) + " parameters and " +
         std::to_string(training.model.modules.size()) + " modules: ";
}

}  // namespace

bool Performance::same_as(const Performance& other) const {
  const auto same = [](const pliant_action& one, const pliant_action& two) {
    return one.kind == two.kind && one.parameter == two.parameter && one.group == two.group && one.flags == two.flags &&
           one.place == two.place;
  };
  return std::equal(lists.begin(), lists.end(), other.lists.begin(), other.lists.end(),
                    [&](const Actions& one, const Actions& two) {
                      return std::equal(one.begin(), one.end(), two.begin(), two.end(), same);
                    });
}

Performance performed_steps(Coordinator& coordinator, sdk::CoordinatorRules& rules, const std::vector<Moves>& steps) {
  Performance made;
  Pending pending;
  GradientBooks gradients(rules.model());
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const Move& move : steps[step]) {
      made.stop = moved(coordinator, rules, move, pending, gradients, made);
      if (made.stop) {
        made.stop->text = "step " + std::to_string(step) + ", " + made.stop->text;
        return made;
      }
    }
    const uint64_t count = rules.model().parameters.size();
    if (step > 0 || !coordinator.has_costs() || count % 2 != 0) continue;
    std::vector<uint64_t> costs;
    for (uint64_t i = 0; i < count; ++i) costs.push_back(1000 + rules.model().parameters[i].bytes);
    const ListAnswer answer = coordinator.set_costs(costs);
    if (answer.ok()) continue;
    made.stop = Stop{Stop::Kind::kRefusal, {}, answer.status, "set_costs returned " + answer.text()};
    return made;
  }
  return made;
}

Performance performed(Coordinator& coordinator, const Training& training) {
  Performance made;
  if (const ListAnswer answer = coordinator.set_model(training.model); !answer.ok()) {
    made.stop = Stop{Stop::Kind::kRefusal, {}, answer.status, "set_model returned " + answer.text()};
  } else {
    sdk::CoordinatorRules rules(training.model);
    made = performed_steps(coordinator, rules, training.steps);
  }
  if (made.stop) made.stop->text = words(training) + made.stop->text;
  return made;
}

Performance performed_alone(const Subject& subject, const Training& training) {
  Coordinator coordinator(subject);
  return performed(coordinator, training);
}

}  // namespace pliant::testkit
