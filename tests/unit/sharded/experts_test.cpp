// Runtime: passes that leave most modules out, within a budget that has room for the others only.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <vector>

#include "unit/accelerator/wrapper.hpp"
#include "unit/sharded/networks.hpp"

namespace pliant::sharded {
namespace {

/// Experts of which each pass visits two.
struct Experts {
  static constexpr int64_t kElementsOfOne = 3000;
  std::vector<uint32_t> parameters;
  std::vector<uint32_t> modules;
  uint32_t root;
  explicit Experts(Runtime& runtime, int count) : root(add_module(runtime, "model", std::nullopt, {})) {
    for (int i = 0; i < count; ++i) {
      parameters.push_back(add_parameter(runtime, fmt::format("expert.{}.weights", i), kElementsOfOne));
      modules.push_back(add_module(runtime, fmt::format("expert.{}", i).c_str(), root, {parameters.back()}));
    }
    runtime.close_model();
  }
  void pass(Runtime& runtime, RowRange rows, size_t first) const {
    runtime.begin_pass(rows);
    runtime.enter(root, Direction::kForward);
    for (const size_t i : {first, first + 1}) {
      runtime.enter(modules[i], Direction::kForward);
      runtime.leave(modules[i], Direction::kForward);
    }
    runtime.leave(root, Direction::kForward);
    runtime.enter(root, Direction::kBackward);
    for (const size_t i : {first + 1, first}) {
      runtime.enter(modules[i], Direction::kBackward);
      if (rows.count > 0) {
        auto* const gradient = static_cast<float*>(runtime.gradient(parameters[i]));
        for (int64_t k = 0; k < kElementsOfOne; ++k) gradient[k] += gradient_of(rows, static_cast<uint64_t>(k));
      }
      runtime.leave(modules[i], Direction::kBackward);
    }
    runtime.leave(root, Direction::kBackward);
    runtime.end_pass();
  }
};

/// Squared norms of the gradients of two steps.
std::vector<double> norms(const char* coordinator, const std::string& more) {
  std::vector<double> made;
  const Accelerator accelerator = test::host();
  test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of(coordinator, more), accelerator, 0, program, stream, {});
    const Experts experts(runtime, 12);
    runtime.enter_group(group);
    runtime.initialise();
    for (size_t step = 0; step < 3; ++step) {
      std::vector<RowRange> own;
      begin_step(runtime, rank, 2, own);
      for (size_t i = 0; i < own.size(); ++i) experts.pass(runtime, own[i], 2 * (step % 2));
      const GradientFacts facts = runtime.finish_gradient(1);
      if (rank == 0) made.push_back(facts.squared_norm);
    }
    CHECK(runtime.memory().gathered == 0);
    runtime.leave_group();
  });
  return made;
}

/// The most bytes of one pass over experts of which it visits two, without a budget.
uint64_t most_gathered(int count, uint64_t elements) {
  uint64_t most = 0;
  const Accelerator accelerator = test::host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager", ""), accelerator, 0, program, stream, {});
    const uint32_t root = add_module(runtime, "model", std::nullopt, {});
    for (int i = 0; i < count; ++i) {
      const uint32_t parameter =
          add_parameter(runtime, fmt::format("expert.{}.weights", i), static_cast<int64_t>(elements));
      add_module(runtime, fmt::format("expert.{}", i).c_str(), root, {parameter});
    }
    runtime.close_model();
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<RowRange> own;
    begin_step(runtime, 0, 1, own);
    for (const RowRange rows : own) {
      runtime.begin_pass(rows);
      for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
        runtime.enter(root, direction);
        runtime.leave(root, direction);
      }
      runtime.end_pass();
    }
    runtime.finish_gradient(1);
    most = runtime.memory().gathered_most;
    runtime.leave_group();
  });
  return most;
}

}  // namespace

TEST_CASE("gradients of what no visited module uses are never there all at once, also without a budget") {
  constexpr uint64_t kElementsOfEach = kRestElements / 2;
  const uint64_t most = most_gathered(8, kElementsOfEach);
  CHECK(most > 0);
  CHECK(most <= 3 * kElementsOfEach * sizeof(float));  // of eight
}

TEST_CASE("what no visited module uses is reduced a part at a time where a budget has no room for all of it") {
  const std::vector<double> all = norms("eager", "");
  REQUIRE(all.size() == 3);
  CHECK(all.front() > 0);
  for (const char* const coordinator : {"eager", "planned"}) {
    CAPTURE(coordinator);
    CHECK(norms(coordinator, "budget = 50000") == all);  // four of twelve, with gradients
  }
}

}  // namespace pliant::sharded
