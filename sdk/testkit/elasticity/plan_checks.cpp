// Each plan against the rules of pliant/sdk/elasticity_rules.hpp, which hosts use, too.
#include "testkit/elasticity/checks.hpp"
#include "testkit/elasticity/policy.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kPlansLimitS = 60;

/// "at world size 7, under the options drawn as number 3, it "
std::string of_plan(const Planned& answer, uint64_t index) {
  return (answer.world_size > 0 ? "at world size " + std::to_string(answer.world_size)
                                : std::string("without a world size")) +
         (index == 0 ? ", " : ", under the options drawn as number " + std::to_string(index) + ", ") + "it ";
}

void plan_numbers(const Subject& subject) {
  for_each_plan(subject, [](Policy&, const Planned& answer, uint64_t index) {
    if (!answer.ok()) return;
    const std::string fault = sdk::plan_number_fault(answer.plan, answer.world_size);
    expect(fault.empty(), of_plan(answer, index) + fault);
  });
}

void plan_granules(const Subject& subject) {
  for_each_plan(subject, [](Policy&, const Planned& answer, uint64_t index) {
    if (!answer.ok() || !sdk::plan_number_fault(answer.plan, answer.world_size).empty()) return;
    const std::string fault = sdk::granule_fault(answer.plan);
    expect(fault.empty(), of_plan(answer, index) + fault);
  });
}

void plan_world_sizes(const Subject& subject) {
  for_each_plan(subject, [](Policy&, const Planned& answer, uint64_t index) {
    expect(answer.not_taken.empty(), of_plan(answer, index) + answer.not_taken);
    if (!answer.has_numbers()) return;
    const std::string fault = sdk::world_size_fault(answer.plan, answer.sizes);
    expect(fault.empty(), of_plan(answer, index) + fault);
  });
}

void plan_micro_batches(const Subject& subject) {
  for_each_plan(subject, [](Policy&, const Planned& answer, uint64_t index) {
    if (!answer.has_sizes()) return;
    const std::string fault = sdk::micro_batch_fault(answer.plan, answer.sizes, answer.world_size);
    expect(fault.empty(), of_plan(answer, index) + fault);
  });
}

void plan_fields(const Subject& subject) {
  for_each_policy(subject, [](Policy& policy, Draws& draws, uint64_t index) {
    for (const int64_t size : sizes_to_ask(policy, draws)) {
      const Planned answer = policy.plan(size);
      expect(answer.spilled.empty(), answer.spilled);
      if (!answer.difference(policy.plan(size)).empty()) continue;  // another check's
      const std::string differs = answer.difference(policy.plan(PlanAsked{size, false, {}}, kGuard));
      expect(differs.empty(), of_plan(answer, index) + "does not write every field: " + differs +
                                  " where the memory was not zero before");
    }
  });
}

}  // namespace

std::vector<Check> plan_checks() {
  return {
      {"plan.numbers", "batch, micro-batch and devices are in their ranges", plan_numbers, kPlansLimitS},
      {"plan.granule", "the granule divides batch and micro-batch", plan_granules, kPlansLimitS},
      {"plan.world_sizes", "world sizes ascend, do not overlap, and give every rank at least one granule",
       plan_world_sizes, kPlansLimitS},
      {"plan.micro_batch", "every world size that a plan lists has a micro-batch", plan_micro_batches, kPlansLimitS},
      {"plan.fields", "plan writes every field of a plan, and nothing else", plan_fields, kPlansLimitS},
  };
}

}  // namespace pliant::testkit
