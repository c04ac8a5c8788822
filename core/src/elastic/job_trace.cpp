#include "elastic/job_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/whole_file.hpp"
#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/trace_log.hpp"

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;

/// Calls `each` with every time in it.
template <class Each>
void for_times(sharded::TraceFile& trace, const Each& each) {
  for (sharded::TracedRank& rank : trace.ranks) {
    for (auto& one : rank.calls) each(one.began), each(one.ended);
    for (auto& one : rank.transfers) each(one.began), each(one.ended);
    for (auto& one : rank.waits) each(one.began), each(one.ended);
  }
}

/// Times count from the first event on. The clocks of devices are read now and then, and may be off by a little.
void begin_at_zero(sharded::TraceFile& trace) {
  double first = std::numeric_limits<double>::infinity();
  for_times(trace, [&first](double& time) { first = std::min(first, time); });
  for_times(trace, [first](double& time) { time -= first; });
}

void sort_ranks(sharded::TraceFile& trace) {
  std::sort(trace.ranks.begin(), trace.ranks.end(), [](const auto& a, const auto& b) {
    return std::pair(a.generation, a.rank) < std::pair(b.generation, b.rank);
  });
}

/// What one worker recorded goes to what others did. What is the job's is that of the latest generation.
void take_worker(sharded::TraceFile& trace, sharded::TraceFile&& worker, int64_t& latest) {
  if (worker.ranks.empty()) return;
  const int64_t generation = worker.ranks.back().generation;
  if (std::exchange(latest, std::max(latest, generation)) < generation) {
    trace.coordinator = std::move(worker.coordinator);
    trace.budget = worker.budget;
    trace.compute = worker.compute;
    trace.reduce = worker.reduce;
    trace.host_visible = worker.host_visible;
    trace.model = std::move(worker.model);
  }
  std::move(worker.ranks.begin(), worker.ranks.end(), std::back_inserter(trace.ranks));
}

WrittenTrace facts_of(const sharded::TraceFile& trace) {
  WrittenTrace facts;
  facts.is_sharded = trace.model.has_value();
  std::map<int64_t, int64_t> ranks;  // by generation
  std::set<int64_t> steps;
  for (const sharded::TracedRank& rank : trace.ranks) {
    facts.ranks = std::max(facts.ranks, ++ranks[rank.generation]);
    facts.cut += rank.is_cut ? 1 : 0;
    for (const sharded::TracedCall& call : rank.calls) steps.insert(call.step);
  }
  facts.generations = static_cast<int64_t>(ranks.size());
  facts.steps = static_cast<int64_t>(steps.size());
  return facts;
}

std::string counted(int64_t number, std::string_view unit) {
  return fmt::format("{} {}{}", number, unit, number == 1 ? "" : "s");
}

}  // namespace

Result<> check_trace_file(const fs::path& file) {
  bool can_be_written = false;
  WholeFile nothing;
  nothing.fill = [](int) { return 0; };
  nothing.before_name = [&can_be_written]() -> Result<> {
    can_be_written = true;
    return failed(Status::kAborted, "it was only tried");
  };
  const Result<> tried = write_whole(file, nothing, true);
  if (can_be_written) return {};
  return tl::unexpected<Error>(tried.error().with_message(fmt::format("--trace: {}", tried.error().message())));
}

Result<WrittenTrace> write_job_trace(const RunDirectory& directory, const std::string& run, const fs::path& file) {
  sharded::TraceFile trace;
  trace.run = run;
  int64_t latest = -1;
  std::string unread;
  for (const auto& [worker, record] : directory.traces()) {
    Result<sharded::TraceFile> read = sharded::read_trace_log(record, worker);
    if (read) {
      take_worker(trace, std::move(*read), latest);
    } else {
      unread = read.error().message();
    }
  }
  directory.remove_traces();
  sort_ranks(trace);
  begin_at_zero(trace);
  WrittenTrace facts = facts_of(trace);
  facts.unread = std::move(unread);
  if (facts.generations == 0) return facts;
  if (Result<> written = sharded::write_trace(trace, file); !written) return failed(std::move(written));
  std::error_code error;
  const uintmax_t bytes = fs::file_size(file, error);
  if (!error) facts.bytes = bytes;
  return facts;
}

std::string words_of(const WrittenTrace& trace, const fs::path& file) {
  if (trace.generations == 0) {
    return fmt::format(
        "trace: {} was not written: {}", file.string(),
        trace.unread.empty() ? "no worker of this job computed anything with the embedding API" : trace.unread);
  }
  std::string text = fmt::format("trace: {}, {}", file.string(), counted(trace.ranks, "rank"));
  if (trace.generations > 1) text += ", " + counted(trace.generations, "generation");
  text += fmt::format(", {}, {:.1f} MiB; open it in ui.perfetto.dev", counted(trace.steps, "step"),
                      static_cast<double>(trace.bytes) / (1U << 20U));
  text += trace.is_sharded ? fmt::format(" or read it with `pliant trace {}`", file.string())
                           : "; the job is not sharded: the trace has only the times of reductions";
  if (trace.cut > 0) text += fmt::format("; the record of {} was full before the end", counted(trace.cut, "worker"));
  if (!trace.unread.empty()) text += fmt::format("; a worker is missing in it: {}", trace.unread);
  return text;
}

}  // namespace pliant::elastic
