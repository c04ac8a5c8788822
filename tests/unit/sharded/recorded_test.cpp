// Runtime with a recorder: what is in the trace is what the program did, what was answered, what was moved and held.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "scratch_folder.hpp"
#include "sharded/runtime.hpp"
#include "sharded/trace/trace_log.hpp"
#include "unit/elastic/device_machines.hpp"
#include "unit/sharded/networks.hpp"
#include "unit/sharded/traces.hpp"

namespace pliant::sharded {
namespace {

using CallKind = TracedCall::Kind;

/// What ranks recorded, in files of a folder.
class RankLogs {
 public:
  TraceRecorder recorder(const Accelerator& accelerator, int32_t rank) {
    return {accelerator, 0, or_throw(TraceLog::create(file(rank)))};
  }
  [[nodiscard]] TraceFile read(int32_t rank) const { return or_throw(read_trace_log(file(rank), rank)); }

 private:
  [[nodiscard]] std::filesystem::path file(int32_t rank) const { return folder_ / std::to_string(rank); }
  test::ScratchFolder folder_;
};

/// Groups of `kind` that were answered with something to move, in turn: the call, and the parameters.
std::vector<std::pair<size_t, std::vector<uint32_t>>> answered_groups(const TracedRank& rank, uint32_t kind) {
  std::vector<std::pair<size_t, std::vector<uint32_t>>> found;
  for (size_t call = 0; call < rank.calls.size(); ++call) {
    std::optional<uint32_t> group;
    for (const pliant_action& action : rank.calls[call].actions) {
      if (action.kind != kind) continue;
      if (std::exchange(group, action.group) != action.group) found.emplace_back(call, std::vector<uint32_t>());
      found.back().second.push_back(action.parameter);
    }
  }
  return found;
}

std::vector<std::pair<size_t, std::vector<uint32_t>>> moved_groups(const TracedRank& rank, TracedTransfer::Kind kind) {
  std::vector<std::pair<size_t, std::vector<uint32_t>>> found;
  for (const TracedTransfer& transfer : rank.transfers) {
    if (transfer.kind == kind) found.emplace_back(transfer.call, transfer.parameters);
  }
  return found;
}

/// In turn, none within another, and what was held is between them.
void check_calls(const TracedRank& rank) {
  for (size_t i = 0; i < rank.calls.size(); ++i) {
    const TracedCall& call = rank.calls[i];
    CHECK(call.began <= call.ended);
    CHECK(call.live_bytes <= call.most_bytes);
    if (i == 0) continue;
    CHECK(rank.calls[i - 1].ended <= call.began);
    CHECK(rank.calls[i - 1].live_bytes <= call.most_bytes);
    CHECK(rank.calls[i - 1].step <= call.step);
  }
  for (const TracedTransfer& transfer : rank.transfers) CHECK(transfer.began <= transfer.ended);
  for (const TracedWait& wait : rank.waits) CHECK(wait.ended - wait.began >= 1);
}

uint64_t most_held(const TracedRank& rank) {
  uint64_t most = 0;
  for (const TracedCall& call : rank.calls) most = std::max(most, call.most_bytes);
  return most;
}

std::vector<std::pair<CallKind, std::optional<uint32_t>>> kinds_of(const TracedRank& rank) {
  std::vector<std::pair<CallKind, std::optional<uint32_t>>> kinds;
  for (const TracedCall& call : rank.calls) kinds.emplace_back(call.kind, call.module);
  return kinds;
}

}  // namespace

TEST_CASE("a trace has the calls of the program, what was answered, what that moved, and the most that was held") {
  const Accelerator accelerator = test::open_host();
  for (const auto& way : kWays) {
    const auto& coordinator = way.first;  // clang captures no bindings
    const auto& options = way.second;
    for (const int32_t world_size : {1, 2, 3}) {
      CAPTURE(coordinator);
      CAPTURE(options);
      CAPTURE(world_size);
      RankLogs logs;
      std::vector<ShardedMemory> held(static_cast<size_t>(world_size));
      std::vector<size_t> rounds(static_cast<size_t>(world_size));
      test::run_healthy_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
        Stream program(accelerator, 0);
        Runtime runtime(config_of(coordinator, options), accelerator, 0, program, stream, {});
        const Networks of(runtime, false);
        TraceRecorder recorder = logs.recorder(accelerator, rank);
        runtime.record(&recorder);
        runtime.enter_group(group);
        runtime.initialise();
        runtime.begin_recording(7);
        for (int64_t step = 0; step < 3; ++step) {
          recorder.begin_step(step);
          take_step(runtime, of, rank, world_size, plain_pass);
        }
        held[static_cast<size_t>(rank)] = runtime.memory();
        rounds[static_cast<size_t>(rank)] = runtime.rounds();
        runtime.leave_group();
        runtime.record(nullptr);
      });
      std::vector<std::pair<CallKind, std::optional<uint32_t>>> expected;
      for (int step = 0; step < 3; ++step) {
        for (size_t pass = 0; pass < rounds[0]; ++pass) {
          expected.insert(expected.end(), {{CallKind::kBeginPass, std::nullopt},
                                           {CallKind::kEnter, 0},
                                           {CallKind::kEnter, 1},
                                           {CallKind::kLeave, 1},
                                           {CallKind::kLeave, 0},
                                           {CallKind::kEnter, 0},
                                           {CallKind::kEnter, 1},
                                           {CallKind::kLeave, 1},
                                           {CallKind::kLeave, 0},
                                           {CallKind::kEndPass, std::nullopt}});
        }
        expected.emplace_back(CallKind::kEndStep, std::nullopt);
      }
      const TraceFile first = logs.read(0);
      for (int32_t rank = 0; rank < world_size; ++rank) {
        CAPTURE(rank);
        const TraceFile trace = logs.read(rank);
        CHECK(trace.coordinator == coordinator);
        CHECK(trace.model->description() == first.model->description());
        CHECK(trace.model->parameter(0).name == "policy.weights");
        REQUIRE(trace.ranks.size() == 1);
        const TracedRank& one = trace.ranks.front();
        CHECK(std::tuple(one.rank, one.worker, one.generation, one.world_size, one.is_cut) ==
              std::tuple(rank, int64_t{rank}, int64_t{7}, world_size, false));
        CHECK(kinds_of(one) == expected);
        CHECK(one.calls[6].direction == Direction::kBackward);
        CHECK(one.calls.back().step == 2);
        for (size_t i = 0; i < one.calls.size(); ++i)
          CHECK(same_actions(one.calls[i].actions, first.ranks.front().calls[i].actions));
        check_calls(one);
        CHECK(most_held(one) == held[static_cast<size_t>(rank)].gathered_most);
        CHECK(one.calls.back().live_bytes == 0);
        const auto gathers = moved_groups(one, TracedTransfer::Kind::kGather);
        CHECK(gathers == answered_groups(one, PLIANT_ACTION_GATHER));
        CHECK_FALSE(gathers.empty());
        const auto reduces = moved_groups(one, TracedTransfer::Kind::kReduce);
        CHECK(reduces.size() == 3 * rounds[0]);  // what no answer says leaves when its pass ends
        for (const TracedTransfer& transfer : one.transfers) CHECK(transfer.bytes == kElements * sizeof(float));
      }
    }
  }
}

