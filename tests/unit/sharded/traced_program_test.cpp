// What a trace recorded is played again: whole steps, with other numbers of passes, through any coordinator.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "pliant/error.hpp"
#include "sharded/arena_books.hpp"
#include "sharded/predicted_memory.hpp"
#include "sharded/rehearsal.hpp"
#include "sharded/trace/traced_program.hpp"
#include "unit/sharded/hand_made_trace.hpp"
#include "unit/sharded/networks.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

/// "enter 3: 1/0 3/2": kind and module of a call, kind and parameter of each action.
std::string words_of_call(const RehearsedCall& call) {
  std::string made = fmt::format("{} {}{}:", static_cast<int>(call.kind), call.module ? int64_t{*call.module} : -1,
                                 call.backward ? " backward" : "");
  for (const pliant_action& action : call.actions) made += fmt::format(" {}/{}", action.kind, action.parameter);
  return made;
}

/// The steps in the order of the tree of layers, as a program that was recorded.
HandMadeTrace in_order_of_tree(const std::vector<int64_t>& elements, int steps, int passes) {
  HandMadeTrace made(elements);
  const auto layers = static_cast<uint32_t>(elements.size());
  for (int step = 0; step < steps; ++step) {
    for (int pass = 0; pass < passes; ++pass) {
      made.call(TracedCall::Kind::kBeginPass);
      made.enter(0);
      for (uint32_t layer = 1; layer <= layers; ++layer) made.visit(layer);
      made.leave(0);
      made.enter(0, Direction::kBackward);
      for (uint32_t layer = layers; layer > 0; --layer) made.visit(layer, Direction::kBackward);
      made.leave(0, Direction::kBackward);
      made.call(TracedCall::Kind::kEndPass);
    }
    made.end_step();
  }
  return made;
}

std::string refusal_of(const HandMadeTrace& made) {
  const TracedStep all{std::span<const TracedCall>(made.calls())};
  return thrown_by([&] {
    simulate(
        config_of("eager"), *made.trace.model, 1, std::vector<TracedStep>{all}, [](int) {},
        [](const RehearsedCall&) {});
  });
}

}  // namespace

TEST_CASE("calls that were recorded in the order of the tree are answered as the tree is") {
  for (const char* const coordinator : {"eager", "zero3", "planned"}) {
    CAPTURE(coordinator);
    const Config config = config_of(coordinator);
    const HandMadeTrace recorded = in_order_of_tree({1000, 300, 2000}, 4, 2);
    const ModelTables& model = *recorded.trace.model;
    std::vector<std::string> tree;
    std::vector<std::string> played;
    simulate(
        config, model, 2, RehearsedSteps{4, 2}, [](int) {},
        [&](const RehearsedCall& call) { tree.push_back(words_of_call(call)); });
    const std::vector<TracedStep> steps = whole_steps(recorded.trace.ranks.front());
    REQUIRE(steps.size() == 4);
    int begun = 0;
    simulate(
        config, model, 2, steps, [&](int step) { CHECK(step == begun++); },
        [&](const RehearsedCall& call) { played.push_back(words_of_call(call)); });
    CHECK(begun == 4);
    CHECK(tree == played);
  }
}

TEST_CASE("evaluations, recomputed layers and calls by hand are played, and only passes with gradients reduce") {
  HandMadeTrace made({1000, 1000});
  for (int step = 0; step < 3; ++step) {
    made.call(TracedCall::Kind::kBeginPass);
    made.visit(1);
    made.visit(2);
    made.visit(2, Direction::kBackward);
    made.enter(1, Direction::kBackward);
    made.visit(1, Direction::kRecompute);
    made.leave(1, Direction::kBackward);
    made.call(TracedCall::Kind::kEndPass);
    made.call(TracedCall::Kind::kEndStep);
    made.evaluation({1, 2, 1});
    made.call(TracedCall::Kind::kEndStep);  // what is whole makes room
    made.call(TracedCall::Kind::kByHand, {}, Direction::kForward, {gathers(0)});
    ++made.step;
  }
  const ModelTables& model = *made.trace.model;
  const std::vector<TracedStep> steps = whole_steps(made.trace.ranks.front());
  REQUIRE(steps.size() == 3);
  for (const char* const coordinator : {"eager", "zero3", "planned"}) {
    CAPTURE(coordinator);
    const bool is_zero3 = std::string(coordinator) == "zero3";  // which releases recomputed layers unless it is strict
    const Config config = config_of(coordinator, is_zero3 ? "[coordinator.zero3]\nstrict = true" : "");
    ArenaBooks books(model, 2, {}, 0);
    int evaluated = 0;
    int recomputed = 0;
    int ends = 0;
    int reduced = 0;
    simulate(
        config, model, 2, steps, [](int) {},
        [&](const RehearsedCall& call) {
          books.hear(call);
          evaluated += call.kind == RehearsedCall::Kind::kBeginPass && !call.with_gradient ? 1 : 0;
          recomputed += call.kind == RehearsedCall::Kind::kEnter && call.recompute ? 1 : 0;
          ends += call.kind == RehearsedCall::Kind::kEndStep ? 1 : 0;
          for (const pliant_action& action : call.actions) {
            if (action.kind != PLIANT_ACTION_REDUCE) continue;
            ++reduced;
            CHECK(call.with_gradient);
          }
        });
    CHECK(evaluated == 3);
    CHECK(recomputed == 3);
    CHECK(ends == 6);
    if (std::string(coordinator) == "eager") CHECK(reduced == 6);
    CHECK(books.taken() == 0);
  }
}

