// StepClock: the times on paper are those of Runtime on the virtual clock of `sim`, to the nanosecond.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "sharded/trace/traced_program.hpp"
#include "unit/sharded/hand_made_trace.hpp"
#include "unit/sharded/timed_steps.hpp"

namespace pliant::sharded {
namespace {

/// In the first ones memory is new, a trace is recorded, and what gathers take is learnt.
constexpr size_t kSteady = 3;

void check_alike(const TimedJob& job) {
  CAPTURE(job.coordinator);
  CAPTURE(job.options);
  CAPTURE(job.ranks);
  CAPTURE(job.deterministic);
  CAPTURE(job.looks_at_gradients);
  CAPTURE(job.passes);
  const std::vector<uint64_t> there = steps_on_sim(job);
  const std::vector<StepTime> here = steps_on_paper(job);
  REQUIRE(there.size() == here.size());
  for (size_t step = kSteady; step < there.size(); ++step) CHECK(here[step].all_ns == there[step]);
}

const LayerShapes kLayers{{20480, 1024}, {4096}, {20480, 1024}, {1000, 1024}, {30720}};

const std::vector<std::pair<std::string, std::string>> kCoordinators{
    {"eager", ""},
    {"eager", "budget = 400000"},
    {"zero3",
     "[coordinator.zero3]\nstrict = true\nparam_persistence_threshold = -1\nmax_reuse_distance = 0\n"
     "prefetch_bucket_size = 25000\nreduce_bucket_size = 30000"},
    {"zero3", "[coordinator.zero3]\nstrict = true"},
    {"planned", ""},
    {"planned", "[coordinator.planned]\nreduce_bucket = 150000"},  // what lingers would make a gradient whole
    {"planned", "budget = 700000"},
    {"planned", "budget = 400000"}};

TEST_CASE("a step takes as long on paper as on the clock of the simulator, whoever decides") {
  for (const auto& [name, options] : kCoordinators) {
    TimedJob job;
    job.layers = kLayers;
    job.coordinator = name;
    job.options = options;
    for (const int32_t ranks : {1, 2, 3}) {
      job.ranks = ranks;
      check_alike(job);
    }
  }
}

TEST_CASE("the paper knows of passes, of orders of additions, and of a host that looks through gradients") {
  for (const auto& [name, options] : kCoordinators) {
    TimedJob job;
    job.layers = kLayers;
    job.coordinator = name;
    job.options = options;
    job.passes = 3;
    job.steps = 4;
    for (const bool deterministic : {false, true}) {
      job.deterministic = deterministic;
      job.looks_at_gradients = !deterministic;
      check_alike(job);
    }
  }
}

TEST_CASE("16 bits are cast on paper, too") {
  for (const std::string types : {"compute_dtype = \"bf16\"", "compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\""}) {
    TimedJob job;
    job.layers = kLayers;
    job.coordinator = "planned";
    // Within the smaller ones the largest gradient is cast to f32 in parts.
    for (const std::string budget : {"", "\nbudget = 500000", "\nbudget = 350000"}) {
      job.options = types + budget;
      for (const bool looks : {false, true}) {
        job.looks_at_gradients = looks;
        job.ranks = looks ? 3 : 2;
        check_alike(job);
      }
    }
    job.coordinator = "eager";
    check_alike(job);
  }
}

/// 32 layers with room for three, with what is computed about as long as what is transferred, and longer and shorter.
TimedJob deep_job(int64_t elements, int32_t ranks) {
  TimedJob job;
  job.layers = LayerShapes(32, {elements, 1024});
  job.coordinator = "planned";
  job.ranks = ranks;
  job.looks_at_gradients = true;
  job.launch_us = 5;
  job.memory_gbps = 1000;
  job.collective_us = 20;
  job.collective_gbps = 10;
  const auto layer = static_cast<uint64_t>(elements + 1024) * sizeof(float);
  const uint64_t received = layer / static_cast<uint64_t>(ranks) * static_cast<uint64_t>(ranks - 1);
  job.options = fmt::format("budget = {}", 3 * (2 * layer + received + 4096));
  return job;
}

double over_bound(const StepTime& step) {
  const uint64_t rest = step.all_ns - step.first_gather_ns - step.last_reduce_ns;
  return static_cast<double>(rest) / static_cast<double>(step.bound_ns());
}

TEST_CASE("with room for three of 32 layers a step takes little more than the larger of compute and transfer") {
  double worst = 0;
  for (const int32_t ranks : {2, 4, 8}) {
    for (const int64_t forward_us :
         {0, 500, 1000, 1400, 1500, 1600, 1610, 1620, 1625, 1630, 1650, 1700, 1800, 2000, 3000, 8000}) {
      TimedJob job = deep_job(int64_t{1} << 22, ranks);
      job.forward_ns = forward_us * 1000;
      const double ratio = over_bound(steps_on_paper(job).back());
      CAPTURE(ranks);
      CAPTURE(forward_us);
      CHECK(ratio < 1.05);
      worst = std::max(worst, ratio);
    }
  }
  MESSAGE("at most ", worst, " times, beside the first gather and the last reduce");
}

TEST_CASE("so it does on the clock of the simulator, also with what gathers were measured to cost") {
  for (const size_t layers : {12U, 16U, 32U}) {
    TimedJob job = deep_job(int64_t{1} << 15, 2);
    job.layers.resize(layers);
    job.launch_us = 1;
    job.collective_us = 5;
    job.collective_gbps = 1;
    job.forward_ns = 200000;
    const std::vector<uint64_t> there = steps_on_sim(job);
    const std::vector<StepTime> here = steps_on_paper(job);
    CAPTURE(layers);
    CHECK(here[1].all_ns == there[1]);
    const uint64_t ends = here.back().first_gather_ns + here.back().last_reduce_ns;
    for (size_t step = 1; step < there.size(); ++step) {
      CHECK(static_cast<double>(there[step] - ends) < 1.1 * static_cast<double>(here.back().bound_ns()));
    }
  }
}

TEST_CASE("so it does there where compute and transfer take as long") {
  TimedJob job = deep_job(int64_t{1} << 20, 2);
  job.collective_gbps = 2;
  job.memory_gbps = 250;
  job.steps = 3;
  const StepTime transfers = steps_on_paper(job).back();
  job.forward_ns = static_cast<int64_t>(transfers.transfer_ns() / (3 * job.layers.size()));
  const StepTime here = steps_on_paper(job).back();
  CHECK(here.compute_ns <= here.transfer_ns());
  CHECK(steps_on_sim(job).back() == here.all_ns);
  CHECK(over_bound(here) < 1.05);
}

RehearsedCall call_of(RehearsedCall::Kind kind, std::optional<uint32_t> module = {}, bool backward = false,
                      std::span<const pliant_action> actions = {}) {
  return {kind, module, backward, actions};
}

TEST_CASE("of a group the bytes count that the rank gets which gets most") {
  ModelTables model;  // ranks own 2 and 1 chunks of the first parameter, and 0 and 1 of the second
  add_layers(model, {{3072, 1024}});
  model.close();
  StepCosts costs;
  costs.gather = {100, 1};
  costs.reduce = {1000, 1};
  StepClock clock(model, {.world_size = 2, .looks_at_gradients = false}, costs);
  const std::vector<pliant_action> alone{{PLIANT_ACTION_GATHER, 0, 1, 0, PLIANT_ANY_PLACE},
                                         {PLIANT_ACTION_WAIT, 0, 0, 0, PLIANT_ANY_PLACE}};
  clock.hear(call_of(RehearsedCall::Kind::kBeginPass, {}, false, alone), 0);
  const std::vector<pliant_action> other{{PLIANT_ACTION_GATHER, 1, 2, 0, PLIANT_ANY_PLACE},
                                         {PLIANT_ACTION_WAIT, 1, 0, 0, PLIANT_ANY_PLACE}};
  clock.hear(call_of(RehearsedCall::Kind::kEnter, 1, true, other), 0);
  clock.hear(call_of(RehearsedCall::Kind::kEndPass), 0);
  CHECK(clock.step().gather_ns == 100 + 2048 * 4 + 100 + 1024 * 4);  // what the rank gets that owns less
  CHECK(clock.step().reduce_ns == 1000 + 2048 * 4);                  // both at once, 2048 elements for each rank
  clock.hear(call_of(RehearsedCall::Kind::kEndStep), 0);
  clock.begin_step();

  const std::vector<pliant_action> together{{PLIANT_ACTION_GATHER, 0, 1, 0, PLIANT_ANY_PLACE},
                                            {PLIANT_ACTION_GATHER, 1, 1, 0, PLIANT_ANY_PLACE}};
  clock.hear(call_of(RehearsedCall::Kind::kBeginPass, {}, false, together), 0);
  clock.hear(call_of(RehearsedCall::Kind::kEndPass), 0);
  CHECK(clock.step().gather_ns == 100 + 2048 * 4);
  CHECK(clock.step().first_gather_ns == clock.step().gather_ns);
}

TEST_CASE("a gather ahead is hidden under what is computed meanwhile, and a release waits for what was computed") {
  ModelTables model;
  add_layers(model, {{1024}, {1024}, {1024}});
  model.close();
  StepCosts costs;
  costs.by = StepCosts::By::kWhole;
  costs.gather = {0, 1};
  StepClock clock(model, {.looks_at_gradients = false}, costs);
  constexpr uint64_t kGather = 4096;
  constexpr uint64_t kCompute = 10000;
  const auto gather = [](uint32_t parameter) {
    return pliant_action{PLIANT_ACTION_GATHER, parameter, parameter, 0, PLIANT_ANY_PLACE};
  };
  const auto wait = [](uint32_t parameter) {
    return pliant_action{PLIANT_ACTION_WAIT, parameter, 0, 0, PLIANT_ANY_PLACE};
  };
  clock.hear(call_of(RehearsedCall::Kind::kBeginPass), 0);
  const std::vector<pliant_action> first{gather(0), gather(1), wait(0)};
  clock.hear(call_of(RehearsedCall::Kind::kEnter, 1, false, first), kCompute);
  const std::vector<pliant_action> released{{PLIANT_ACTION_RELEASE, 0, 0, 0, PLIANT_ANY_PLACE}, gather(2)};
  clock.hear(call_of(RehearsedCall::Kind::kLeave, 1, false, released), 0);
  const std::vector<pliant_action> second{wait(1)};
  clock.hear(call_of(RehearsedCall::Kind::kEnter, 2, false, second), 1000);
  const std::vector<pliant_action> third{wait(2)};
  clock.hear(call_of(RehearsedCall::Kind::kEnter, 3, false, third), 7);
  clock.hear(call_of(RehearsedCall::Kind::kEndPass), 0);
  CHECK(clock.step().all_ns == kGather + kCompute + kGather + 7);
  CHECK(clock.step().compute_ns == kCompute + 1007);
  CHECK(clock.step().gather_ns == 3 * kGather);
  CHECK(clock.step().bound_ns() == 3 * kGather);
  clock.hear(call_of(RehearsedCall::Kind::kEndStep), 0);
  clock.begin_step();
  clock.hear(call_of(RehearsedCall::Kind::kBeginPass), 0);
  clock.hear(call_of(RehearsedCall::Kind::kEndPass), 0);
  CHECK(clock.step().all_ns == 0);  // of a step that has nothing
}

/// What a clock says of the last of several steps that are all the recorded one.
StepTime recorded_time(const HandMadeTrace& made, const std::string& coordinator, uint64_t compute_ns) {
  const ModelTables& model = *made.trace.model;
  const std::vector<TracedStep> steps(3, whole_steps(made.trace.ranks.front()).front());
  StepCosts costs;
  costs.by = StepCosts::By::kWhole;
  costs.gather = costs.reduce = {0, 1};
  StepClock clock(model, {.looks_at_gradients = false, .rounds = micro_batches_of(steps.front())}, costs);
  TimedJob job;
  job.coordinator = coordinator;
  job.ranks = 1;
  simulate(
      config_of(job), model, 1, steps, [&](int) { clock.begin_step(); },
      [&](const RehearsedCall& call) { clock.hear(call, call.kind == RehearsedCall::Kind::kEnter ? compute_ns : 0); });
  return clock.step();
}

TEST_CASE("the time of a step is that of its passes, whatever is evaluated before or behind them") {
  constexpr uint64_t kCompute = 100000;
  for (const char* const coordinator : {"eager", "zero3", "planned"}) {
    CAPTURE(coordinator);
    HandMadeTrace alone({1000, 2000});
    alone.pass({1, 2});
    alone.end_step();
    const StepTime expected = recorded_time(alone, coordinator, kCompute);
    CHECK(expected.compute_ns == 4 * kCompute);
    CHECK(expected.all_ns >= 4 * kCompute);
    HandMadeTrace evaluated({1000, 2000});
    evaluated.pass({1, 2});
    evaluated.call(TracedCall::Kind::kEndStep);
    evaluated.evaluation({1, 2, 1, 2, 1});
    const StepTime behind = recorded_time(evaluated, coordinator, kCompute);
    CHECK(behind.compute_ns == expected.compute_ns);
    CHECK(behind.all_ns >= 4 * kCompute);
    CHECK(behind.all_ns < 5 * kCompute);  // zero3 forgets its trace for it
    if (std::string(coordinator) == "eager") CHECK(behind.all_ns == expected.all_ns);
    CHECK(behind.reduce_ns == expected.reduce_ns);
    HandMadeTrace before({1000, 2000});
    before.evaluation({1, 2});
    before.pass({1, 2});
    before.end_step();
    CHECK(recorded_time(before, coordinator, kCompute).compute_ns == expected.compute_ns);
    HandMadeTrace between({1000, 2000});
    between.pass({1, 2});
    between.evaluation({1});
    between.pass({1, 2});
    between.end_step();
    CHECK(recorded_time(between, coordinator, kCompute).compute_ns == 9 * kCompute);  // it held up the step
  }
}

TEST_CASE("a step in which what is whole was given up between two passes is still one step") {
  HandMadeTrace made({1000, 2000});
  made.pass({1, 2});
  made.call(TracedCall::Kind::kEndStep);  // a parameter is moved by hand
  made.pass({1, 2});
  made.end_step();
  const StepTime time = recorded_time(made, "eager", 100000);
  CHECK(time.compute_ns == 800000);
  CHECK(time.all_ns > 800000);
}

TEST_CASE("passes over several micro-batches take as long on paper as on the clock of the simulator") {
  for (const auto& [name, options] : kCoordinators) {
    TimedJob job;
    job.layers = kLayers;
    job.coordinator = name;
    job.options = options;
    job.passes = 4;
    job.steps = 4;
    for (const size_t at_once : {size_t{2}, size_t{4}}) {
      job.at_once = at_once;
      for (const int32_t ranks : {1, 3}) {
        job.ranks = ranks;
        job.deterministic = ranks == 1;
        job.looks_at_gradients = ranks == 3;
        CAPTURE(at_once);
        check_alike(job);
      }
    }
  }
}

TEST_CASE("so they do in 16 bits") {
  TimedJob job;
  job.layers = kLayers;
  job.coordinator = "planned";
  job.passes = job.steps = 4;
  job.at_once = 4;
  job.looks_at_gradients = true;
  for (const std::string budget : {"", "\nbudget = 500000"}) {
    job.options = "compute_dtype = \"bf16\"\nreduce_dtype = \"bf16\"" + budget;
    check_alike(job);
  }
}

}  // namespace
}  // namespace pliant::sharded
