// Runtime: what a pass over several micro-batches refuses, what it needs of a budget, and what a coordinator learns of
// it.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sharded/arena_books.hpp"
#include "sharded/memory/arena_needs.hpp"
#include "sharded/rehearsal.hpp"
#include "unit/accelerator/wrapper.hpp"
#include "unit/sharded/mixed_model.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

/// One rank that has begun a step of the mixed model.
void with_step(const std::string& coordinator, const std::string& more,
               const std::function<void(Runtime&, const MixedModel&, const std::vector<RowRange>&, Stream&)>& work) {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of(coordinator, more), accelerator, 0, program, stream, {});
    const MixedModel of(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    std::vector<RowRange> own;
    begin_step(runtime, 0, 1, own);
    work(runtime, of, own, program);
    runtime.leave_group();
  });
}

TEST_CASE("ranges that are not the step's next ones are refused, and so is a pass over none or too many") {
  with_step("eager", "", [](Runtime& runtime, const MixedModel& of, const std::vector<RowRange>& own, Stream& program) {
    REQUIRE(own.size() == 7);
    std::vector<RowRange> ranges;
    const auto begin = [&] { runtime.begin_pass(std::span<const RowRange>(ranges)); };
    CHECK(says(thrown_by(begin), "a pass cannot cover 0 micro-batches"));
    ranges = own;
    ranges.push_back({});
    CHECK(says(thrown_by(begin), "at least one, and 7 of the step's 7 are left"));
    ranges = {own[0], own[2]};
    CHECK(says(thrown_by(begin), "micro-batch 1 of 7 is next"));
    ranges = {own[0], RowRange{}};
    CHECK(says(thrown_by(begin), "a pass over 0 rows from 0 on is out of order: micro-batch 1 of 7 is next"));
    of.pass(runtime, std::span(own).first(4), program);
    CHECK(runtime.micro_batches_done() == 4);
    of.pass(runtime, std::span(own).subspan(4), program);
    CHECK(runtime.is_complete());
  });
}

TEST_CASE("micro-batches are begun once and in order, all of them, and what is refused changes nothing") {
  with_step("eager", "", [](Runtime& runtime, const MixedModel& of, const std::vector<RowRange>& own, Stream& program) {
    const auto begin = [&](size_t number) { return thrown_by([&] { runtime.begin_micro_batch(number); }); };
    const auto gradient = [&](uint32_t parameter) { return thrown_by([&] { runtime.gradient(parameter); }); };
    CHECK(says(begin(0), "begin_micro_batch(0) was called outside a pass with gradients; call begin_pass first"));
    runtime.begin_pass(std::span(own).first(3));
    CHECK(says(begin(3), "begin_micro_batch(3) was called in a pass over 3"));
    for (const uint32_t module : {of.embed, of.layer, of.head, of.leaf, of.leaf}) {
      runtime.enter(module, Direction::kForward);
      runtime.leave(module, Direction::kForward);
    }
    CHECK(says(thrown_by([&] { runtime.enter(of.leaf, Direction::kBackward); }),
               "leaf was entered backward after 2 forward visits in this pass; in a pass over several "
               "micro-batches a module can be entered once in each direction. Declare p7 external"));
    CHECK(says(thrown_by([&] { runtime.enter(of.unvisited, Direction::kBackward); }),
               "unvisited was entered backward after 0 forward visits"));
    runtime.enter(of.layer, Direction::kBackward);
    CHECK(says(gradient(of.kLayer),
               "the gradient of p2 was requested before any of the 3 micro-batches of the pass was begun; call "
               "begin_micro_batch first"));
    CHECK(
        says(begin(1), "micro-batch 1 of layer was begun after 0 of 3; begin each once per backward visit, in order"));
    CHECK(begin(0) == "nothing was thrown");
    CHECK(gradient(of.kLayer) == "nothing was thrown");
    CHECK(says(gradient(of.kBelow), "the gradient of p7 was requested outside its module"));
    CHECK(says(begin(2), "micro-batch 2 of layer was begun after 1 of 3"));
    CHECK(says(begin(0), "micro-batch 0 of layer was begun after 1 of 3"));
    CHECK(says(thrown_by([&] { runtime.leave(of.layer, Direction::kBackward); }),
               "layer was left backward after 1 of 3 micro-batches; call begin_micro_batch for each of them, also for "
               "those without rows"));
    for (const size_t number : {size_t{1}, size_t{2}}) {
      CHECK(begin(number) == "nothing was thrown");
      MixedModel::add(runtime, of.kLayer, own[number], 1, program);
    }
    runtime.leave(of.layer, Direction::kBackward);
    CHECK(says(gradient(of.kLayer), "p2 has left the last module that used it"));
    runtime.end_pass();
    CHECK(runtime.micro_batches_done() == 3);

    runtime.begin_pass(own[3]);  // over one nobody needs to say which
    CHECK(says(begin(1), "begin_micro_batch(1) was called in a pass over 1"));
    runtime.enter(of.layer, Direction::kForward);
    runtime.leave(of.layer, Direction::kForward);
    runtime.enter(of.layer, Direction::kBackward);
    CHECK(gradient(of.kLayer) == "nothing was thrown");
    CHECK(begin(0) == "nothing was thrown");
    runtime.leave(of.layer, Direction::kBackward);
    runtime.end_pass();
    runtime.begin_evaluation();
    CHECK(says(begin(0), "outside a pass with gradients"));
  });
}

