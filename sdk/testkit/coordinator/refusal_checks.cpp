// Calls that are wrong end with an error, and what comes after the next set_model is as if they had not been.
#include <string>

#include "testkit/coordinator/checks.hpp"
#include "testkit/coordinator/performance.hpp"

namespace pliant::testkit {

namespace {

constexpr uint64_t kWrongCalls = 40;

/// Does `wrong` between a model and the same again, which must then be performed as well as alone.
template <class WrongCalls>
void unharmed_by(const Subject& subject, const WrongCalls& wrong) {
  const OpenedPlugin kept(subject.file);  // so that unloading hides nothing
  for (uint64_t index = 0; index < kWrongCalls; ++index) {
    const Training training = drawn_training(subject.seed, index);
    if (performed_alone(subject, training).stop) continue;  // another check's
    Coordinator coordinator(subject);
    const ListAnswer answer = coordinator.set_model(training.model);
    expect(answer.ok(), "set_model returned " + answer.text());
    wrong(coordinator, training.model);
    const Performance after = performed(coordinator, training);
    if (after.stop) fail("after the wrong calls, " + after.stop->text);
  }
}

void refused(const ListAnswer& answer, const std::string& what) {
  expect(answer.spilled.empty(), what + ": " + answer.spilled);
  expect(!answer.ok(), what + " was accepted");
}

void unknown_module(const Subject& subject) {
  unharmed_by(subject, [](Coordinator& coordinator, const sdk::Model& model) {
    static_cast<void>(coordinator.begin_pass(true));
    for (const uint32_t number : {static_cast<uint32_t>(model.modules.size()), UINT32_MAX}) {
      const std::string name = " module " + std::to_string(number) + " of " + std::to_string(model.modules.size());
      sdk::Visit visit;
      visit.module = number;
      refused(coordinator.enter(visit), "entering" + name);
      refused(coordinator.leave(visit), "leaving" + name);
      visit.backward = true;
      refused(coordinator.enter(visit), "entering backward" + name);
      refused(coordinator.set_module_parameters(number, {}, {}), "other parameters of" + name);
    }
  });
}

void unknown_numbers(const Subject& subject) {
  unharmed_by(subject, [](Coordinator& coordinator, const sdk::Model& model) {
    const std::vector<uint32_t> none{static_cast<uint32_t>(model.parameters.size())};
    refused(coordinator.set_module_parameters(0, none, {}), "a missing parameter as a module's own");
    refused(coordinator.set_module_parameters(0, {}, none), "a missing parameter as an external one");
    sdk::Model wrong = model;
    wrong.modules[0].own.push_back(none[0]);
    refused(coordinator.set_model(wrong), "a model whose module owns a missing parameter");
    wrong = model;
    wrong.modules.back().external.push_back(UINT32_MAX);
    refused(coordinator.set_model(wrong), "a model with a missing external parameter");
    wrong = model;
    wrong.modules[0].children.push_back(static_cast<uint32_t>(model.modules.size()));
    refused(coordinator.set_model(wrong), "a model with a missing child module");
  });
}

/// Either an error or actions that keep the rules.
void out_of_order(const Subject& subject) {
  Coordinator fresh(subject);
  refused(fresh.enter({}), "entering a module before set_model");
  refused(fresh.leave({}), "leaving a module before set_model");
  for (const ListAnswer& answer : {fresh.begin_pass(true), fresh.end_pass(), fresh.end_step()}) {
    expect(answer.actions.empty() && answer.spilled.empty(), "it returns actions before set_model");
  }
  unharmed_by(subject, [](Coordinator& coordinator, const sdk::Model& model) {
    sdk::CoordinatorRules rules(model);
    const auto lawful = [&](const char* what, const ListAnswer& answer, const auto& judge) {
      expect(answer.spilled.empty(), std::string(what) + ": " + answer.spilled);
      if (!answer.ok()) return;
      if (const auto wrong = judge(answer.actions)) fail(std::string(what) + " returned wrong actions: " + *wrong);
    };
    const sdk::Visit root;
    lawful("leaving a module that was not entered", coordinator.leave(root),
           [&](const Actions& actions) { return rules.leave(root, actions); });
    lawful("ending a pass that was not begun", coordinator.end_pass(),
           [&](const Actions& actions) { return rules.end_pass(actions); });
    lawful("ending an empty step", coordinator.end_step(),
           [&](const Actions& actions) { return rules.end_step(actions); });
    lawful("entering a module outside of a pass", coordinator.enter(root),
           [&](const Actions& actions) { return rules.enter(root, actions); });
  });
}

void costs(const Subject& subject) {
  if (!Coordinator(subject).has_costs()) skip("it has no set_costs");
  unharmed_by(subject, [](Coordinator& coordinator, const sdk::Model& model) {
    const std::vector<uint64_t> wrong(model.parameters.size() + 1, 5);
    refused(coordinator.set_costs(wrong), "set_costs with one cost more than the model has parameters");
  });
}

}  // namespace

std::vector<Check> refusal_checks() {
  return {
      {"refusals.module", "a module that does not exist is refused, and the next model works", unknown_module},
      {"refusals.numbers", "tables that name missing parameters or modules are refused, and the next model works",
       unknown_numbers},
      {"refusals.order", "calls out of order get an error or actions that keep the rules", out_of_order},
      {"refusals.costs", "costs of another number of parameters are refused", costs},
  };
}

}  // namespace pliant::testkit