TEST_CASE("what a device does is told by its own clock, and a stream that waited by its events") {
  for (const test::Machine& machine : test::machines()) {
    CAPTURE(machine.name);
    const Accelerator accelerator = test::open(machine);
    RankLogs logs;
    test::run_healthy_ranks(accelerator, 2, [&](int32_t rank, Communicator& group, Stream& stream) {
      Stream program(accelerator, 0);
      Runtime runtime(config_of("planned", fmt::format("budget = {}", kLeastBudget)), accelerator, 0, program, stream,
                      {});
      const Networks of(runtime, false);
      TraceRecorder recorder = logs.recorder(accelerator, rank);
      runtime.record(&recorder);
      runtime.enter_group(group);
      runtime.initialise();
      runtime.begin_recording(1);
      for (int64_t step = 0; step < 3; ++step) {
        recorder.begin_step(step);
        std::vector<RowRange> own;
        begin_step(runtime, rank, 2, own);
        for (const RowRange rows : own) {  // whose gradients are zeros
          runtime.begin_pass(rows);
          for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
            runtime.enter(of.policy, direction);
            runtime.leave(of.policy, direction);
          }
          runtime.end_pass();
        }
        program.synchronize();
        runtime.finish_gradient(1);
        runtime.allow_update();
        runtime.update([](const ShardRange&) {});
      }
      runtime.leave_group();
      runtime.record(nullptr);
    });
    for (const int32_t rank : {0, 1}) {
      const TraceFile trace = logs.read(rank);
      CHECK(trace.host_visible == accelerator.properties(0).host_visible);
      const TracedRank& one = trace.ranks.front();
      check_calls(one);
      CHECK(moved_groups(one, TracedTransfer::Kind::kGather) == answered_groups(one, PLIANT_ACTION_GATHER));
      CHECK_FALSE(one.transfers.empty());
      for (const TracedWait& wait : one.waits) CHECK(wait.of == TracedTransfer::Kind::kGather);
    }
  }
  test::check_doubles_are_clean();
}

