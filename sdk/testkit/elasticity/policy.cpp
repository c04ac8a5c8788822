// Asks a policy and keeps what it answered.
#include "testkit/elasticity/policy.hpp"

#include <set>

namespace pliant::testkit {

bool Planned::has_numbers() const {
  return ok() && sdk::plan_number_fault(plan, world_size).empty() && sdk::granule_fault(plan).empty();
}

bool Planned::has_sizes() const {
  return has_numbers() && not_taken.empty() && sdk::world_size_fault(plan, sizes).empty();
}

std::string Planned::difference(const Planned& other) const {
  if (told.status != other.told.status) return told.text() + "; then " + other.told.text();
  if (!ok()) return {};
  const auto numbers = [](const pliant_plan& one) {
    return std::array<int64_t, 6>{one.global_batch,        one.micro_batch,      one.granule,
                                  one.model_parallel_size, one.devices_per_node, one.min_resize_interval_s};
  };
  constexpr std::array<const char*, 6> kNames{"global_batch",        "micro_batch",      "granule",
                                              "model_parallel_size", "devices_per_node", "min_resize_interval_s"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    const int64_t first = numbers(plan)[i];
    const int64_t second = numbers(other.plan)[i];
    if (first != second)
      return std::string(kNames[i]) + " " + std::to_string(first) + "; then " + std::to_string(second);
  }
  const bool alike = std::equal(sizes.begin(), sizes.end(), other.sizes.begin(), other.sizes.end(),
                                [](const sdk::WorldRange& a, const sdk::WorldRange& b) {
                                  return a.first == b.first && a.last == b.last && a.step == b.step;
                                });
  return alike ? "" : "other world sizes";
}

Planned Policy::plan(const PlanAsked& asked, unsigned char garbage) {
  Room<pliant_plan_request> request(0);
  request.given.flags = asked.want_micro_batch ? uint32_t{PLIANT_PLAN_WANT_MICRO_BATCH} : 0;
  request.given.world_size = asked.world_size;
  if (asked.text) request.given.world_size_text = {asked.text->data(), asked.text->size()};
  Room<pliant_plan> plan(garbage);
  sdk::WorldSizes sizes;
  Planned made;
  made.world_size = asked.world_size;
  made.told =
      ask([&](pliant_error* error) { return table().plan(self(), &request.given, &plan.given, sizes.sink(), error); });
  made.plan = plan.given;
  made.spilled = plan.spilled("plan");
  made.not_taken = sizes.fault();
  made.sizes = sizes.take_ranges();
  return made;
}

std::vector<int64_t> sizes_to_ask(Policy& policy, Draws& draws) {
  std::set<int64_t> made{0, 1, 2, 3};
  for (int i = 0; i < 3; ++i) made.insert(draws.between(1, int64_t{1} << draws.below(14)));
  const Planned all = policy.plan(0);
  if (all.has_sizes() && !all.sizes.empty()) {
    for (int i = 0; i < 4; ++i) {
      const sdk::WorldRange& range = all.sizes[draws.below(all.sizes.size())];
      const int64_t listed = range.first + draws.between(0, (range.last - range.first) / range.step) * range.step;
      for (const int64_t size : {listed, listed + 1, std::max<int64_t>(listed - 1, 1)}) made.insert(size);
    }
    const int64_t last = all.sizes.back().last;
    for (const int64_t size : {all.sizes.front().first, last, last < INT64_MAX ? last + 1 : last}) made.insert(size);
  }
  return {made.begin(), made.end()};
}

}  // namespace pliant::testkit
