// Blocks and costs of all sorts, and every answer against the rules of pliant/sdk/balancer_rules.hpp.
#include "pliant/sdk/balancer_rules.hpp"
#include "testkit/balancer/checks.hpp"
#include "testkit/instance.hpp"

namespace pliant::testkit {

namespace {

constexpr uint64_t kBalances = 200;

struct Blocks {
  int64_t world_size = 1;
  std::vector<int64_t> costs;
  [[nodiscard]] std::string text() const {
    return std::to_string(costs.size()) + " blocks and " + std::to_string(world_size) + " ranks";
  }
};

struct Balanced {
  Reply told;
  uint32_t flags = 0;
  std::vector<int32_t> ranks;
  std::string spilled;
  [[nodiscard]] bool same_as(const Balanced& other) const {
    return told.status == other.told.status && (!told.ok() || (flags == other.flags && ranks == other.ranks));
  }
};

class Balancer : public Instance<pliant_balancer> {
 public:
  using Instance::Instance;

  [[nodiscard]] Balanced balance(const Blocks& blocks) {
    Row<int64_t> costs(blocks.costs.size(), -1);
    std::copy(blocks.costs.begin(), blocks.costs.end(), costs.data());
    Row<int32_t> ranks(blocks.costs.size(), -1);
    Room<pliant_balance_request> request;
    request.given.world_size = blocks.world_size;
    request.given.block_count = blocks.costs.size();
    request.given.costs = costs.data();
    Room<pliant_balance> answer;
    answer.given.ranks = ranks.data();
    Balanced made;
    made.told = ask([&](pliant_error* error) { return table().balance(self(), &request.given, &answer.given, error); });
    made.flags = answer.given.flags;
    made.spilled = answer.spilled("balance");
    if (answer.given.ranks != ranks.data()) made.spilled = "balance changed the pointer to the array of ranks";
    if (ranks.is_spilled()) made.spilled = "balance wrote past the ranks of " + blocks.text();
    made.ranks = ranks.taken();
    return made;
  }
};

/// Number 0 has no blocks, others fewer blocks than ranks, costs that are alike, 0, or add up to INT64_MAX.
Blocks drawn_blocks(uint64_t seed, uint64_t index) {
  Draws draws(seed, (index << 20U) + 3);
  Blocks made;
  made.world_size = draws.between(1, draws.one_in(8) ? 200 : 12);
  made.costs.resize(index == 0 ? 0 : draws.below(draws.one_in(4) ? 5 : 80));
  const uint64_t sort = draws.below(5);
  for (int64_t& cost : made.costs) {
    if (sort == 0) cost = 7;
    if (sort == 1) cost = draws.between(1, 4096);
    if (sort == 2) cost = static_cast<int64_t>(draws.below(3));
    if (sort == 3) cost = draws.between(0, int64_t{1} << 50);
  }
  if (sort == 4 && !made.costs.empty()) made.costs[draws.below(made.costs.size())] = INT64_MAX;
  return made;
}

/// Does `look(balancer, index)` under the default options and under drawn ones.
template <class Look>
void for_each_balancer(const Subject& subject, const Look& look) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < 12; ++index) {
    Balancer balancer(plugin, subject, index);
    if (balancer.is_made()) look(balancer, index);
  }
}

/// Does `look(blocks, answer)` for many requests.
template <class Look>
void for_each_balance(const Subject& subject, const Look& look) {
  for_each_balancer(subject, [&](Balancer& balancer, uint64_t) {
    for (uint64_t index = 0; index < kBalances; ++index) {
      const Blocks blocks = drawn_blocks(subject.seed, index);
      look(blocks, balancer.balance(blocks));
    }
  });
}

void any_blocks(const Subject& subject) {
  for_each_balance(subject, [](const Blocks& blocks, const Balanced& answer) {
    expect(answer.told.ok(), blocks.text() + " were refused: " + answer.told.text());
  });
}

void every_rank(const Subject& subject) {
  for_each_balance(subject, [](const Blocks& blocks, const Balanced& answer) {
    if (!answer.told.ok()) return;
    const std::string fault = sdk::ranks_fault(answer.ranks, blocks.world_size);
    expect(fault.empty(), "of " + blocks.text() + " it " + fault);
  });
}

void known_flags(const Subject& subject) {
  for_each_balance(subject, [](const Blocks& blocks, const Balanced& answer) {
    if (!answer.told.ok()) return;
    const std::string fault = sdk::balance_flags_fault(answer.flags);
    expect(fault.empty(), "for " + blocks.text() + " it " + fault);
  });
}

void room_for_ranks(const Subject& subject) {
  for_each_balance(subject,
                   [](const Blocks&, const Balanced& answer) { expect(answer.spilled.empty(), answer.spilled); });
}

/// Ranks ask for themselves: each in a process of its own, after what it was asked before.
void same_ranks(const Subject& subject) {
  for_each_balancer(subject, [&](Balancer& balancer, uint64_t options) {
    Balancer other(balancer.plugin(), subject, options);
    std::vector<Balanced> first;
    for (uint64_t index = 0; index < kBalances; ++index) {
      first.push_back(balancer.balance(drawn_blocks(subject.seed, index)));
    }
    for (uint64_t index = kBalances; index-- > 0;) {
      const Blocks blocks = drawn_blocks(subject.seed, index);
      const auto held = [&](const Balanced& again, const char* when) {
        expect(first[index].same_as(again), blocks.text() + " got other ranks " + when);
      };
      held(balancer.balance(blocks), "after other requests");
      held(other.balance(blocks), "from another instance");
      on_another_thread([&] { held(balancer.balance(blocks), "from another thread"); });
    }
  });
}

void balancer_refusals(const Subject& subject) {
  for_each_balance(subject,
                   [](const Blocks&, const Balanced& answer) { expect(answer.told.fault.empty(), answer.told.fault); });
}

}  // namespace

std::vector<Check> balance_checks() {
  return {
      {"balance.answered",
       "every list of blocks gets ranks: an empty one, one shorter than the ranks, blocks of any cost", any_blocks},
      {"balance.ranks", "every block goes to an existing rank", every_rank},
      {"balance.flags", "only known flags are set", known_flags},
      {"balance.room", "balance writes ranks and flags, and nothing else", room_for_ranks},
      {"balance.same",
       "the same request gets the same ranks: in any instance, from any thread, after any other request", same_ranks,
       60},
      {"balance.refusals", "a refusal has a message and names no unknown option", balancer_refusals},
  };
}

}  // namespace pliant::testkit
