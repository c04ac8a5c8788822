// Runtime: habits of programs: parameters used unannounced, modules changed before a rank's first pass, generation
// between steps, first values; and what DeepSpeed's own schedule makes of the rarer ones.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "unit/sharded/networks.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

TEST_CASE("what modules use unannounced has its gradient until the pass ends") {
  check_everywhere(
      [](Runtime& runtime, const Networks& of, RowRange rows) {
        runtime.begin_pass(rows);
        runtime.enter(of.root, Direction::kForward);
        runtime.enter(of.policy, Direction::kForward);
        runtime.leave(of.policy, Direction::kForward);
        CHECK(static_cast<float*>(runtime.value(of.trained)) != nullptr);
        runtime.leave(of.root, Direction::kForward);
        runtime.enter(of.root, Direction::kBackward);
        runtime.enter(of.policy, Direction::kBackward);
        add_gradient(runtime, of, rows, 0.5F);
        runtime.leave(of.policy, Direction::kBackward);
        add_gradient(runtime, of, rows, 0.5F);  // the root's, which does not name it
        runtime.leave(of.root, Direction::kBackward);
        add_gradient(runtime, of, rows, 0);
        runtime.end_pass();
      },
      false, true);
}

/// A root over an embedding, a layer and a head, which may have the embedding's parameter or another of its own.
struct Tied {
  std::vector<uint32_t> modules;
  uint32_t embedding, layer, other;

  explicit Tied(Runtime& runtime) {
    embedding = add_parameter(runtime, "embedding", 1500);
    layer = add_parameter(runtime, "layer", 3000);
    other = add_parameter(runtime, "other", 1600);
    const uint32_t root = add_module(runtime, "model", std::nullopt, {});
    modules = {add_module(runtime, "embed", root, {embedding}), add_module(runtime, "layer", root, {layer}),
               add_module(runtime, "head", root, {other})};
    runtime.close_model();
  }
  /// The head uses the embedding instead, the embedding the head's.
  void change(Runtime& runtime) const {
    runtime.set_parameters(modules[0], {ParameterId{other}}, {});
    runtime.set_parameters(modules[2], {ParameterId{embedding}}, {});
  }
  /// After each visit of some passes: what is whole, and whether a trace was followed.
  [[nodiscard]] std::vector<uint64_t> seen(Runtime& runtime) const {
    std::vector<uint64_t> made;
    for (int pass = 0; pass < 5; ++pass) {
      runtime.begin_evaluation();
      for (const uint32_t module : modules) {
        runtime.enter(module, Direction::kForward);
        made.push_back(runtime.memory().gathered);
        runtime.leave(module, Direction::kForward);
        made.push_back(runtime.memory().gathered);
      }
      runtime.end_pass();
      made.push_back(runtime.memory().gathered);
      made.push_back(static_cast<uint64_t>(runtime.traced_passes().followed));
    }
    return made;
  }
};

TEST_CASE("a rank that changes a module before its first pass decides as those that came with the change made") {
  const Accelerator accelerator = test::open_host();
  for (const char* const version : {"head", "seed"}) {
    for (const bool strict : {false, true}) {
      CAPTURE(version);
      CAPTURE(strict);
      // Of the parameters that are small enough the first in the order of the model stay whole, up to the second limit.
      const std::string options = fmt::format(
          "[coordinator.zero3]\nversion = \"{}\"\nstrict = {}\nparam_persistence_threshold = 1600\n"
          "model_persistence_threshold = 2000\nmax_reuse_distance = 0\nprefetch_bucket_size = 0\n",
          version, strict);
      std::vector<std::vector<uint64_t>> seen;
      for (const bool changes_late : {false, true}) {
        test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
          Stream program(accelerator, 0);
          Runtime runtime(config_of("zero3", options), accelerator, 0, program, stream, {});
          const Tied of(runtime);
          if (!changes_late) of.change(runtime);
          runtime.enter_group(group);
          runtime.initialise();
          if (changes_late) of.change(runtime);
          seen.push_back(of.seen(runtime));
          runtime.leave_group();
        });
      }
      CHECK(seen[0] == seen[1]);
    }
  }
}

/// What a rank counts in two steps; `between` is called before the passes of each.
VisitCount counted(const Pass& pass, const std::function<void(Runtime&, const Networks&, int step)>& between,
                   const char* coordinator = "planned") {
  VisitCount made;
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of(coordinator), accelerator, 0, program, stream, {});
    const Networks of(runtime, true);
    runtime.enter_group(group);
    runtime.begin_visits(1);
    runtime.initialise();
    for (int step = 0; step < 2; ++step) {
      between(runtime, of, step);
      take_step(runtime, of, 0, 1, pass);
    }
    made = runtime.visits();
    runtime.leave_group();
  });
  return made;
}

