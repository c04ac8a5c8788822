// Each answer against the rules of pliant/sdk/lr_rules.hpp, which hosts use, too.
#include <cmath>

#include "testkit/lr/checks.hpp"
#include "testkit/lr/rule.hpp"

namespace pliant::testkit {

namespace {

constexpr double kRateRounding = 1e-12;

void sound_facts(const Subject& subject) {
  for_each_rule(subject, [](LrRule& rule, uint64_t) {
    Room<pliant_lr_facts> room;
    const Reply told =
        rule.ask([&](pliant_error* error) { return rule.table().describe(rule.self(), &room.given, error); });
    expect(told.ok(), "describe returned " + told.text());
    expect(room.spilled("describe").empty(), room.spilled("describe"));
    const std::string fault = sdk::facts_fault(room.given);
    expect(fault.empty(), fault);
    const pliant_lr_facts again = rule.facts();
    expect(again.flags == room.given.flags && again.optimizers == room.given.optimizers,
           "describe gives other facts at the second call");
  });
}

void sound_rates(const Subject& subject) {
  bool has_answered = false;
  for_each_step(subject, [&](LrRule&, const LrStep& step, const Scaled& answer) {
    if (!answer.ok()) return;
    has_answered = true;
    const std::string fault = sdk::scaling_fault(step.input, answer.answer);
    expect(fault.empty(), fault);
  });
  if (!has_answered) warn("it refused every step");
}

/// By the options that the user gave; others may move what stands at the base batch.
void base_batch(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t job = 0; job < kJobs; ++job) {
    LrRule rule(plugin, subject, 0);
    const LrStep first = drawn_job(subject.seed, job, rule.facts()).front();
    const Scaled answer = rule.scale(first);
    if (!answer.ok()) continue;
    for (const sdk::detail::LrField& field : sdk::detail::kLrFactors) {
      if (field.value == &pliant_lr_output::progress) continue;
      const double factor = answer.answer.*field.value;
      expect(std::abs(factor - 1) <= kRateRounding,
             "at the base batch " + std::string(field.name) + " " + sdk::detail::number_text(factor) + ", not 1");
    }
  }
}

void every_optimizer(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  LrRule rule(plugin, subject, 0);
  const pliant_lr_facts facts = rule.facts();
  LrStep step = drawn_job(subject.seed, 0, facts).front();
  for (int32_t one = PLIANT_OPTIMIZER_UNKNOWN; one <= PLIANT_OPTIMIZER_OTHER; ++one) {
    if ((facts.optimizers >> static_cast<uint32_t>(one) & 1U) == 0) continue;
    step.input.optimizer = one;
    const Scaled answer = rule.scale(step);
    expect(answer.ok(), "it reports that it is valid for optimizer number " + std::to_string(one) +
                            " but refuses the base batch with it: " + answer.told.text());
  }
}

void room_for_rates(const Subject& subject) {
  for_each_step(subject,
                [](LrRule&, const LrStep&, const Scaled& answer) { expect(answer.spilled.empty(), answer.spilled); });
}

void rule_refusals(const Subject& subject) {
  for_each_step(subject, [](LrRule& rule, const LrStep& step, const Scaled& answer) {
    expect(answer.told.fault.empty(), answer.told.fault);
    LrStep wide = step;
    wide.input.batch *= 1e6;
    wide.input.base_beta1 = wide.input.base_beta2 = std::nan("");
    const Scaled unusual = rule.scale(wide);
    expect(unusual.told.fault.empty(), unusual.told.fault);
  });
}

}  // namespace

std::vector<Check> rate_checks() {
  return {
      {"rate.facts", "it is valid for at least one optimizer, and gives a reason where it is not", sound_facts},
      {"rate.numbers", "rates and factors are finite and not negative, betas stay from 0 to 1", sound_rates},
      {"rate.base", "at the base batch every factor is 1", base_batch},
      {"rate.optimizers", "it accepts the base batch with every optimizer that it is valid for", every_optimizer},
      {"rate.room", "scale writes nothing past its struct", room_for_rates},
      {"rate.refusals", "a refusal has a message and names no unknown option", rule_refusals},
  };
}

}  // namespace pliant::testkit
