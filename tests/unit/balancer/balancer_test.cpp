// Balancer: what it asks its plugin, what it refuses to believe, and the assignments that come out.
#include "pliant/balancer.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "pliant/error.hpp"

namespace pliant {
namespace {

Balancer balancer(const std::string& section) {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR, LYING_PLUGIN_DIR};
  overrides.read_environment = false;
  return Balancer(Config::parse("config_version = 1\n" + section, {"balancer"}, overrides));
}

Balancer named(const std::string& use) {
  return balancer("[balancer]\nuse = \"" + use + "\"\n");
}

template <class Call>
Error error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {Status::kOk, "nothing was thrown"};
}

std::vector<RowRange> in_batch_order(const Assignment& assignment) {
  std::vector<RowRange> blocks = assignment.blocks;
  std::sort(blocks.begin(), blocks.end(), [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
  return blocks;
}

TEST_CASE("without a section rows are shared out in runs, and costs count tokens") {
  const Balancer plain = balancer("");
  CHECK(plain.name() == "contiguous");
  CHECK(plain.rates() == CostRates{1, 0});
  const Assignment made = plain.assign(std::vector<int64_t>(11, 5), {.world_size = 3, .micro_batch = 2, .granule = 1});
  CHECK(made.world_size() == 3);
  const std::span<const RowRange> first = made.of(0);
  CHECK(std::vector<RowRange>(first.begin(), first.end()) == std::vector<RowRange>{{0, 2}, {2, 2}});
  const std::span<const RowRange> last = made.of(2);
  CHECK(std::vector<RowRange>(last.begin(), last.end()) == std::vector<RowRange>{{8, 2}, {10, 1}});
}

TEST_CASE("contiguous gives every rank what share_of gives it, whatever rows cost") {
  const Balancer contiguous = named("contiguous");
  const bool held = rc::check([&] {
    const auto granule = *rc::gen::inRange<int64_t>(1, 4);
    const Sharing how{.world_size = *rc::gen::inRange<int64_t>(1, 20),
                      .micro_batch = granule * *rc::gen::inRange<int64_t>(1, 4),
                      .granule = granule,
                      .deterministic = *rc::gen::arbitrary<bool>()};
    const auto costs = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 1000));
    const Assignment made = contiguous.assign(costs, how);
    RC_ASSERT(made == share_out(static_cast<int64_t>(costs.size()), how));
    for (int64_t rank = 0; rank < how.world_size; ++rank) {
      const RowRange share = share_of(static_cast<int64_t>(costs.size()), granule, how.world_size, rank);
      const auto expected = micro_batches(share, how.deterministic ? granule : how.micro_batch);
      const auto own = made.of(rank);
      RC_ASSERT(std::vector<RowRange>(own.begin(), own.end()) == expected);
    }
  });
  CHECK(held);
}

TEST_CASE("every balancer moves whole blocks and loses none") {
  for (const char* use : {"contiguous", "round_robin", "cost_sort", "lpt", "karmarkar_karp"}) {
    CAPTURE(use);
    const Balancer one = named(use);
    const bool held = rc::check([&] {
      const Sharing how{.world_size = *rc::gen::inRange<int64_t>(1, 12),
                        .micro_batch = *rc::gen::inRange<int64_t>(1, 4),
                        .granule = 1,
                        .deterministic = *rc::gen::arbitrary<bool>()};
      const auto costs = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, INT64_MAX));
      const Assignment made = one.assign(costs, how);
      RC_ASSERT(made.world_size() == how.world_size);
      RC_ASSERT(in_batch_order(made) == share_out(static_cast<int64_t>(costs.size()), how).blocks);
      RC_ASSERT(one.assign(costs, how) == made);
      for (int64_t rank = 0; how.deterministic && rank < how.world_size; ++rank) {
        const auto own = made.of(rank);
        RC_ASSERT(std::is_sorted(own.begin(), own.end(),
                                 [](const RowRange& a, const RowRange& b) { return a.first < b.first; }));
      }
    });
    CHECK(held);
  }
}

TEST_CASE("the costliest block comes first where the balancer asks for it, in deterministic mode the first one") {
  const std::vector<int64_t> costs{1, 8, 2, 7};
  const Balancer lpt = named("lpt");
  const auto own = [](const Assignment& made, int64_t rank) {
    std::vector<int64_t> rows;
    for (const RowRange& block : made.of(rank)) rows.push_back(block.first);
    return rows;
  };
  CHECK(own(lpt.assign(costs, {.world_size = 2}), 0) == std::vector<int64_t>{1, 0});
  CHECK(own(lpt.assign(costs, {.world_size = 2}), 1) == std::vector<int64_t>{3, 2});
  CHECK(own(lpt.assign(costs, {.world_size = 2, .deterministic = true}), 0) == std::vector<int64_t>{0, 1});
}