void leaving_root_first(Runtime& runtime, const Networks& of, RowRange rows) {
  runtime.begin_pass(rows);
  runtime.enter(of.root, Direction::kForward);
  runtime.enter(of.policy, Direction::kForward);
  runtime.leave(of.policy, Direction::kForward);
  runtime.enter(of.reference, Direction::kForward);
  runtime.leave(of.reference, Direction::kForward);
  runtime.leave(of.root, Direction::kForward);
  runtime.enter(of.root, Direction::kBackward);
  runtime.enter(of.policy, Direction::kBackward);
  add_gradient(runtime, of, rows);
  runtime.leave(of.root, Direction::kBackward);
  runtime.leave(of.policy, Direction::kBackward);
  runtime.end_pass();
}

TEST_CASE(
    "what a rank does is counted without a page: leaves, writes and other modules, but not a change that others came "
    "with") {
  const auto nothing = [](Runtime&, const Networks&, int) {};
  const auto same_in = [](int when) {
    return [when](Runtime& runtime, const Networks& of, int step) {
      if (step == when) runtime.set_parameters(of.policy, {ParameterId{of.trained}}, {});
    };
  };
  const VisitCount plain = counted(plain_pass, nothing);
  CHECK(counted(plain_pass, nothing) == plain);
  CHECK(counted(plain_pass, same_in(0)) == plain);  // its first pass is yet to come
  CHECK(counted(plain_pass, same_in(1)) != plain);  // others go on in the order that they know
  const auto also_reference = [](Runtime& runtime, const Networks& of, int step) {
    if (step == 0) runtime.set_parameters(of.policy, {ParameterId{of.trained}}, {ParameterId{of.kept}});
  };
  CHECK(counted(plain_pass, also_reference) != plain);
  CHECK(counted(plain_pass, also_reference).count == plain.count);
  const VisitCount otherwise = counted(leaving_root_first, nothing);
  CHECK(otherwise.count == plain.count);
  CHECK(otherwise.digest != plain.digest);
  const auto writes = [](Runtime& runtime, const Networks& of, int) {
    std::vector<float> values(kElements);
    for (uint64_t k = 0; k < kElements; ++k) values[k] = first_value(k);
    runtime.write(of.kept, values);
  };
  CHECK(counted(plain_pass, writes) != plain);
  const auto comes_to_commit = [](Runtime& runtime, const Networks&, int) { runtime.note_commit(); };
  CHECK(counted(plain_pass, comes_to_commit) != plain);
}

TEST_CASE("what a rank takes or gives back by hand is counted, also where it was whole, and once") {
  const auto by_hand = [](const std::function<void(Runtime&, const Networks&)>& then) {
    return counted(plain_pass, [&](Runtime& runtime, const Networks& of, int step) {
      if (step != 1) return;
      runtime.fetch(of.trained);
      runtime.fetch(of.kept);
      then(runtime, of);
    });
  };
  const VisitCount both = by_hand([](Runtime&, const Networks&) {});
  const VisitCount again = by_hand([](Runtime& runtime, const Networks& of) { runtime.fetch(of.kept); });
  const VisitCount one = by_hand([](Runtime& runtime, const Networks& of) { runtime.release(of.trained); });
  const VisitCount other = by_hand([](Runtime& runtime, const Networks& of) { runtime.release(of.kept); });
  CHECK(again == both);
  CHECK(one != both);
  CHECK(other != both);
  CHECK(one != other);
  const auto evaluated = [](bool fetches) {
    const auto evaluates = [fetches](Runtime& runtime, const Networks& of, int) {
      runtime.begin_evaluation();
      runtime.enter(of.policy, Direction::kForward);
      runtime.leave(of.policy, Direction::kForward);
      runtime.end_pass();
      if (fetches) runtime.fetch(of.trained);  // zero3 has kept it
    };
    return counted(plain_pass, evaluates, "zero3");
  };
  CHECK(evaluated(true) != evaluated(false));
}

