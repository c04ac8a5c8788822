// Runtime: a whole gradient never exists on a rank, and how much of one does is known before a job begins, whatever the
// clock says.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sharded/arena_books.hpp"
#include "sharded/rehearsal.hpp"
#include "thorough.hpp"
#include "unit/accelerator/wrapper.hpp"
#include "unit/sharded/networks.hpp"

namespace pliant::sharded {
namespace {

/// Layers of a matrix and a vector each, under a root without weights.
struct Stack {
  std::vector<uint32_t> modules;
  uint32_t root;
  uint64_t whole = 0;  ///< bytes of all gradients, each a piece of memory

  Stack(Runtime& runtime, int layers, DType reduce) {
    root = add_module(runtime, "model", std::nullopt, {});
    for (int i = 0; i < layers; ++i) {
      const std::string name = fmt::format("layer.{}", i);
      std::vector<uint32_t> own;
      for (const int64_t elements : {1600, 80}) {
        own.push_back(add_parameter(runtime, fmt::format("{}.{}", name, elements), elements));
        whole += WholeMemory::taken_by(static_cast<uint64_t>(elements) * bytes_of(reduce));
      }
      modules.push_back(add_module(runtime, name.c_str(), root, own));
    }
    runtime.close_model();
  }

  void pass(Runtime& runtime, std::span<const RowRange> ranges) const {
    runtime.begin_pass(ranges);
    runtime.enter(root, Direction::kForward);
    for (const uint32_t module : modules) {
      runtime.enter(module, Direction::kForward);
      runtime.leave(module, Direction::kForward);
    }
    runtime.leave(root, Direction::kForward);
    runtime.enter(root, Direction::kBackward);
    for (size_t i = modules.size(); i-- > 0;) {
      runtime.enter(modules[i], Direction::kBackward);
      for (size_t number = 0; number < ranges.size(); ++number) {
        runtime.begin_micro_batch(number);
        for (const uint32_t parameter : runtime.model.modules()[modules[i]].used) {
          if (ranges[number].count > 0) runtime.gradient(parameter);
        }
      }
      runtime.leave(modules[i], Direction::kBackward);
    }
    runtime.leave(root, Direction::kBackward);
    runtime.end_pass();
  }
};

struct Way {
  std::string coordinator;
  std::string more;  ///< of [coordinator]
  int layers = 12;
  bool in_one_pass = false;  ///< all micro-batches of a step
  DType reduce = DType::kF32;
};

struct Took {
  uint64_t gradients = 0;  ///< bytes of whole ones at once, at most, on any rank
  uint64_t whole = 0;      ///< bytes of all of them
  uint64_t most = 0;       ///< bytes of all that was whole at once
  uint64_t predicted = 0;
};

constexpr int kSteps = 3;
/// Of a step: as many micro-batches on each of one, two or three ranks, as on paper.
constexpr int64_t kEvenRows = 12;

Took train(const Accelerator& accelerator, int32_t world_size, const Way& way) {
  const bool is_bf16 = way.reduce == DType::kBF16;
  const Config config = config_of(way.coordinator, (is_bf16 ? "reduce_dtype = \"bf16\"\n" : "") + way.more);
  std::vector<Took> of_ranks(static_cast<size_t>(world_size));
  test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config, accelerator, 0, program, stream, {});
    const Stack stack(runtime, way.layers, way.reduce);
    runtime.enter_group(group);
    runtime.initialise();
    int64_t passes = 1;
    size_t at_once = 1;
    for (int step = 0; step < kSteps; ++step) {
      const Assignment dealt = share_out(kEvenRows, {.world_size = world_size,
                                                     .micro_batch = kGranule,
                                                     .granule = kGranule,
                                                     .deterministic = true,
                                                     .in_turn = true});
      runtime.begin_step(kEvenRows, kGranule, dealt, true);
      const std::span<const RowRange> own = dealt.of(rank);
      at_once = way.in_one_pass ? own.size() : 1;
      for (size_t first = 0; first < own.size(); first += at_once) {
        stack.pass(runtime, own.subspan(first, at_once));
      }
      passes = static_cast<int64_t>(own.size() / at_once);
      runtime.finish_gradient(1);
    }
    const ShardedMemory memory = runtime.memory();
    CHECK(memory.gathered == 0);
    Took& took = of_ranks[static_cast<size_t>(rank)];
    took = {runtime.most_gradients(), stack.whole, memory.gathered_most, 0};
    if (rank == 0) {
      ArenaBooks books(runtime.model, world_size,
                       {DType::kF32, way.reduce, true, !accelerator.properties(0).host_visible},
                       static_cast<uint64_t>(config.coordinator().budget.value_or(0)), at_once);
      simulate(
          config, runtime.model, world_size, {kSteps, passes, at_once}, [](int) {},
          [&books](const RehearsedCall& call) { books.hear(call); });
      took.predicted = books.take_most();
    }
    runtime.leave_group();
  });
  Took all = of_ranks.front();
  for (const Took& one : of_ranks) {
    all.gradients = std::max(all.gradients, one.gradients);
    all.most = std::max(all.most, one.most);
  }
  return all;
}

