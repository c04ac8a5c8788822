// TraceLog: what a worker left is read, also where it was killed as it wrote, or had no room for more.
#include "sharded/trace/trace_log.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "scratch_folder.hpp"
#include "unit/sharded/says.hpp"
#include "unit/sharded/traces.hpp"

namespace pliant::sharded {
namespace {

/// What is in `trace`, whose ranks are those that one worker was, in turn.
void record_all(TraceLog& log, const TraceFile& trace) {
  for (const TracedRank& rank : trace.ranks) {
    log.begin({rank.generation, rank.rank, rank.world_size, trace.model ? &*trace.model : nullptr, trace.coordinator,
               trace.budget, trace.compute, trace.reduce, trace.host_visible.value_or(true)});
    for (const TracedCall& call : rank.calls) log.add(call);
    for (const TracedTransfer& transfer : rank.transfers) log.add(transfer);
    for (const TracedWait& wait : rank.waits) log.add(wait);
  }
}

TraceLog new_log(const test::ScratchFolder& folder, uint64_t most_bytes = TraceLog::kMostBytes) {
  auto made = TraceLog::create(folder / "log", most_bytes);
  REQUIRE(made.has_value());
  return std::move(*made);
}

/// As read from a log: who wrote it is told by its name, and what run it is of by the folder.
TraceFile as_recorded(TraceFile trace, int64_t worker) {
  trace.run.clear();
  for (TracedRank& rank : trace.ranks) {
    rank.worker = worker;
    rank.is_cut = false;
    for (TracedCall& call : rank.calls) {
      for (pliant_action& action : call.actions) {
        if (action.kind == PLIANT_ACTION_DROP_TRACE || action.kind == PLIANT_ACTION_BOUND_WAITS)
          action.parameter = PLIANT_NO_PARAMETER;
      }
    }
  }
  return trace;
}

}  // namespace

TEST_CASE("a log holds what a worker did in all its generations, while it is written and when it is there no more") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const TraceFile trace = seed == 0 ? small_trace() : random_trace(seed);
    if (trace.ranks.empty()) continue;
    CAPTURE(seed);
    const test::ScratchFolder folder;
    std::optional<TraceLog> log = new_log(folder);
    record_all(*log, trace);
    for (const bool is_there : {true, false}) {
      if (!is_there) log.reset();
      const auto read = read_trace_log(folder / "log", 5);
      REQUIRE(read.has_value());
      check_same(as_recorded(trace, 5), *read);
    }
  }
}

TEST_CASE("a log of more than its pages holds all of it") {
  const test::ScratchFolder folder;
  TraceLog log = new_log(folder);
  TraceFile trace = small_trace();
  trace.ranks.resize(1);
  for (int i = 0; i < 15; ++i) {
    auto twice = trace.ranks[0].calls;
    trace.ranks[0].calls.insert(trace.ranks[0].calls.end(), twice.begin(), twice.end());
  }
  record_all(log, trace);
  CHECK_FALSE(log.is_full());
  const auto read = read_trace_log(folder / "log", 0);
  REQUIRE(read.has_value());
  check_same(as_recorded(trace, 0), *read);
}

TEST_CASE("a process that is killed leaves what it had") {
  const test::ScratchFolder folder;
  const TraceFile trace = small_trace();
  const pid_t pid = ::fork();
  if (pid == 0) {
    auto log = TraceLog::create(folder / "log");
    if (log) record_all(*log, trace);
    ::kill(::getpid(), SIGKILL);
  }
  REQUIRE(pid > 0);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  const auto read = read_trace_log(folder / "log", 1);
  REQUIRE(read.has_value());
  check_same(as_recorded(trace, 1), *read);
}

TEST_CASE("transfers and waits of a call that never ended are left out") {
  const test::ScratchFolder folder;
  TraceLog log = new_log(folder);
  const TraceFile trace = small_trace();
  log.begin({1, 0, 1, &*trace.model});
  log.add(traced_call(TracedCall::Kind::kBeginPass, 0));
  TracedTransfer transfer;
  log.add(transfer);
  transfer.call = 1;
  log.add(transfer);
  log.add(TracedWait{TracedTransfer::Kind::kGather, 0, 1, 0, 1});
  const auto read = read_trace_log(folder / "log", 0);
  REQUIRE(read.has_value());
  CHECK(read->ranks.front().transfers.size() == 1);
  CHECK(read->ranks.front().waits.empty());
}

TEST_CASE("a log that is full says so and keeps what it had") {
  const test::ScratchFolder folder;
  TraceLog log = new_log(folder, uint64_t{1} << 20U);
  const TraceFile trace = small_trace();
  log.begin({1, 0, 1, &*trace.model});
  int64_t added = 0;
  for (; !log.is_full(); ++added) log.add(traced_call(TracedCall::Kind::kEnter, static_cast<double>(added), 1));
  log.add(trace.ranks[0].transfers[0]);
  const auto read = read_trace_log(folder / "log", 0);
  REQUIRE(read.has_value());
  const TracedRank& rank = read->ranks.front();
  CHECK(rank.is_cut);
  CHECK(static_cast<int64_t>(rank.calls.size()) == added - 1);
  CHECK(rank.calls.back().began == static_cast<double>(added - 2));
  CHECK(rank.transfers.empty());
}

TEST_CASE("what is no log is refused, and one that was cut is read up to there") {
  const test::ScratchFolder folder;
  CHECK(read_trace_log(folder / "none", 0).error().status() == Status::kNotFound);
  for (const std::string& text : {std::string("pliant"), std::string(5000, 'x'), std::string()}) {
    test::write_all(folder / "other", text);
    const auto read = read_trace_log(folder / "other", 0);
    CHECK(read.error().status() == Status::kDataLoss);
    CHECK(says(read.error().message(), "is not a worker's record for a trace"));
  }
  {
    TraceLog log = new_log(folder);
    record_all(log, small_trace());
  }
  const std::string whole = test::read_all(folder / "log");
  size_t calls = 0;
  for (size_t bytes = 1200; bytes < 6000; bytes += 37) {
    test::write_all(folder / "log", whole.substr(0, bytes));
    const auto read = read_trace_log(folder / "log", 0);
    if (!read) continue;  // the model was cut
    size_t now = 0;
    for (const TracedRank& rank : read->ranks) now += rank.calls.size();
    CHECK(now >= calls);
    calls = now;
  }
  CHECK(calls > 0);
  CHECK(TraceLog::create(folder / "no" / "log").error().status() == Status::kNotFound);
}

}  // namespace pliant::sharded
