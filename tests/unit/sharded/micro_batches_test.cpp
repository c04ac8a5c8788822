// Runtime: passes over several micro-batches at once have the bits of a pass for each, whoever decides and computes,
// and gather once for all of them.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unit/elastic/device_machines.hpp"
#include "unit/sharded/mixed_model.hpp"

namespace pliant::sharded {
namespace {

/// The model whole, the gradients of up to seven micro-batches side by side, and what arrives for them.
constexpr int kRoomy = 196608;

std::vector<TrainedHow> ways() {
  const std::string strict = "[coordinator.zero3]\nstrict = true";
  return {{"eager", ""},
          {"eager", fmt::format("budget = {}", kRoomy)},
          {"zero3", strict},
          {"zero3", strict + "\nparam_persistence_threshold = -1\nmax_reuse_distance = 0\nprefetch_bucket_size = 4000"},
          {"planned", ""},
          {"planned", fmt::format("budget = {}", kRoomy)},
          {"planned", fmt::format("budget = {}\n[coordinator.planned]\nreduce_bucket = 0\nahead = 0", kRoomy)}};
}

TEST_CASE("a pass over several micro-batches has the bits of a pass for each, whoever decides") {
  const Accelerator accelerator = test::open_host();
  std::vector<float> in_tree;
  for (const bool deterministic : {true, false}) {
    for (const int32_t world_size : {1, 2, 3}) {
      const Outcome expected = train_mixed(accelerator, world_size, {"eager", "", deterministic, 1});
      CHECK(expected.norms.front() > 0);
      if (in_tree.empty()) in_tree = expected.weights;
      if (deterministic) CHECK(expected.weights == in_tree);
      for (TrainedHow how : ways()) {
        how.deterministic = deterministic;
        for (const size_t at_once : {size_t{2}, size_t{3}, size_t{7}}) {
          how.at_once = at_once;
          CAPTURE(how.coordinator);
          CAPTURE(how.more);
          CAPTURE(deterministic);
          CAPTURE(world_size);
          CAPTURE(at_once);
          CHECK(train_mixed(accelerator, world_size, how).has_bits_of(expected));
        }
      }
    }
  }
}

TEST_CASE("so it has on devices that the CPU does not reach, where work is late, and in bf16") {
  std::vector<test::Machine> machines = test::machines();
  machines.push_back(
      {"sim, in any order", "use = \"sim\"\n[accelerator.sim]\nreorder = true\nmax_delay_us = 200\nseed = 1\n"});
  const std::string bf16 = "compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\"\n";
  for (const std::string& types : {std::string(), bf16}) {
    for (const int32_t world_size : {1, 2}) {
      const Outcome expected = train_mixed(test::open_host(), world_size, {"eager", types, true, 1});
      for (const test::Machine& machine : machines) {
        const Accelerator accelerator = test::open(machine);
        for (const std::string& budget : {std::string(), fmt::format("budget = {}\n", kRoomy / 4 * 3)}) {
          for (const char* const coordinator : {"eager", "planned"}) {
            CAPTURE(machine.name);
            CAPTURE(types);
            CAPTURE(budget);
            CAPTURE(coordinator);
            CAPTURE(world_size);
            const Outcome made = train_mixed(accelerator, world_size, {coordinator, types + budget, true, 3});
            CHECK(made.weights == expected.weights);
            CHECK(made.norms == expected.norms);
          }
        }
      }
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a step in one pass gathers what a pass for each micro-batch gathers for each of them") {
  const Accelerator accelerator = test::open_host();
  for (const int32_t world_size : {1, 2, 3}) {
    CAPTURE(world_size);
    const auto rounds = static_cast<uint64_t>((kRows / kGranule + world_size - 1) / world_size);
    const uint64_t all = train_mixed(accelerator, world_size, {"eager", "", true, 7}).gathered;
    CHECK(train_mixed(accelerator, world_size, {"eager", "", true, 1}).gathered > all * rounds / 2);
    const std::string budget = fmt::format("budget = {}", kRoomy);
    CHECK(train_mixed(accelerator, world_size, {"planned", budget, true, 7}).gathered <= all);
  }
}

/// The weights of a model of layers that share nothing, and the most bytes that were whole at once.
std::pair<std::vector<float>, uint64_t> train_plain(const Accelerator& accelerator, const std::string& more,
                                                    size_t at_once) {
  std::vector<float> weights;
  uint64_t most = 0;
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager", more), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<RowRange> own;
    begin_step(runtime, 0, 1, own);
    for (size_t first = 0; first < own.size(); first += at_once) {
      const std::span<const RowRange> ranges = std::span(own).subspan(first, std::min(at_once, own.size() - first));
      runtime.begin_pass(ranges);
      runtime.enter(of.policy, Direction::kForward);
      runtime.leave(of.policy, Direction::kForward);
      runtime.enter(of.policy, Direction::kBackward);
      for (size_t i = 0; i < ranges.size(); ++i) {
        runtime.begin_micro_batch(i);
        MixedModel::add(runtime, of.trained, ranges[i], 1, program);
      }
      runtime.leave(of.policy, Direction::kBackward);
      runtime.end_pass();
    }
    runtime.finish_gradient(0.125);
    runtime.allow_update();
    runtime.update([&](const ShardRange& range) {
      const std::vector<float> gradient = read_floats(range.gradient, DType::kF32, range.count, program);
      weights.insert(weights.end(), gradient.begin(), gradient.end());
    });
    most = runtime.memory().gathered_most;
    runtime.leave_group();
  });
  return {weights, most};
}

TEST_CASE("where no module shares a parameter, the micro-batches of a pass share the room of one gradient") {
  for (const std::string& machine : {std::string(), std::string("host_visible = false\n")}) {
    const Accelerator accelerator = test::sim(machine);
    for (const char* const more : {"", "budget = 24064", "budget = 200000"}) {
      CAPTURE(machine);
      CAPTURE(more);
      const auto one = train_plain(accelerator, more, 1);
      const auto seven = train_plain(accelerator, more, 7);
      CHECK(seven.first == one.first);
      CHECK(seven.second == one.second);
    }
  }
}

TEST_CASE("a sum of -0 alone is -0 in a pass over several micro-batches: who has no rows adds nothing") {
  const Accelerator accelerator = test::open_host();
  for (const bool deterministic : {true, false}) {
    for (const int32_t world_size : {1, 2, 4}) {
      CAPTURE(deterministic);
      CAPTURE(world_size);
      std::vector<uint64_t> negative(static_cast<size_t>(world_size));
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of("eager", "", deterministic), accelerator, 0, program, stream, {});
        const Networks of(runtime, false);
        runtime.enter_group(group);
        runtime.initialise();
        const Assignment dealt =
            share_out(5, {.world_size = world_size, .granule = 1, .deterministic = deterministic, .in_turn = true});
        runtime.begin_step(5, 1, dealt, true);
        std::vector<RowRange> own(dealt.of(rank).begin(), dealt.of(rank).end());
        own.resize(runtime.rounds());
        runtime.begin_pass(own);
        runtime.enter(of.policy, Direction::kForward);
        runtime.leave(of.policy, Direction::kForward);
        runtime.enter(of.policy, Direction::kBackward);
        for (size_t i = 0; i < own.size(); ++i) {
          runtime.begin_micro_batch(i);
          if (own[i].count > 0) std::fill_n(static_cast<float*>(runtime.gradient(of.trained)), kElements, -0.0F);
        }
        runtime.leave(of.policy, Direction::kBackward);
        runtime.end_pass();
        CHECK(runtime.finish_gradient(0.125).finite);
        runtime.allow_update();
        runtime.update([&](const ShardRange& range) {
          for (uint64_t k = 0; k < range.count; ++k) {
            if (std::bit_cast<uint32_t>(range.gradient[k]) == 0x80000000U) ++negative[static_cast<size_t>(rank)];
          }
        });
        runtime.leave_group();
      });
      uint64_t all = 0;
      for (const uint64_t one : negative) all += one;
      CHECK(all == kElements);
    }
  }
}

TEST_CASE("of the micro-batches of a pass it is known which has a gradient that is not finite") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("planned"), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<RowRange> own;
    begin_step(runtime, rank, 2, own);
    runtime.begin_pass(own);
    runtime.enter(of.policy, Direction::kForward);
    runtime.leave(of.policy, Direction::kForward);
    runtime.enter(of.policy, Direction::kBackward);
    for (size_t i = 0; i < own.size(); ++i) {
      runtime.begin_micro_batch(i);
      if (rank == 1 && i == 1) static_cast<float*>(runtime.gradient(of.trained))[9] = std::nanf("");
    }
    runtime.leave(of.policy, Direction::kBackward);
    runtime.end_pass();
    for (size_t i = 0; i < own.size(); ++i) CHECK(runtime.is_finite(i) == !(rank == 1 && i == 1));
    CHECK_FALSE(runtime.finish_gradient(1).finite);
    runtime.leave_group();
  });
}

}  // namespace
}  // namespace pliant::sharded
