// What `pliant trace` shows of a trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/trace_report.hpp"

namespace pliant::cli {

struct TraceChoice {
  std::optional<int64_t> rank;  ///< none: all
  std::optional<int64_t> step;
};

/// A sound trace with what is to be said of it.
struct TraceStudy {
  /// Reports on the chosen rank and step. Throws kNotFound (exit 2) where the trace has no such rank or step, saying
  /// which it has.
  TraceStudy(std::string file, sharded::TraceFile trace, const TraceChoice& choice);

  std::string file;
  sharded::TraceFile trace;
  sharded::TraceReport report;

  [[nodiscard]] const sharded::TracedRank& rank_of(size_t of) const { return trace.ranks[of]; }
  /// The wait at this place of `report` in words.
  [[nodiscard]] std::string sentence(const sharded::ReportedWait& wait) const;
  /// Places in `report.waits`, the longest first.
  [[nodiscard]] std::vector<size_t> longest_waits() const;
};

/// "steady", "learning", "cut off", "evaluation" or "no pass".
const char* kind_of_step(const sharded::ReportedStep& step);

struct CauseTotal {
  sharded::WaitCause cause{};
  int64_t waits = 0;
  double microseconds = 0;
  double steady = 0;  ///< of these, in steady steps
};
/// Of causes that there are, the longest first.
std::vector<CauseTotal> totals_of(const TraceStudy& study);

std::string trace_text(const TraceStudy& study);
/// One line, schema pliant.trace_report/1.
std::string trace_json(const TraceStudy& study);
/// An SVG document: the timeline of one step of one rank, the chosen one, or rank 0 and the last step that was recorded
/// whole, of the latest generation. Throws kNotFound (exit 2) where there is none.
std::string trace_figure(const TraceStudy& study, const TraceChoice& choice);

}  // namespace pliant::cli