TEST_CASE("a step is whole when its passes and it have ended, with or without an evaluation behind it") {
  HandMadeTrace made({100});
  made.pass({1});
  made.end_step();
  made.pass({1});
  made.call(TracedCall::Kind::kEndStep);
  made.evaluation({1});
  made.step = 2;
  made.evaluation({1});  // a step in which nothing is trained
  made.step = 3;
  made.call(TracedCall::Kind::kBeginPass);  // given up
  made.enter(1);
  made.pass({1});
  made.end_step();
  made.pass({1});  // the rank died
  const std::vector<TracedStep> steps = whole_steps(made.trace.ranks.front());
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].front().front().step == 0);
  CHECK(steps[1].front().front().step == 1);
  CHECK(passes_of(steps[1]) == 1);
}

TEST_CASE("a step has the passes that it is asked for, in turn, and keeps what stands around them") {
  HandMadeTrace made({100, 100});
  made.evaluation({1});
  made.pass({1});
  made.evaluation({2});
  made.pass({1, 2});
  made.call(TracedCall::Kind::kEndStep);
  made.evaluation({1, 2});
  const TracedStep step = whole_steps(made.trace.ranks.front()).front();
  CHECK(passes_of(step) == 2);
  const auto kinds = [](const TracedStep& of) {
    std::string text;
    for (const auto& run : of) {
      for (const TracedCall& call : run) {
        if (call.kind == TracedCall::Kind::kBeginPass) text += 'p';
        if (call.kind == TracedCall::Kind::kBeginEvaluation) text += 'e';
        if (call.kind == TracedCall::Kind::kEnter) text += std::to_string(*call.module);
        if (call.kind == TracedCall::Kind::kEndStep) text += '.';
      }
    }
    return text;
  };
  CHECK(kinds(step) == "e1p11e2p1221.e12");
  CHECK(kinds(with_passes(step, 1)) == "e1p11e2.e12");
  CHECK(kinds(with_passes(step, 2)) == kinds(step));
  CHECK(kinds(with_passes(step, 5)) == "e1p11e2p1221p11e2p1221p11e2.e12");
  CHECK(passes_of(with_passes(step, 5)) == 5);
}

TEST_CASE("room for what is fetched by hand between two passes ends no step") {
  HandMadeTrace made({100});
  made.pass({1});
  made.call(TracedCall::Kind::kEndStep);  // by hand
  made.pass({1});
  made.end_step();
  const TracedStep step = whole_steps(made.trace.ranks.front()).front();
  CHECK(passes_of(with_passes(step, 1)) == 1);
  CHECK(passes_of(with_passes(step, 3)) == 3);
}

TEST_CASE("what a rank takes by a recording is what it takes by the tree where the order is that of the tree") {
  const HandMadeTrace recorded = in_order_of_tree({3000, 500, 2000, 2000}, 1, 1);
  const ModelTables& model = *recorded.trace.model;
  const TracedStep step = whole_steps(recorded.trace.ranks.front()).front();
  for (const char* const more : {"", "budget = 60000"}) {
    const Config config = config_of("planned", more);
    for (const int32_t ranks : {1, 3}) {
      const MemoryOfWhat what{ranks, 14, 2, 2, 2};
      const ShardedMemory tree = predicted_memory(config, model, what);
      const ShardedMemory played = predicted_memory(config, model, step, what);
      CHECK(tree.weights == played.weights);
      CHECK(tree.state == played.state);
      CHECK(tree.sums == played.sums);
      CHECK(tree.gathered_most == played.gathered_most);
    }
  }
}