TEST_CASE("gradients of several micro-batches lie side by side where more than one visit adds to them") {
  const Accelerator accelerator = test::open_host();
  Stream program(accelerator, 0);
  Stream exchange(accelerator, 0);
  Runtime runtime(config_of("eager"), accelerator, 0, program, exchange, {});
  const MixedModel of(runtime);
  std::vector<bool> expected(std::size(MixedModel::kSizes));
  for (const uint32_t one : {of.kRoot, of.kEmbedding, of.kUnannounced, of.kNameless}) expected[one] = true;
  CHECK(side_by_side(runtime.model) == expected);
}

/// What trains within a budget, or, where that is too small, what says so.
struct Tried {
  std::optional<Outcome> made;
  std::string refusal{};
};

Tried tried(const Accelerator& accelerator, const TrainedHow& how) {
  try {
    return {train_mixed(accelerator, 2, how)};
  } catch (const Error& error) {
    // The other rank is told that this one is gone, whichever throws first.
    CHECK((error.status() == Status::kResourceExhausted || error.status() == Status::kPeerLost ||
           error.status() == Status::kAborted));
    return {std::nullopt, error.message()};
  }
}

TEST_CASE("a budget suffices for a pass over several micro-batches or is refused, however quick the ranks are") {
  for (const char* const coordinator : {"eager", "planned"}) {
    const Outcome expected = train_mixed(test::host(), 2, {"eager", "", true, 1});
    int refused = 0;
    int fitted = 0;
    for (int64_t budget = 40960; budget <= 122880; budget += 8192) {
      CAPTURE(coordinator);
      CAPTURE(budget);
      const TrainedHow how{coordinator, fmt::format("budget = {}", budget), true, 4};
      const Tried here = tried(test::host(), how);
      ++(here.made ? fitted : refused);
      if (here.made) {
        CHECK(here.made->has_bits_of(expected));
        CHECK(here.made->most <= static_cast<uint64_t>(budget));
      }
      const Tried late = tried(test::sim("max_delay_us = 150\nseed = 1\n"), how);
      CHECK(late.made.has_value() == here.made.has_value());
    }
    CHECK(refused > 0);
    CHECK(fitted > 0);
  }
}

TEST_CASE(
    "a module whose gradients of so many micro-batches alone are too much is refused by its name, and then fewer "
    "go through") {
  with_step("planned", "budget = 49152",
            [](Runtime& runtime, const MixedModel& of, const std::vector<RowRange>& own, Stream& program) {
              CHECK(says(thrown_by([&] { runtime.begin_pass(std::span(own)); }),
                         "[coordinator] budget = 49152 is too small: embed alone uses 59392 bytes with its gradients "
                         "in a pass over 7 micro-batches (p1, ...); raise it, or use fewer micro-batches per pass"));
              for (const RowRange& rows : own) of.pass(runtime, std::span(&rows, 1), program);
              CHECK(runtime.is_complete());
            });
}

TEST_CASE("what planned has learnt it keeps when a pass is over more micro-batches than any before") {
  const Accelerator accelerator = test::open_host();
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("planned", "budget = 196608"), accelerator, 0, program, stream, {});
    const MixedModel of(runtime);
    runtime.enter_group(group);
    runtime.initialise();
    const auto step = [&](size_t at_once) {
      std::vector<RowRange> own;
      begin_step(runtime, 0, 1, own);
      for (size_t first = 0; first < own.size(); first += at_once) {
        of.pass(runtime, std::span(own).subspan(first, std::min(at_once, own.size() - first)), program);
      }
      runtime.finish_gradient(1);
    };
    for (const int at_once : {1, 7, 7, 1, 3}) step(static_cast<size_t>(at_once));
    const TracedPasses passes = runtime.traced_passes();
    CHECK(passes.all == 7 + 1 + 1 + 7 + 3);
    CHECK(passes.followed == passes.all - 1);
    const std::string saved = runtime.save_coordinator();
    runtime.leave_group();
    runtime.enter_group(group, 1);
    runtime.initialise();
    runtime.restore_coordinator(saved);
    step(7);
    CHECK(runtime.traced_passes().followed == passes.followed + 1);
    runtime.leave_group();
  });
}