TEST_CASE("with poison what is read after its release is NaN, and no bit of training changes") {
  const std::vector<float> expected = trained_by(plain_pass, "eager", 1, false);
  for (const auto& way : kWays) {
    CAPTURE(way.first);
    CAPTURE(way.second);
    CHECK(trained_by(plain_pass, way.first, 2, true, "poison = true\n" + way.second) == expected);
  }
  const Accelerator accelerator = test::open_host();
  for (const bool poisons : {false, true}) {
    for (const bool is_half : {false, true}) {
      CAPTURE(poisons);
      CAPTURE(is_half);
      const std::string options = fmt::format("poison = {}\ncompute_dtype = \"{}\"\nbudget = {}", poisons,
                                              is_half ? "bf16" : "f32", kLeastBudget);
      test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of("eager", options), accelerator, 0, program, stream, {});
        const Networks of(runtime, false);
        runtime.enter_group(group);
        runtime.initialise();
        const auto nans = [&](const void* kept) {
          int count = 0;
          for (uint64_t k = 0; k < kElements; ++k) {
            const uint32_t bits = is_half ? uint32_t{static_cast<const uint16_t*>(kept)[k]} << 16U
                                          : static_cast<const uint32_t*>(kept)[k];
            count += std::isnan(std::bit_cast<float>(bits)) ? 1 : 0;
          }
          return count;
        };
        runtime.begin_evaluation();
        runtime.enter(of.policy, Direction::kForward);
        const void* const kept = runtime.value(of.trained);
        CHECK(nans(kept) == 0);
        runtime.leave(of.policy, Direction::kForward);  // the budget's memory stays mapped
        CHECK(nans(kept) == (poisons ? static_cast<int>(kElements) : 0));
        runtime.end_pass();
        runtime.fetch(of.trained);
        const void* const fetched = runtime.value(of.trained);
        CHECK(nans(fetched) == 0);
        runtime.release(of.trained);
        CHECK(nans(fetched) == (poisons ? static_cast<int>(kElements) : 0));
        runtime.leave_group();
      });
    }
  }
}

TEST_CASE("generation between steps, many forward passes of other lengths in a row, changes no bit of training") {
  const auto generate = [](Runtime& runtime, const Networks& of) {
    for (const int tokens : {1, 4, 2, 2, 7, 1}) {
      runtime.begin_evaluation();
      runtime.enter(of.root, Direction::kForward);
      for (int token = 0; token < tokens; ++token) {
        runtime.enter(of.policy, Direction::kForward);
        REQUIRE(runtime.value(of.trained) != nullptr);
        runtime.leave(of.policy, Direction::kForward);
      }
      runtime.leave(of.root, Direction::kForward);
      runtime.end_pass();
    }
  };
  const std::vector<float> expected = trained_by(plain_pass, "eager", 1, false);
  const Accelerator accelerator = test::open_host();
  std::vector<std::pair<std::string, std::string>> ways = kWays;
  ways.emplace_back("zero3", "");
  for (const auto& way : ways) {
    for (const int32_t world_size : {1, 3}) {
      CAPTURE(way.first);
      CAPTURE(way.second);
      CAPTURE(world_size);
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of(way.first, way.second), accelerator, 0, program, stream, {});
        const Networks of(runtime, false);
        runtime.enter_group(group);
        runtime.initialise();
        for (int step = 0; step < 3; ++step) {
          generate(runtime, of);
          take_step(runtime, of, rank, world_size, plain_pass);
        }
        generate(runtime, of);
        CHECK(read_whole(runtime, of.trained) == expected);
        runtime.leave_group();
      });
    }
  }
}

TEST_CASE("first values are asked for one parameter after the other, in their order, with room for that one alone") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 3, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {"moment"});
    const std::vector<int64_t> sizes{1500, 0, 1, 30000, 77};
    std::vector<std::pair<size_t, size_t>> asked;  // number and elements
    for (size_t i = 0; i < sizes.size(); ++i) {
      ParameterSpec spec;
      spec.name = fmt::format("p{}", i);
      spec.shape = {sizes[i]};
      spec.initialise = [&asked, i](std::span<float> values) {
        CHECK(std::count(values.begin(), values.end(), 0.0F) == static_cast<std::ptrdiff_t>(values.size()));
        std::fill(values.begin(), values.end(), 1.0F);
        asked.emplace_back(i, values.size());
      };
      runtime.model.add(std::move(spec));
    }
    add_module(runtime, "model", std::nullopt, {});
    runtime.close_model();
    for (int group_of = 0; group_of < 2; ++group_of) {
      asked.clear();
      runtime.enter_group(group);
      runtime.initialise();
      CHECK(asked == std::vector<std::pair<size_t, size_t>>{{0, 1500}, {1, 0}, {2, 1}, {3, 30000}, {4, 77}});
      runtime.leave_group();
    }
  });
}