TEST_CASE("what a rank takes by a recording of a step in one pass is what it takes in layer order, at any world size") {
  HandMadeTrace recorded = in_order_of_tree({3000, 500, 2000, 2000}, 1, 1);
  recorded.rank().calls.front().micro_batches = 7;
  const ModelTables& model = *recorded.trace.model;
  const TracedStep step = whole_steps(recorded.trace.ranks.front()).front();
  CHECK(passes_of(step) == 1);
  CHECK(micro_batches_of(step) == 7);
  CHECK(is_in_layer_order(step));
  for (const char* const coordinator : {"eager", "planned"}) {
    for (const char* const more : {"", "budget = 90000"}) {
      CAPTURE(coordinator);
      CAPTURE(more);
      const Config config = config_of(coordinator, more);
      for (const int32_t ranks : {1, 2, 3}) {
        MemoryOfWhat what{ranks, 14, 2, 2, 2};
        const ShardedMemory played = predicted_memory(config, model, step, what);
        const ShardedMemory one_by_one = predicted_memory(config, model, what);
        what.in_layer_order = true;
        const ShardedMemory tree = predicted_memory(config, model, what);
        CHECK(played.gathered_most == tree.gathered_most);
        CHECK(played.sums == tree.sums);
        // planned has less whole at once in a single pass: no later one of the step uses it again.
        const bool is_eager = std::string(coordinator) == "eager";
        if (is_eager && std::string(more).empty()) CHECK(played.gathered_most > one_by_one.gathered_most);
      }
    }
  }
}

TEST_CASE("passes over some of a step's micro-batches are played as often as a step has so many") {
  HandMadeTrace recorded = in_order_of_tree({3000, 2000}, 1, 2);
  for (TracedCall& call : recorded.rank().calls) {
    if (call.kind == TracedCall::Kind::kBeginPass) call.micro_batches = 3;
  }
  const TracedStep step = whole_steps(recorded.trace.ranks.front()).front();
  CHECK(micro_batches_of(step) == 6);
  CHECK(most_micro_batches(step) == 3);
  CHECK_FALSE(is_in_layer_order(step));
  std::vector<size_t> passes;
  simulate(
      config_of("eager"), *recorded.trace.model, 2, std::vector<TracedStep>{step}, [](int) {},
      [&](const RehearsedCall& call) {
        if (call.kind == RehearsedCall::Kind::kBeginPass) passes.push_back(call.micro_batches);
      });
  CHECK(passes == std::vector<size_t>{3, 3});
  // With three of a step's seven at once a gradient lies beside one that is on its way, as with all seven.
  const Config config = config_of("eager");
  MemoryOfWhat what{1, 14, 2, 2, 2};
  const ShardedMemory played = predicted_memory(config, *recorded.trace.model, step, what);
  what.in_layer_order = true;
  CHECK(played.gathered_most == predicted_memory(config, *recorded.trace.model, what).gathered_most);
}

TEST_CASE("DeepSpeed's estimate is four bytes for each of the largest module's own elements, and 18 shared by all") {
  const ModelTables layers = model_of_layers({1000, 3000, 2000});
  CHECK(deepspeed_estimate(layers, 1) == 4 * 3000 + 18 * 6000);  // 120,000
  CHECK(deepspeed_estimate(layers, 4) == 12000 + 27000);
  CHECK(deepspeed_estimate(layers, 7) == 12000 + 15428);  // whole bytes: 108,000 by 7 is 15,428.57
  ModelTables tied;
  const ParameterId embedding{add_weights(tied, "embedding", 5000)};
  const ParameterId bias{add_weights(tied, "bias", 10)};
  tied.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  tied.add(ModuleSpec{.name = "embed", .parent = ModuleId{0}, .own = {embedding}, .external = {}});
  tied.add(ModuleSpec{.name = "head", .parent = ModuleId{0}, .own = {bias}, .external = {embedding}});
  tied.close();
  CHECK(deepspeed_estimate(tied, 2) == 4 * 5000 + 9 * 5010);  // what the head shares is no second time in it
}

TEST_CASE("calls that no program can make are refused by the first of them") {
  HandMadeTrace outside({100});
  outside.visit(1);
  CHECK(says(refusal_of(outside), "are not those of a program: enter layers.0 is outside a pass"));
  HandMadeTrace nowhere({100});
  nowhere.call(TracedCall::Kind::kBeginPass);
  nowhere.enter(7);
  CHECK(says(refusal_of(nowhere), "enter concerns a module that the model lacks"));
  HandMadeTrace twice({100});
  twice.call(TracedCall::Kind::kBeginPass);
  twice.call(TracedCall::Kind::kBeginPass);
  CHECK(says(refusal_of(twice), "begin_pass is inside a pass"));
  HandMadeTrace left({100});
  left.call(TracedCall::Kind::kBeginPass);
  left.leave(1);
  CHECK(says(refusal_of(left), "leave layers.0 leaves a module that was not entered"));
  HandMadeTrace open({100});
  open.call(TracedCall::Kind::kBeginPass);
  open.enter(1);
  open.call(TracedCall::Kind::kEndPass);
  CHECK(says(refusal_of(open), "end_pass occurs while modules are entered"));
  HandMadeTrace evaluated({100});
  evaluated.call(TracedCall::Kind::kBeginEvaluation);
  evaluated.enter(1, Direction::kBackward);
  CHECK(says(refusal_of(evaluated), "is backward in a pass without gradients"));
}

}  // namespace pliant::sharded
