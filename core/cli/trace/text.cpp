// The tables of `pliant trace`.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "output.hpp"
#include "trace/views.hpp"

namespace pliant::cli {

namespace {

constexpr size_t kLongest = 10;

std::string mebibyte_text(double bytes) {
  return fmt::format("{:.2f} MiB", bytes / (1 << 20));
}

/// Steps of one rank that follow each other and are of one kind.
struct StepRange {
  const sharded::ReportedStep* first = nullptr;
  const sharded::ReportedStep* last = nullptr;
  double count = 0;
  double gathered = 0;
  double at_budget = 0;
  double with_room = 0;
  uint64_t peak = 0;
  double exchange = 0;
  double exposed = 0;
  double waited = 0;
};

std::vector<StepRange> ranges_of(const std::vector<sharded::ReportedStep>& steps) {
  std::vector<StepRange> made;
  for (const sharded::ReportedStep& one : steps) {
    const bool goes_on = !made.empty() && made.back().last->of == one.of &&
                         std::string_view(kind_of_step(*made.back().last)) == kind_of_step(one);
    if (!goes_on) {
      made.emplace_back();
      made.back().first = &one;
    }
    StepRange& range = made.back();
    range.last = &one;
    ++range.count;
    range.gathered += static_cast<double>(one.gathered);
    range.at_budget += static_cast<double>(one.least.at_budget);
    range.with_room += static_cast<double>(one.least.with_room);
    range.peak = std::max(range.peak, one.peak);
    range.exchange += one.exchange;
    range.exposed += one.exposed;
    range.waited += one.waited;
  }
  return made;
}

std::string head_of(const TraceStudy& study) {
  std::set<int32_t> ranks;
  std::set<int64_t> generations;
  for (const sharded::TracedRank& one : study.trace.ranks) {
    ranks.insert(one.rank);
    generations.insert(one.generation);
  }
  return fmt::format("trace        {}: run {}, {}, {}\ncoordinator  {}, {}\n\n", study.file, study.trace.run,
                     counted(static_cast<int64_t>(ranks.size()), "rank"),
                     counted(static_cast<int64_t>(generations.size()), "generation"), study.trace.coordinator,
                     study.trace.budget == 0 ? std::string("no budget")
                                             : "budget " + mebibyte_text(static_cast<double>(study.trace.budget)));
}

std::string steps_table(const TraceStudy& study) {
  const bool has_budget = study.trace.budget > 0;
  std::vector<std::vector<std::string>> cells{
      {"steps", "generation", "rank", "gathered", "minimum", "without budget", "peak", "exchange", "hidden", "waits"}};
  if (!has_budget) cells.front().erase(cells.front().begin() + 5);
  for (const StepRange& range : ranges_of(study.report.steps)) {
    const sharded::TracedRank& rank = study.rank_of(range.first->of);
    const std::string numbers = range.first == range.last ? fmt::format("{}", range.first->step)
                                                          : fmt::format("{}-{}", range.first->step, range.last->step);
    std::vector<std::string> row{fmt::format("{} {}", numbers, kind_of_step(*range.first)),
                                 fmt::format("{}", rank.generation), fmt::format("{}", rank.rank),
                                 mebibyte_text(range.gathered / range.count),
                                 mebibyte_text(range.at_budget / range.count)};
    if (has_budget) row.push_back(mebibyte_text(range.with_room / range.count));
    const double hidden = range.exchange > 0 ? 1 - range.exposed / range.exchange : 1;
    row.push_back(mebibyte_text(static_cast<double>(range.peak)));
    row.push_back(sharded::milliseconds_text(range.exchange / range.count));
    row.push_back(fmt::format("{:.0f} %", 100 * hidden));
    row.push_back(sharded::milliseconds_text(range.waited / range.count));
    cells.push_back(std::move(row));
  }
  std::string text = table(cells, 1) + "Values are means per step; peak is the maximum.\n";
  for (const sharded::TracedRank& rank : study.trace.ranks) {
    if (!rank.is_cut || rank.calls.empty()) continue;
    text += fmt::format("Rank {} in generation {} recorded nothing after step {}: its part of the trace was full.\n",
                        rank.rank, rank.generation, rank.calls.back().step);
  }
  return text;
}

std::string waits_text(const TraceStudy& study) {
  const auto& waits = study.report.waits;
  if (waits.empty()) return "\nNo visit waited.\n";
  std::set<int64_t> generations;
  for (const sharded::TracedRank& one : study.trace.ranks) generations.insert(one.generation);
  const size_t shown = std::min(waits.size(), kLongest);
  std::string text = shown < waits.size() ? fmt::format("\nThe longest {} of {} waits:\n", shown, waits.size())
                                          : fmt::format("\nWaits, longest first:\n");
  const std::vector<size_t> places = study.longest_waits();
  for (size_t i = 0; i < shown; ++i) {
    const sharded::ReportedWait& one = waits[places[i]];
    const sharded::TracedRank& rank = study.rank_of(one.of);
    text += fmt::format("  step {}, rank {}{}: {}\n", one.step, rank.rank,
                        generations.size() > 1 ? fmt::format(", generation {}", rank.generation) : std::string(),
                        study.sentence(one));
  }
  std::vector<std::vector<std::string>> cells{{"cause", "waits", "time", "in steady steps"}};
  for (const CauseTotal& one : totals_of(study)) {
    cells.push_back({sharded::words_of(one.cause), grouped(one.waits), sharded::milliseconds_text(one.microseconds),
                     sharded::milliseconds_text(one.steady)});
  }
  return text + "\n" + table(cells, 1);
}

}  // namespace

std::string trace_text(const TraceStudy& study) {
  return head_of(study) + steps_table(study) + waits_text(study);
}

}  // namespace pliant::cli