TEST_CASE("an owner holds at most log2(granules) + 1 sums of its shard, however many granules a step has") {
  const Accelerator accelerator = test::open_host();
  std::map<int64_t, uint64_t> most;  // sums, by granules
  for (const int32_t world_size : {1, 2, 3}) {
    for (const int64_t granules : {1, 2, 3, 4, 7, 8, 15, 16, 31, 33}) {
      CAPTURE(world_size);
      CAPTURE(granules);
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {});
        const Networks of(runtime, false);
        runtime.enter_group(group);
        runtime.initialise();
        const Assignment dealt =
            share_out(granules, {.world_size = world_size, .granule = 1, .deterministic = true, .in_turn = true});
        runtime.begin_step(granules, 1, dealt, true);
        const auto own = dealt.of(rank);
        for (size_t i = 0; i < runtime.rounds(); ++i) plain_pass(runtime, of, i < own.size() ? own[i] : RowRange{});
        runtime.finish_gradient(1);
        const uint64_t shard = runtime.memory().weights / 4096 * 4096;  // chunks, without a stamp
        const auto bound = static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(granules)));  // log2 + 1
        CHECK(shard > 0);
        CHECK(runtime.memory().sums <= bound * shard);
        CHECK(runtime.memory().sums >= shard);
        runtime.leave_group();
      });
    }
  }
}

/// What the ranks throw first that is no consequence of what another threw.
std::string thrown_in(const Pass& pass, const std::string& more, int64_t elements = kElements) {
  const Accelerator accelerator = test::open_host();
  std::string words = "nothing was thrown";
  const auto thrown = test::run_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("zero3", more), accelerator, 0, program, stream, {});
    const Networks of(runtime, false, elements);
    runtime.enter_group(group);
    runtime.initialise();
    for (int step = 0; step < 3; ++step) take_step(runtime, of, 0, 1, pass);
    runtime.leave_group();
  });
  if (thrown[0]) words = thrown_by([&] { std::rethrow_exception(thrown[0]); });
  return words;
}

TEST_CASE("zero3 that is not strict breaks a rule where a module is entered within itself, and the words name strict") {
  const Pass nested = [](Runtime& runtime, const Networks& of, RowRange rows) {
    runtime.begin_pass(rows);
    for (int depth = 0; depth < 2; ++depth) runtime.enter(of.policy, Direction::kForward);
    for (int depth = 0; depth < 2; ++depth) runtime.leave(of.policy, Direction::kForward);
    for (int visit = 0; visit < 2; ++visit) {
      runtime.enter(of.policy, Direction::kBackward);
      add_gradient(runtime, of, rows, 0.5F);
      runtime.leave(of.policy, Direction::kBackward);
    }
    runtime.end_pass();
  };
  const std::string words = thrown_in(nested, "");
  CHECK(says(words, "coordinator 'zero3' broke a rule: leaving policy forward"));
  CHECK(says(words, "[coordinator.zero3] strict = true may fix that"));
  CHECK(thrown_in(nested, "[coordinator.zero3]\nstrict = true") == "nothing was thrown");
}

TEST_CASE("zero3 that is not strict gathers no parameter without elements that is alone, and its words name strict") {
  CHECK(says(thrown_in(plain_pass, "", 0),
             "has no elements, and version head does not gather an empty parameter alone; set [coordinator.zero3] "
             "strict = true"));
  CHECK(thrown_in(plain_pass, "[coordinator.zero3]\nstrict = true", 0) == "nothing was thrown");
}

TEST_CASE("zero3 that is not strict computes once more in backward with the same bits") {
  const std::vector<float> expected = trained_by(plain_pass, "eager", 1, false);
  const Pass recomputes = [](Runtime& runtime, const Networks& of, RowRange rows) {
    runtime.begin_pass(rows);
    runtime.enter(of.root, Direction::kForward);
    runtime.enter(of.policy, Direction::kForward);
    runtime.leave(of.policy, Direction::kForward);
    runtime.leave(of.root, Direction::kForward);
    runtime.enter(of.root, Direction::kBackward);
    runtime.enter(of.policy, Direction::kRecompute);
    runtime.leave(of.policy, Direction::kRecompute);
    runtime.enter(of.policy, Direction::kBackward);
    add_gradient(runtime, of, rows);
    runtime.leave(of.policy, Direction::kBackward);
    runtime.leave(of.root, Direction::kBackward);
    runtime.end_pass();
  };
  for (const char* const version : {"head", "seed"}) {
    for (const int32_t world_size : {1, 3}) {
      CAPTURE(version);
      CAPTURE(world_size);
      CHECK(trained_by(recomputes, "zero3", world_size, false,
                       fmt::format("[coordinator.zero3]\nversion = \"{}\"", version)) == expected);
    }
  }
}