TEST_CASE("a trace says over how many micro-batches a pass is") {
  const Accelerator accelerator = test::open_host();
  RankLogs logs;
  test::run_healthy_ranks(accelerator, 1, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    TraceRecorder recorder = logs.recorder(accelerator, rank);
    runtime.record(&recorder);
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_recording(1);
    recorder.begin_step(0);
    std::vector<RowRange> own;
    begin_step(runtime, rank, 1, own);
    REQUIRE(own.size() == 7);
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 5}, {5, 2}}) {
      runtime.begin_pass(std::span(own).subspan(first, count));
      runtime.enter(of.policy, Direction::kForward);
      runtime.leave(of.policy, Direction::kForward);
      runtime.enter(of.policy, Direction::kBackward);
      for (size_t i = 0; i < count; ++i) runtime.begin_micro_batch(i);
      runtime.leave(of.policy, Direction::kBackward);
      runtime.end_pass();
    }
    runtime.begin_evaluation();
    runtime.end_pass();
    runtime.finish_gradient(1);
    runtime.leave_group();
    runtime.record(nullptr);
  });
  std::vector<uint32_t> passes;
  const TraceFile trace = logs.read(0);
  for (const TracedCall& call : trace.ranks.front().calls) {
    if (call.kind == CallKind::kBeginPass || call.kind == CallKind::kBeginEvaluation)
      passes.push_back(call.micro_batches);
  }
  CHECK(fmt::format("{}", fmt::join(passes, " ")) == "5 2 1");
}

TEST_CASE("what is moved by hand is in the trace, and so is a pass that was given up") {
  const Accelerator accelerator = test::open_host();
  RankLogs logs;
  test::run_healthy_ranks(accelerator, 1, [&](int32_t rank, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    TraceRecorder recorder = logs.recorder(accelerator, rank);
    runtime.record(&recorder);
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_recording(1);
    runtime.fetch(of.trained);
    runtime.release(of.trained);
    static_cast<void>(read_whole(runtime, of.trained));
    runtime.begin_evaluation();
    runtime.enter(of.policy, Direction::kForward);
    runtime.abandon();
    runtime.begin_evaluation();
    runtime.end_pass();
    runtime.leave_group();
    runtime.enter_group(group, 1);
    runtime.initialise();
    runtime.begin_recording(2);
    runtime.begin_evaluation();
    runtime.end_pass();
    runtime.leave_group();
    runtime.record(nullptr);
  });
  const TraceFile trace = logs.read(0);
  REQUIRE(trace.ranks.size() == 2);
  const TracedRank& first = trace.ranks[0];
  CHECK(kinds_of(first) ==
        std::vector<std::pair<CallKind, std::optional<uint32_t>>>{{CallKind::kByHand, std::nullopt},
                                                                  {CallKind::kByHand, std::nullopt},
                                                                  {CallKind::kByHand, std::nullopt},
                                                                  {CallKind::kByHand, std::nullopt},
                                                                  {CallKind::kBeginEvaluation, std::nullopt},
                                                                  {CallKind::kEnter, 1},
                                                                  {CallKind::kBeginEvaluation, std::nullopt},
                                                                  {CallKind::kEndPass, std::nullopt}});
  for (const auto& [call, action] :
       {std::pair{0, PLIANT_ACTION_GATHER}, std::pair{1, PLIANT_ACTION_WAIT}, std::pair{2, PLIANT_ACTION_RELEASE}}) {
    REQUIRE(first.calls[static_cast<size_t>(call)].actions.size() == 1);
    CHECK(first.calls[static_cast<size_t>(call)].actions[0].kind == static_cast<uint32_t>(action));
  }
  REQUIRE(first.transfers.size() == 3);
  CHECK(first.transfers[1].call == 3);
  CHECK(first.transfers[2].call == 5);
  check_calls(first);
  CHECK(trace.ranks[1].generation == 2);
  CHECK(trace.ranks[1].calls.size() == 2);
}

TEST_CASE("a recorder whose log is full costs the program nothing but what is left out") {
  const Accelerator accelerator = test::open_host();
  const test::ScratchFolder folder;
  test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& group, Stream& stream) {
    Stream program(accelerator, 0);
    Runtime runtime(config_of("eager"), accelerator, 0, program, stream, {});
    const Networks of(runtime, false);
    TraceRecorder recorder(accelerator, 0, or_throw(TraceLog::create(folder / "log", 1)));
    runtime.record(&recorder);
    runtime.enter_group(group);
    runtime.initialise();
    runtime.begin_recording(1);
    for (int pass = 0; pass < 3000; ++pass) {
      runtime.begin_evaluation();
      runtime.enter(of.policy, Direction::kForward);
      runtime.leave(of.policy, Direction::kForward);
      runtime.end_pass();
    }
    CHECK(runtime.memory().gathered == 0);
    runtime.leave_group();
    runtime.record(nullptr);
  });
  const TraceFile trace = or_throw(read_trace_log(folder / "log", 0));
  CHECK(trace.ranks.front().is_cut);
  CHECK(trace.ranks.front().calls.size() > 1000);
  CHECK(trace.ranks.front().calls.size() < 12000);
}

}  // namespace pliant::sharded
