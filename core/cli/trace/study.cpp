// What is said of a trace: all of it, or a rank, or a step.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "pliant/error.hpp"
#include "trace/views.hpp"

namespace pliant::cli {

namespace {

/// "0 to 3", "0, 2, 7": runs of numbers.
std::string runs_text(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t first = *at;
    int64_t last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", first,
                        last > first ? fmt::format("{}{}", last == first + 1 ? ", " : " to ", last) : "");
  }
  return text.empty() ? "none" : text;
}

void require_chosen(const std::string& file, const sharded::TraceFile& trace, const TraceChoice& choice) {
  std::set<int64_t> ranks;
  std::set<int64_t> steps;
  for (const sharded::TracedRank& one : trace.ranks) {
    ranks.insert(one.rank);
    if (choice.rank && one.rank != *choice.rank) continue;
    for (const sharded::TracedCall& call : one.calls) steps.insert(call.step);
  }
  const auto refuse = [&](const char* option, const char* what, int64_t number, const std::set<int64_t>& there) {
    throw Error(Status::kNotFound,
                fmt::format("--{} {}: {} has no such {}; it has {}", option, number, file, what, runs_text(there)),
                Origin::kInput);
  };
  if (choice.rank && ranks.count(*choice.rank) == 0) refuse("rank", "rank", *choice.rank, ranks);
  if (choice.step && steps.count(*choice.step) == 0) refuse("step", "step", *choice.step, steps);
}

}  // namespace

TraceStudy::TraceStudy(std::string from, sharded::TraceFile read, const TraceChoice& choice)
    : file(std::move(from)), trace(std::move(read)) {
  require_chosen(file, trace, choice);
  report = sharded::report_of(trace);
  const auto is_other = [&](const auto& one) {
    return (choice.rank && trace.ranks[one.of].rank != *choice.rank) || (choice.step && one.step != *choice.step);
  };
  std::erase_if(report.steps, is_other);
  std::erase_if(report.waits, is_other);
}

std::string TraceStudy::sentence(const sharded::ReportedWait& wait) const {
  return sharded::sentence_of(trace, wait.of, wait.wait);
}

std::vector<size_t> TraceStudy::longest_waits() const {
  std::vector<size_t> places(report.waits.size());
  std::iota(places.begin(), places.end(), size_t{0});
  std::stable_sort(places.begin(), places.end(), [this](size_t left, size_t right) {
    return report.waits[left].wait.microseconds > report.waits[right].wait.microseconds;
  });
  return places;
}

const char* kind_of_step(const sharded::ReportedStep& step) {
  if (step.passes == 0) return step.evaluations > 0 ? "evaluation" : "no pass";
  if (!step.is_whole) return "cut off";
  return step.learns ? "learning" : "steady";
}

std::vector<CauseTotal> totals_of(const TraceStudy& study) {
  std::set<std::pair<size_t, int64_t>> steady;
  for (const sharded::ReportedStep& one : study.report.steps) {
    if (one.is_whole && !one.learns) steady.emplace(one.of, one.step);
  }
  std::array<CauseTotal, sharded::kWaitCauses> all{};
  for (const sharded::ReportedWait& one : study.report.waits) {
    CauseTotal& total = all[static_cast<size_t>(one.wait.cause)];
    total.cause = one.wait.cause;
    ++total.waits;
    total.microseconds += one.wait.microseconds;
    if (steady.count({one.of, one.step}) > 0) total.steady += one.wait.microseconds;
  }
  std::vector<CauseTotal> made;
  std::copy_if(all.begin(), all.end(), std::back_inserter(made), [](const CauseTotal& one) { return one.waits > 0; });
  std::stable_sort(made.begin(), made.end(), [](const CauseTotal& left, const CauseTotal& right) {
    return left.microseconds > right.microseconds;
  });
  return made;
}

}  // namespace pliant::cli
