// The same visits again, models that come again or change, a budget, passes that are given up.
#include "testkit/coordinator/checks.hpp"
#include "testkit/coordinator/performance.hpp"

namespace pliant::testkit {

namespace {

/// Does `look` for every training that ends well in an instance of its own: what does not is another check's.
template <class Look>
void for_each_sound(const Subject& subject, const Look& look) {
  const OpenedPlugin kept(subject.file);  // so that unloading hides nothing
  for (uint64_t index = 0; index < kTrainings; ++index) {
    const Training training = drawn_training(subject.seed, index);
    const Performance alone = performed_alone(subject, training);
    if (!alone.stop) look(training, alone);
  }
}

void same(const Subject& subject) {
  for_each_sound(subject, [&](const Training& training, const Performance& alone) {
    const Performance other = performed_alone(subject, training);
    if (other.stop) fail("in a second instance, " + other.stop->text);
    expect(other.same_as(alone), "the same visits of a model of " + std::to_string(training.model.parameters.size()) +
                                     " parameters got other actions in a second instance");
  });
}

/// In one instance, before and after a model and steps that have nothing to do with it.
void again(const Subject& subject) {
  uint64_t index = 0;
  for_each_sound(subject, [&](const Training& training, const Performance&) {
    Coordinator coordinator(subject);
    const Performance first = performed(coordinator, training);
    if (performed(coordinator, drawn_training(subject.seed, kTrainings + index++)).stop) return;
    const Performance later = performed(coordinator, training);
    if (later.stop) fail("after another model, " + later.stop->text);
    expect(later.same_as(first), "the same visits of a model of " + std::to_string(training.model.parameters.size()) +
                                     " parameters got other actions after another model");
  });
}

void given_up_passes(const Subject& subject) {
  for_each_sound(subject, [&](const Training& training, const Performance&) {
    const Performance cut = performed_alone(subject, given_up(training, subject.seed));
    if (cut.stop) fail("with abandoned passes, " + cut.stop->text);
  });
}

void module_parameters(const Subject& subject) {
  for_each_sound(subject, [&](const Training& training, const Performance&) {
    uint32_t module = 0;
    const Training changed = with_other_parameters(training, subject.seed, module);
    if (performed_alone(subject, changed).stop) return;
    Coordinator coordinator(subject);
    if (performed(coordinator, training).stop) return;
    const sdk::Module& one = changed.model.modules[module];
    const ListAnswer answer = coordinator.set_module_parameters(module, one.own, one.external);
    if (answer.status == PLIANT_UNIMPLEMENTED) skip("it cannot change the parameters of a module");
    expect(answer.ok(), "set_module_parameters returned " + answer.text());
    sdk::CoordinatorRules rules(changed.model);
    const Performance after = performed_steps(coordinator, rules, changed.steps);
    if (after.stop) fail("after module " + std::to_string(module) + " got other parameters, " + after.stop->text);
  });
}

/// What it learnt does not show afterwards.
void dropped_trace(const Subject& subject) {
  for_each_sound(subject, [&](const Training& training, const Performance&) {
    Coordinator coordinator(subject);
    if (!coordinator.can_drop_trace()) skip("it has no drop_trace: the host calls set_model again");
    expect(coordinator.set_model(training.model).ok(), "set_model failed");
    sdk::CoordinatorRules rules(training.model);
    const Performance before = performed_steps(coordinator, rules, training.steps);
    if (before.stop) return;
    const ListAnswer answer = coordinator.drop_trace();
    expect(answer.ok() && answer.spilled.empty(), "drop_trace returned " + answer.text() + answer.spilled);
    if (const auto wrong = rules.drop_trace(answer.actions)) fail(*wrong);
    const Performance after = performed_steps(coordinator, rules, training.steps);
    if (after.stop) fail("after drop_trace, " + after.stop->text);
    expect(after.same_as(before), "after drop_trace the visits of a model of " +
                                      std::to_string(training.model.parameters.size()) +
                                      " parameters got other actions than the first time");
  });
}

/// What one has learnt of a model goes on in another instance that has the model, too.
void kept_state(const Subject& subject) {
  for_each_sound(subject, [&](const Training& training, const Performance&) {
    Coordinator first(subject);
    if (!first.has_state()) skip("it has no state: save and load are NULL");
    expect(first.set_model(training.model).ok(), "set_model failed");
    sdk::CoordinatorRules rules(training.model);
    if (performed_steps(first, rules, training.steps).stop) return;
    std::string state;
    const ListAnswer saved = first.save(state);
    expect(saved.ok(), "save returned " + saved.text());
    Coordinator second(subject);
    expect(second.set_model(training.model).ok(), "set_model failed in a second instance");
    const ListAnswer loaded = second.load(state);
    expect(loaded.ok(), "load returned " + loaded.text());
    const Performance goes_on = performed_steps(first, rules, training.steps);
    if (goes_on.stop) return;
    sdk::CoordinatorRules fresh(training.model);  // nothing is whole
    const Performance after = performed_steps(second, fresh, training.steps);
    if (after.stop) fail("after load, " + after.stop->text);
    expect(after.same_as(goes_on), "after load the visits of a model of " +
                                       std::to_string(training.model.parameters.size()) +
                                       " parameters got other actions than in the instance that saved it");
  });
}

/// A coordinator may refuse a budget; what it takes on must fit.
void budget(const Subject& subject) {
  uint64_t kept = 0;
  uint64_t refused = 0;
  for_each_sound(subject, [&](Training training, const Performance&) {
    const uint64_t least = least_budget(training);
    for (const uint64_t bytes : {least, least + least / 2}) {
      if (bytes == 0) continue;
      training.model.budget = bytes;
      const Performance made = performed_alone(subject, training);
      if (!made.stop) ++kept;
      if (made.stop && made.stop->kind == Stop::Kind::kRefusal) ++refused;
      if (made.stop && made.stop->kind != Stop::Kind::kRefusal) fail(made.stop->text);
    }
  });
  if (kept == 0 && refused > 0) warn("it refuses every model with a budget, even if everything fits");
}

/// Gradients share the budget.
void budget_of_gradients(const Subject& subject) {
  for_each_sound(subject, [&](const Training& drawn, const Performance&) {
    Training training = with_gradients(drawn, subject.seed);
    const uint64_t least = least_budget(training);
    for (const uint64_t bytes : {least, least + least / 2}) {
      if (bytes == 0) continue;
      training.model.budget = bytes;
      const Performance made = performed_alone(subject, training);
      if (made.stop && made.stop->kind != Stop::Kind::kRefusal) fail(made.stop->text);
    }
  });
}

/// One byte less than must be whole.
void tight_budget(const Subject& subject) {
  for_each_sound(subject, [&](Training training, const Performance&) {
    const uint64_t least = least_budget(training);
    if (least < 2) return;
    training.model.budget = least - 1;
    const Performance made = performed_alone(subject, training);
    if (made.stop && made.stop->kind == Stop::Kind::kRoom) fail(made.stop->text);
    if (made.stop && made.stop->kind == Stop::Kind::kRule && made.stop->rule != sdk::CoordinatorRule::kBudget) {
      fail("with a budget that is too small, " + made.stop->text);
    }
  });
}

void counters(const Subject& subject) {
  constexpr int64_t kUnwritten = -7777;
  Coordinator coordinator(subject);
  const pliant_coordinator_counters* table = coordinator.counters();
  if (table == nullptr) skip("it has no " PLIANT_COORDINATOR_COUNTERS);
  const Performance made = performed(coordinator, drawn_training(subject.seed, 3));
  struct {
    pliant_coordinator_counts counts;
    int64_t behind;
  } room{{sizeof(pliant_coordinator_counts), -1, kUnwritten, 0, 0, 0}, kUnwritten};
  pliant_error error = blank_error();
  const int32_t status = table->read(coordinator.self(), &room.counts, &error);
  expect(status == PLIANT_OK, "read returned status " + std::to_string(status) + ": " + error.message);
  expect(room.counts.trace >= PLIANT_TRACE_NONE && room.counts.trace <= PLIANT_TRACE_INVALID,
         "its trace is " + std::to_string(room.counts.trace) + ", which is not a PLIANT_TRACE_...");
  expect(room.counts.struct_size == sizeof(pliant_coordinator_counts) && room.behind == kUnwritten,
         "read wrote struct_size, or past what it says");
  room.counts = {8, -1, kUnwritten, 0, 0, 0};
  static_cast<void>(table->read(coordinator.self(), &room.counts, &error));
  expect(room.counts.whole == kUnwritten, "read wrote past the struct_size of an older host");
}

}  // namespace

std::vector<Check> model_checks() {
  return {
      {"models.same", "the same visits get the same actions in another instance", same},
      {"models.again", "a model gets the same actions after another one: set_model forgets what was learnt", again},
      {"models.given_up", "leftovers of an abandoned pass are released at the end of the step", given_up_passes},
      {"models.module_parameters", "after a module's parameters change, the rules hold for the new ones",
       module_parameters},
      {"models.trace_dropped", "after drop_trace it starts as after set_model", dropped_trace},
      {"models.state_kept", "with saved state another instance continues like the one that saved it", kept_state},
      {"models.counters", "its counters can be read, also by older hosts", counters},
      {"budget.kept", "gathered parameters fit the budget if it is enough for those in use", budget},
      {"budget.gradients", "gathered parameters leave room for gradients, which share the budget", budget_of_gradients},
      {"budget.tight", "a budget that is too small breaks no other rule", tight_budget},
  };
}

}  // namespace pliant::testkit
