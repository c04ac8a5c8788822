// What a plan may depend on, and what a policy refuses.
#include "testkit/elasticity/checks.hpp"
#include "testkit/elasticity/policy.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kRequestsLimitS = 60;

std::string under_options(uint64_t index) {
  return index == 0 ? "" : ", under the options drawn as number " + std::to_string(index) + ",";
}

/// In another instance, from another thread, after other requests.
void same_plans(const Subject& subject) {
  for_each_policy(subject, [&](Policy& policy, Draws& draws, uint64_t index) {
    Policy other(policy.plugin(), subject, index);
    expect(other.is_made(), "a second instance with the same options was refused: " + other.own().text());
    const std::vector<int64_t> sizes = sizes_to_ask(policy, draws);
    std::vector<Planned> first;
    first.reserve(sizes.size());
    for (const int64_t size : sizes) first.push_back(policy.plan(size));
    for (size_t i = sizes.size(); i-- > 0;) {
      const std::string at = "world size " + std::to_string(sizes[i]) + under_options(index) + " got another plan ";
      const auto held = [&](const Planned& again, const char* when) {
        const std::string differs = first[i].difference(again);
        expect(differs.empty(), at + when + ": " + differs);
      };
      held(policy.plan(sizes[i]), "after other requests");
      held(other.plan(sizes[i]), "from another instance");
      on_another_thread([&] { held(policy.plan(sizes[i]), "from another thread"); });
    }
  });
}

void refused_sizes(const Subject& subject) {
  for_each_policy(subject, [](Policy& policy, Draws& draws, uint64_t index) {
    const Planned all = policy.plan(0);
    for (const int64_t size : sizes_to_ask(policy, draws)) {
      if (size == 0) continue;
      const Planned answer = policy.plan(size);
      const std::string at = "world size " + std::to_string(size) + under_options(index);
      if (answer.has_sizes()) {
        expect(answer.has(size), at + " gets a plan that does not list it");
      }
      if (!all.has_sizes()) continue;
      if (all.has(size)) {
        expect(answer.ok(), at + " is listed, but a request for it is refused: " + answer.told.text());
      } else if (!answer.ok()) {
        expect(answer.told.status == PLIANT_INCOMPATIBLE_WORLD_SIZE,
               at + " is not listed, but the request is refused with " + answer.told.text() +
                   ", not as PLIANT_INCOMPATIBLE_WORLD_SIZE");
      }
    }
  });
}

void wanted_micro_batch(const Subject& subject) {
  for_each_policy(subject, [](Policy& policy, Draws&, uint64_t index) {
    const Planned answer = policy.plan(PlanAsked{0, true, {}});
    if (!answer.ok() || answer.plan.micro_batch != 0) return;
    const std::string fault =
        "a request without a world size asks for a micro-batch" + under_options(index) + ", and the plan has none";
    // The SDK of ABI minor 0 left it to the author.
    if (policy.plugin().record().abi_minor > 0) fail(fault);
    if (index == 0) warn(fault);
  });
}

/// Digits behind the end are not read.
void world_size_text(const Subject& subject) {
  for_each_policy(subject, [](Policy& policy, Draws& draws, uint64_t index) {
    const std::string digits = std::to_string(draws.between(1, 64));
    const std::string longer = digits + "77";
    const std::string exact(longer, 0, digits.size());
    const Planned answer = policy.plan(PlanAsked{0, false, exact});
    Room<pliant_plan_request> request(0);
    request.given.world_size_text = {longer.data(), digits.size()};
    Room<pliant_plan> plan;
    sdk::WorldSizes sizes;
    const Reply told = policy.ask([&](pliant_error* error) {
      return policy.table().plan(policy.self(), &request.given, &plan.given, sizes.sink(), error);
    });
    Planned again = answer;
    again.told = told;
    again.plan = plan.given;
    again.sizes = sizes.ranges();
    const std::string differs = answer.difference(again);
    expect(differs.empty(), "WORLD_SIZE is '" + digits + "'" + under_options(index) +
                                " and the plan depends on the bytes after it: " + differs);
  });
}

void policy_refusals(const Subject& subject) {
  for_each_plan(subject, [](Policy&, const Planned& answer, uint64_t index) {
    expect(answer.told.fault.empty(),
           answer.told.fault + (index == 0 ? "" : " (options drawn as number " + std::to_string(index) + ")"));
  });
}

}  // namespace

std::vector<Check> request_checks() {
  return {
      {"requests.same",
       "the same request gets the same plan: in any instance, from any thread, after any other request", same_plans,
       kRequestsLimitS},
      {"requests.refused", "listed world sizes get a plan, others are refused as PLIANT_INCOMPATIBLE_WORLD_SIZE",
       refused_sizes, kRequestsLimitS},
      {"requests.wanted", "a request for a micro-batch gets one, or is refused", wanted_micro_batch, kRequestsLimitS},
      {"requests.text", "WORLD_SIZE is not read beyond its size", world_size_text, kRequestsLimitS},
      {"requests.refusals", "a refusal has a message and names no unknown option", policy_refusals, kRequestsLimitS},
  };
}

}  // namespace pliant::testkit