TEST_CASE("equal_counts = false lets one rank have the one block that is worth all others") {
  const std::vector<int64_t> costs{10, 1, 1, 1, 1, 1};
  for (const std::string use : {"lpt", "karmarkar_karp"}) {
    CAPTURE(use);
    const Balancer free = balancer("[balancer]\nuse = \"" + use + "\"\n[balancer." + use + "]\nequal_counts = false\n");
    const Waiting waits = free.predict(costs, {.world_size = 2});
    CHECK(waits.per_step == 20.0);
    CHECK(named(use).predict(costs, {.world_size = 2}).per_step == 24.0);
  }
}

TEST_CASE("with equal counts karmarkar_karp is never behind lpt") {
  const Balancer lpt = named("lpt");
  const Balancer differencing = named("karmarkar_karp");
  const bool held = rc::check([&] {
    const auto costs = *rc::gen::container<std::vector<int64_t>>(
        rc::gen::oneOf(rc::gen::inRange<int64_t>(0, 100), rc::gen::inRange<int64_t>(0, 100000)));
    const Sharing how{.world_size = *rc::gen::inRange<int64_t>(1, 12)};
    RC_ASSERT(differencing.predict(costs, how).per_step <= lpt.predict(costs, how).per_step);
  });
  CHECK(held);
}

TEST_CASE("an impossible answer is named with its balancer and is a fault of the plugin") {
  const auto refused = [](const std::string& how) {
    const Balancer lying = balancer("[balancer]\nuse = \"lying\"\n[balancer.lying]\nhow = \"" + how + "\"\n");
    const Error error = error_of([&] { (void)lying.assign(std::vector<int64_t>(5, 1), {.world_size = 2}); });
    CHECK(error.origin() == Origin::kPlugin);
    CHECK(error.message().find("balancer 'lying'") == 0);
    return error.message();
  };
  CHECK(refused("few").find("gave ranks to 4 blocks instead of 5") != std::string::npos);
  CHECK(refused("many").find("gave ranks to 6 blocks instead of 5") != std::string::npos);
  CHECK(refused("too_high").find("assigned block 4 of 5 to rank 2; ranks are 0 to 1") != std::string::npos);
  CHECK(refused("negative").find("assigned block 0 of 5 to rank -7") != std::string::npos);
  CHECK(refused("silent").find("assigned block 4 of 5 to no rank") != std::string::npos);
  CHECK(refused("throws").find("the lying balancer threw") != std::string::npos);
  const Balancer flags = named("flags");
  const Error error = error_of([&] { (void)flags.assign(std::vector<int64_t>(5, 1), {.world_size = 2}); });
  CHECK(error.origin() == Origin::kPlugin);
  CHECK(error.message().find("set flags 0x6") != std::string::npos);
}

TEST_CASE("no ranks, a negative cost and a micro-batch of nothing are refused") {
  const Balancer lpt = named("lpt");
  const auto status = [&](const std::vector<int64_t>& costs, const Sharing& how) {
    return error_of([&] { (void)lpt.assign(costs, how); }).status();
  };
  CHECK(status({1, 2}, {.world_size = 0}) == Status::kInvalidArgument);
  CHECK(status({1, 2}, {.world_size = -1}) == Status::kInvalidArgument);
  CHECK(status({1, 2}, {.world_size = int64_t{1} << 40}) == Status::kInvalidArgument);
  CHECK(status({1, -2}, {.world_size = 2}) == Status::kInvalidArgument);
  CHECK(status({1, 2}, {.world_size = 2, .micro_batch = 0}) == Status::kInvalidArgument);
  CHECK(status({1, 2}, {.world_size = 2, .granule = 0}) == Status::kInvalidArgument);
  CHECK(status({}, {.world_size = 2}) == Status::kOk);
}

TEST_CASE("options that are no numbers, out of range or useless are refused with their place") {
  const auto refusal = [](const std::string& keys) {
    return error_of([&] { (void)balancer("[balancer]\n" + keys); }).message();
  };
  CHECK(refusal("cost_per_token = nan\n").find("pliant.toml:3:") == 0);
  CHECK(refusal("cost_per_token = -1\n").find("cost_per_token") != std::string::npos);
  CHECK(refusal("cost_per_square = 1.5\n").find("cost_per_square") != std::string::npos);
  CHECK(refusal("cost_per_square = 1099511627777\n").find("cost_per_square") != std::string::npos);
  CHECK(refusal("fit = 1\n").find("fit") != std::string::npos);
  CHECK(refusal("cost_per_token = 0\n").find("both 0") != std::string::npos);
  CHECK(refusal("use = \"cost_sort\"\n[balancer.cost_sort]\nwindow = -1\n").find("window") != std::string::npos);
  CHECK(refusal("use = \"lpt\"\n[balancer.lpt]\nequal_counts = 1\n").find("equal_counts") != std::string::npos);
  CHECK(refusal("cost_per_token = 0\ncost_per_square = 1\n") == "nothing was thrown");
}

}  // namespace
}  // namespace pliant
