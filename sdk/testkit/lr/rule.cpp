// Asks a rule, and draws jobs for it.
#include "testkit/lr/rule.hpp"

#include <bit>
#include <cmath>

namespace pliant::testkit {

bool Scaled::same_as(const Scaled& other) const {
  if (told.status != other.told.status) return false;
  if (!ok()) return true;
  const auto bits = [](double value) { return std::bit_cast<uint64_t>(value); };
  bool alike = bits(answer.lr) == bits(other.answer.lr) && bits(answer.scheduled_lr) == bits(other.answer.scheduled_lr);
  for (const sdk::detail::LrField& field : sdk::detail::kLrFactors) {
    alike = alike && bits(answer.*field.value) == bits(other.answer.*field.value);
  }
  return alike;
}

pliant_lr_facts LrRule::facts() {
  Room<pliant_lr_facts> facts;
  const Reply told = ask([&](pliant_error* error) { return table().describe(self(), &facts.given, error); });
  expect(told.ok(), "describe returned " + told.text());
  return facts.given;
}

Scaled LrRule::scale(const LrStep& step) {
  Room<pliant_lr_output> previous;
  previous.given = step.previous;
  Room<pliant_lr_input> input;
  input.given = step.input;
  input.given.previous = &previous.given;
  Room<pliant_lr_output> output;
  output.given = step.previous;
  Scaled made;
  made.told = ask([&](pliant_error* error) { return table().scale(self(), &input.given, &output.given, error); });
  made.answer = output.given;
  made.spilled = output.spilled("scale");
  return made;
}

Reply LrRule::commit(const LrStep& step, const pliant_lr_output& answer) {
  pliant_lr_input input = step.input;
  input.previous = &step.previous;
  return ask([&](pliant_error* error) { return table().commit(self(), &input, &answer, &step.committed, error); });
}

std::vector<LrStep> drawn_job(uint64_t seed, uint64_t index, const pliant_lr_facts& facts) {
  Draws draws(seed, (index << 20U) + 4);
  std::vector<int32_t> optimizers;
  for (int32_t one = PLIANT_OPTIMIZER_UNKNOWN; one <= PLIANT_OPTIMIZER_OTHER; ++one) {
    if ((facts.optimizers >> static_cast<uint32_t>(one) & 1U) != 0) optimizers.push_back(one);
  }
  pliant_lr_input input{};
  input.struct_size = sizeof(input);
  input.optimizer = optimizers.empty() ? int32_t{PLIANT_OPTIMIZER_OTHER} : optimizers[draws.below(optimizers.size())];
  input.unit = static_cast<int32_t>(draws.between(PLIANT_BATCH_ROWS, PLIANT_BATCH_LOSS_TOKENS));
  input.base_lr = std::pow(10.0, -5 * draws.unit());
  input.base_batch = static_cast<double>(draws.between(1, 4096));
  input.total_steps = static_cast<int64_t>(kSteps);
  input.total_progress = input.base_batch * static_cast<double>(kSteps);
  input.base_beta1 = 0.9;
  input.base_beta2 = 0.99;
  input.base_epsilon = 1e-8;
  input.base_weight_decay = 0.1;
  input.base_ema = 0.999;
  const auto counts = [](double batch) { return pliant_lr_counts{batch, batch, batch, batch}; };
  input.base_counts = counts(input.base_batch);
  std::vector<LrStep> made;
  for (uint64_t step = 0; step < kSteps; ++step) {
    const double ratio = step == 0 || draws.one_in(3) ? 1 : std::exp2(8 * draws.unit() - 4);
    input.batch = input.base_batch * ratio;
    input.counts = counts(input.batch);
    input.step = static_cast<int64_t>(step);
    const double before = step == 0 || draws.one_in(2) ? 1 : 0.5 + draws.unit();
    LrStep one;
    one.previous = {
        sizeof(pliant_lr_output), 0, input.base_lr * before, input.base_lr, before, 1, 1, 1, 1, 1, 1, 1, input.batch};
    const double small_norm = 1 + draws.unit();
    one.committed = {sizeof(pliant_lr_committed),
                     0,
                     input.batch / 4,
                     small_norm,
                     input.batch,
                     small_norm * (0.3 + 0.7 * draws.unit())};
    one.input = input;
    made.push_back(one);
    input.progress += input.batch;
  }
  return made;
}

std::string at_step(const LrStep& step) {
  using sdk::detail::number_text;
  return "at step " + std::to_string(step.input.step) + ", for a batch of " + number_text(step.input.batch) + " over " +
         number_text(step.input.base_batch) + ", ";
}

}  // namespace pliant::testkit
