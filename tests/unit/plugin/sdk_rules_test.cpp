// The rules of the kinds that hosts and the conformance kit share, apart from any plugin.
#include <doctest/doctest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "pliant/sdk/balancer_rules.hpp"
#include "pliant/sdk/elasticity_rules.hpp"
#include "pliant/sdk/lr_rules.hpp"
#include "pliant/sdk/rendezvous_rules.hpp"
#include "pliant/sdk/sampler_rules.hpp"

namespace sdk = pliant::sdk;

namespace {

bool says(const std::string& fault, const std::string& words) {
  return fault.find(words) != std::string::npos;
}

pliant_generation generation() {
  pliant_generation made{};
  made.struct_size = sizeof(made);
  made.generation = 3;
  made.group_rank = 1;
  made.node_count = 2;
  made.first_rank = 4;
  made.world_size = 6;
  made.master_port = 29500;
  std::strcpy(made.master_addr, "10.0.0.1");
  return made;
}

}  // namespace

TEST_CASE("rules: each number of a generation is held against the others") {
  CHECK(sdk::generation_fault(generation(), 2, 2) == "");
  CHECK(says(sdk::generation_fault(generation(), 3, 2), "the generation did not increase: 3 after 3"));
  CHECK(says(sdk::generation_fault(generation(), 2, 3), "this node's workers do not fit"));
  pliant_generation wrong = generation();
  wrong.group_rank = 2;
  CHECK(says(sdk::generation_fault(wrong, 2, 2), "the group rank is outside the nodes: 2 of 2"));
  wrong = generation();
  wrong.node_count = 1;
  wrong.group_rank = 0;
  CHECK(says(sdk::generation_fault(wrong, 2, 2), "the only node has 2 workers, but the world size is 6"));
  wrong = generation();
  wrong.master_port = 65536;
  CHECK(says(sdk::generation_fault(wrong, 2, 2), "the master port is outside 1..65535: 65536"));
  wrong = generation();
  std::memset(wrong.master_addr, 'a', sizeof(wrong.master_addr));
  CHECK(says(sdk::generation_fault(wrong, 2, 2), "the master address is empty or not terminated"));
}

TEST_CASE("rules: a rule that refuses optimizers gives its reason") {
  pliant_lr_facts facts{};
  CHECK(sdk::facts_fault(facts) == "it is valid for no optimizer");
  facts.optimizers = sdk::optimizers(sdk::Optimizer::kSgd);
  CHECK(sdk::facts_fault(facts) == "it refuses optimizers and gives no reason");
  facts.reason = "it is for plain gradients";
  CHECK(sdk::facts_fault(facts) == "");
  facts.reason = nullptr;
  facts.optimizers = ~uint32_t{0};  // a later host knows more families
  CHECK(sdk::facts_fault(facts) == "");
}

TEST_CASE("rules: a factor that takes a beta below 0 is named with the step") {
  pliant_lr_input input{};
  input.step = 7;
  input.batch = 64;
  input.base_batch = 2.5;
  input.base_lr = 0.1;
  input.base_beta1 = 0.9;
  input.base_beta2 = std::numeric_limits<double>::quiet_NaN();
  pliant_lr_output answer{sizeof(pliant_lr_output), 0, 0.1, 0.1, 1, 10, 1000, 1, 1, 1, 1, 1, 64};
  CHECK(sdk::scaling_fault(input, answer) == "");
  answer.one_minus_beta1 = 10.5;
  CHECK(sdk::scaling_fault(input, answer) ==
        "one_minus_beta1 is 10.5 at step 7, for a batch of 64 over 2.5 and base_lr 0.1");
}

TEST_CASE("rules: world sizes come in as many calls as a policy likes, and a step of 0 is 1") {
  sdk::WorldSizes sizes;
  const pliant_world_range ranges[] = {{1, 3, 0}, {5, 9, 2}};
  CHECK(sizes.sink()->append(sizes.sink()->context, ranges, 1) == PLIANT_OK);
  CHECK(sizes.sink()->append(sizes.sink()->context, ranges + 1, 1) == PLIANT_OK);
  CHECK(sizes.ranges().size() == 2);
  CHECK(sdk::has_world_size(sizes.ranges(), 2));
  CHECK(sdk::has_world_size(sizes.ranges(), 7));
  CHECK_FALSE(sdk::has_world_size(sizes.ranges(), 8));
  CHECK_FALSE(sdk::has_world_size(sizes.ranges(), 10));
  CHECK(sizes.fault() == "");
  CHECK(sizes.sink()->append(sizes.sink()->context, nullptr, 1) == PLIANT_INVALID_ARGUMENT);
  CHECK(sizes.fault() == "gave the host a null list of world sizes");
}

TEST_CASE("rules: of chosen sequences these are used, each once, and no other") {
  const std::vector<int32_t> lengths{5, 6, 7, 8};
  const auto fault_of = [&](const std::vector<int64_t>& used) {
    sdk::EpochRules rules(lengths, 1, sdk::EpochCounts{2, 2, 2, 0, 0});
    rules.ask_only(std::vector<int64_t>{3, 1});
    for (const int64_t id : used) {
      if (!rules.row(1) || !rules.entry(id, 0, lengths[static_cast<size_t>(id)])) return rules.fault();
    }
    return rules.end() ? std::string() : rules.fault();
  };
  CHECK(fault_of({1, 3}) == "");
  CHECK(fault_of({1, 2}) == "sequence 2 in a row was not asked for");
  CHECK(fault_of({1, 1}) == "sequence 1 is used or dropped twice");
  CHECK(fault_of({1}) == "the rows hold 1 sequences, 2 were announced");
}

TEST_CASE("rules: a flag that is not known is named") {
  CHECK(sdk::balance_flags_fault(PLIANT_BALANCE_COSTLIEST_FIRST) == "");
  CHECK(sdk::balance_flags_fault(6) == "set flags 0x6; known here: 0x1");
}