/// Any piece of work may be late, so that a rank is far ahead of what it has sent.
Accelerator late(int seed) {
  return test::sim(fmt::format("max_delay_us = 100\nseed = {}\n", seed));
}

const std::string kNothingStays =
    "[coordinator.zero3]\nparam_persistence_threshold = -1\nmax_reuse_distance = 0\nprefetch_bucket_size = 4000\n";

const std::vector<Way> kUnbounded{{"eager", ""},
                                  {"zero3", ""},
                                  {"zero3", kNothingStays},
                                  {"planned", ""},
                                  {"planned", "[coordinator.planned]\nahead = 0\n"}};

TEST_CASE("a whole gradient never exists on a rank, whoever decides and however late the exchange is") {
  std::vector<Way> ways = kUnbounded;
  ways.push_back({"eager", "budget = 200000"});
  ways.push_back({"zero3", "budget = 300000"});
  for (const char* const budget : {"budget = 40000", "budget = 80000", "budget = 400000"})
    ways.push_back({"planned", budget});
  const auto check = [](const Accelerator& accelerator, int32_t world_size, const Way& way) {
    CAPTURE(way.coordinator);
    CAPTURE(way.more);
    CAPTURE(world_size);
    const Took took = train(accelerator, world_size, way);
    CHECK(took.gradients > 0);
    CHECK(took.gradients < took.whole);
    CHECK(took.gradients <= took.whole * 3 / 4);
  };
  for (const Way& way : ways) {
    check(test::open_host(), 1, way);
    check(test::open_host(), 2, way);
    check(test::sim("host_visible = false\n"), 2, way);
    check(late(1), 2, way);
  }
}

TEST_CASE("what is on its way is waited for where it would make the gradient of a shallow model whole") {
  const std::string one_by_one = "[coordinator.zero3]\nreduce_bucket_size = 1\n";
  const std::string lingering = "[coordinator.planned]\nreduce_bucket = 7000\n";  // two layers
  for (const Accelerator& accelerator : {late(1), test::sim("host_visible = false\n")}) {
    for (const Way& way : {Way{"zero3", one_by_one, 2}, Way{"zero3", one_by_one, 3}, Way{"planned", lingering, 3},
                           Way{"planned", lingering, 4}}) {
      CAPTURE(way.coordinator);
      CAPTURE(way.layers);
      const Took took = train(accelerator, 2, way);
      CHECK(took.gradients < took.whole);
      CHECK(took.predicted == took.most);
    }
  }
}

TEST_CASE("a bucket that is set as large as the model holds its whole gradient") {
  for (const char* const bucket : {"[coordinator.zero3]\nreduce_bucket_size = 500000000\n",
                                   "[coordinator.planned]\nreduce_bucket = 500000000\n"}) {
    const std::string coordinator = std::string(bucket).find("zero3") != std::string::npos ? "zero3" : "planned";
    const Took took = train(test::open_host(), 2, {coordinator, bucket});
    CHECK(took.gradients == took.whole);
    CHECK(took.predicted == took.most);
  }
}

/// On paper it is the rank where each part is largest that casts, of whatever it owns.
void check_predicted(const Took& took, DType reduce) {
  CHECK(took.most > took.gradients);
  if (reduce == DType::kF32) CHECK(took.predicted == took.most);
  CHECK(took.predicted <= took.most + took.most / 50);
  CHECK(took.most <= took.predicted + took.predicted / 50);
}

TEST_CASE("what a rank has whole at once is known on paper without a budget, here and on a device") {
  for (const Accelerator& accelerator : {test::open_host(), test::sim("host_visible = false\n")}) {
    for (Way way : kUnbounded) {
      for (const int32_t world_size : {1, 2, 3}) {
        for (const bool in_one_pass : {false, true}) {
          for (const DType reduce : {DType::kF32, DType::kBF16}) {
            if (!test::is_thorough() && in_one_pass != (reduce == DType::kBF16)) continue;
            if (!test::is_thorough() && world_size == 3 && !accelerator.properties(0).host_visible) continue;
            way.layers = reduce == DType::kF32 ? 6 : 12;  // what bf16 casts on paper is of the largest part
            way.in_one_pass = in_one_pass;
            way.reduce = reduce;
            CAPTURE(way.coordinator);
            CAPTURE(way.more);
            CAPTURE(world_size);
            CAPTURE(in_one_pass);
            CAPTURE(reduce == DType::kBF16);
            check_predicted(train(accelerator, world_size, way), reduce);
          }
        }
      }
    }
  }
}

TEST_CASE("what a rank has whole at once does not depend on how late the exchange is") {
  for (const Way& way : kUnbounded) {
    CAPTURE(way.coordinator);
    CAPTURE(way.more);
    const Took expected = train(test::open_host(), 2, way);
    for (const int seed : {1, 2}) {
      const Took took = train(late(seed), 2, way);
      CHECK(took.most == expected.most);
      CHECK(took.gradients == expected.gradients);
    }
  }
}

}  // namespace
}  // namespace pliant::sharded