TEST_CASE("modules that begin to share a parameter between two passes have its gradients side by side from then on") {
  const Accelerator accelerator = test::open_host();
  std::vector<std::vector<float>> made;
  for (const char* const more : {"", "budget = 196608"}) {
    for (const size_t at_once : {size_t{1}, size_t{3}}) {
      std::vector<float> weights;
      test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of("planned", more), accelerator, 0, program, stream, {});
        const MixedModel of(runtime);
        runtime.enter_group(group);
        runtime.initialise();
        for (int step = 0; step < 4; ++step) {
          const std::vector<ParameterId> first{ParameterId{of.kEmbedding}};
          const std::vector<ParameterId> both{ParameterId{of.kEmbedding}, ParameterId{of.kLayer}};
          if (step == 2) runtime.set_parameters(of.head, {}, both);
          if (step == 3) runtime.set_parameters(of.head, {}, first);
          std::vector<RowRange> own;
          begin_step(runtime, rank, 2, own);
          for (size_t i = 0; i < own.size(); i += at_once) {
            of.pass(runtime, std::span(own).subspan(i, std::min(at_once, own.size() - i)), program);
          }
          CHECK(runtime.finish_gradient(0.125).finite);
          runtime.allow_update();
          runtime.update([](const ShardRange& range) {
            for (uint64_t k = 0; k < range.count; ++k) range.weights[k] -= 1e-6F * range.gradient[k];
          });
        }
        const std::vector<float> values = read_whole(runtime, of.kLayer);
        if (rank == 0) weights = values;
        runtime.leave_group();
      });
      made.push_back(weights);
    }
  }
  for (const std::vector<float>& one : made) CHECK(one == made.front());
}

/// Layers below a root and a head that has the first one's weights, too.
struct Tower {
  std::vector<uint32_t> modules;
  explicit Tower(Runtime& runtime) {
    const uint32_t root = add_module(runtime, "model", std::nullopt, {});
    for (const int64_t elements : {1500, 3000, 900, 2000}) {
      const std::string name = fmt::format("layer.{}", modules.size());
      modules.push_back(add_module(runtime, name.c_str(), root, {add_parameter(runtime, name, elements)}));
    }
    ModuleSpec head;
    head.name = "head";
    head.parent = ModuleId{root};
    head.external = {ParameterId{0}};
    modules.push_back(runtime.model.add(std::move(head)));
    modules.insert(modules.begin(), root);
    runtime.close_model();
  }
  void pass(Runtime& runtime, std::span<const RowRange> ranges) const {
    runtime.begin_pass(ranges);
    for (const uint32_t module : modules) {
      runtime.enter(module, Direction::kForward);
      if (module != modules.front()) runtime.leave(module, Direction::kForward);
    }
    runtime.leave(modules.front(), Direction::kForward);
    runtime.enter(modules.front(), Direction::kBackward);
    for (size_t i = modules.size(); i-- > 1;) {
      runtime.enter(modules[i], Direction::kBackward);
      for (size_t number = 0; number < ranges.size(); ++number) {
        runtime.begin_micro_batch(number);
        for (const uint32_t parameter : runtime.model.modules()[modules[i]].used) runtime.gradient(parameter);
      }
      runtime.leave(modules[i], Direction::kBackward);
    }
    runtime.leave(modules.front(), Direction::kBackward);
    runtime.end_pass();
  }
};

TEST_CASE("what a pass over several micro-batches will take of a budget is known on paper") {
  const Accelerator accelerator = test::open_host();
  for (const char* const coordinator : {"eager", "planned"}) {
    for (const int budget : {81920, 98304, 163840}) {
      CAPTURE(coordinator);
      CAPTURE(budget);
      const Config config = config_of(coordinator, fmt::format("budget = {}", budget));
      uint64_t was = 0;
      uint64_t said = 0;
      test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config, accelerator, 0, program, stream, {});
        const Tower of(runtime);
        runtime.enter_group(group);
        runtime.initialise();
        for (int step = 0; step < 2; ++step) {  // what gathers take is known after the second
          std::vector<RowRange> own;
          begin_step(runtime, rank, 2, own);
          of.pass(runtime, own);
          runtime.finish_gradient(1);
        }
        if (rank == 0) {
          was = runtime.memory().gathered_most;
          ArenaBooks books(runtime.model, 2, {DType::kF32, DType::kF32, true}, static_cast<uint64_t>(budget), 4);
          simulate(
              config, runtime.model, 2, {2, 1, 4}, [](int) {},
              [&books](const RehearsedCall& call) { books.hear(call); });
          said = books.take_most();
        }
        runtime.leave_group();
      });
      CHECK(said == was);
    }
  }
}

}  // namespace
}  // namespace pliant::sharded