TEST_CASE("a pass without rows may repeat the visits of the one before, and the bits are the same") {
  // In hooks the module around may be left before the one inside, backward: who has no rows does it in that order, too.
  const Pass hooked = [](Runtime& runtime, const Networks& of, RowRange rows) {
    if (rows.count == 0 && runtime.can_repeat_pass(1)) return runtime.repeat_pass(std::span(&rows, 1));
    runtime.begin_pass(rows);
    runtime.enter(of.root, Direction::kForward);
    runtime.enter(of.policy, Direction::kForward);
    runtime.leave(of.policy, Direction::kForward);
    runtime.leave(of.root, Direction::kForward);
    runtime.enter(of.root, Direction::kBackward);
    runtime.enter(of.policy, Direction::kBackward);
    add_gradient(runtime, of, rows);
    runtime.leave(of.root, Direction::kBackward);
    runtime.leave(of.policy, Direction::kBackward);
    runtime.end_pass();
  };
  check_everywhere(hooked, false);
}

TEST_CASE("a pass is repeated without rows only, and not before there was one") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager", ""), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<RowRange> own;
    begin_step(runtime, rank, 1, own);
    REQUIRE(own.size() > 1);
    const RowRange none;
    CHECK(thrown_by([&] { runtime.repeat_pass(std::span(&none, 1)); }) ==
          "this process has made no pass with gradients yet, or its last one was not over 1 micro-batch; visit the "
          "modules");
    plain_pass(runtime, of, own[0]);
    CHECK(runtime.can_repeat_pass(1));
    CHECK_FALSE(runtime.can_repeat_pass(2));
    CHECK(thrown_by([&] { runtime.repeat_pass(std::span(&own[1], 1)); }) ==
          "a pass over 2 rows from 2 on cannot repeat another pass, because it has rows of its own");
    for (size_t i = 1; i < own.size(); ++i) plain_pass(runtime, of, own[i]);  // it has changed nothing
    CHECK(runtime.finish_gradient(0.125).finite);
    runtime.leave_group();
  });
}

TEST_CASE("a sum of -0 alone is -0: who has no rows adds nothing") {
  const Accelerator accelerator = test::open_host();
  for (const bool deterministic : {true, false}) {
    for (const int32_t world_size : {1, 2, 4}) {
      CAPTURE(deterministic);
      CAPTURE(world_size);
      std::vector<int> negative(static_cast<size_t>(world_size));
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of("eager", "", deterministic), accelerator, 0, program, stream, {});
        const Networks of(runtime, false);
        runtime.enter_group(group);
        runtime.initialise();
        const Assignment dealt =
            share_out(3, {.world_size = world_size, .granule = 1, .deterministic = deterministic, .in_turn = true});
        runtime.begin_step(3, 1, dealt, true);
        const auto own = dealt.of(rank);
        for (size_t i = 0; i < runtime.rounds(); ++i) {
          const RowRange rows = i < own.size() ? own[i] : RowRange{};
          runtime.begin_pass(rows);
          runtime.enter(of.policy, Direction::kForward);
          runtime.leave(of.policy, Direction::kForward);
          runtime.enter(of.policy, Direction::kBackward);
          if (rows.count > 0) std::fill_n(static_cast<float*>(runtime.gradient(of.trained)), kElements, -0.0F);
          runtime.leave(of.policy, Direction::kBackward);
          runtime.end_pass();
        }
        CHECK(runtime.finish_gradient(0.125).finite);
        runtime.allow_update();
        runtime.update([&](const ShardRange& range) {
          for (uint64_t k = 0; k < range.count; ++k) {
            if (std::bit_cast<uint32_t>(range.gradient[k]) == 0x80000000U) ++negative[static_cast<size_t>(rank)];
          }
        });
        runtime.leave_group();
      });
      int all = 0;
      for (const int one : negative) all += one;
      CHECK(all == static_cast<int>(kElements));
    }
  }
}

}  // namespace
}  // namespace pliant::sharded
