// report_of(): what a trace says of each rank's steps: bytes against the least, time of exchange, waits and their
// causes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sharded/trace/trace_bound.hpp"
#include "sharded/trace/trace_file.hpp"
#include "sharded/trace/trace_waits.hpp"

namespace pliant::sharded {

/// Times in microseconds.
struct ReportedStep {
  size_t of = 0;  ///< place in TraceFile::ranks
  int64_t step = 0;
  /// Recorded from begin to end (whole_steps()): not those in which the rank died or gave up.
  bool is_whole = false;
  /// One of the first two of the rank's generation, after which the costs of gathers are known, or one with a pass in
  /// an order that was not there before.
  bool learns = false;
  int64_t passes = 0;  ///< with gradients
  int64_t evaluations = 0;
  double began = 0;
  double ended = 0;
  uint64_t gathered = 0;  ///< bytes, without those by hand
  uint64_t ahead = 0;     ///< of these, for a later visit
  uint64_t by_hand = 0;   ///< bytes that were fetched or read by hand
  LeastGathered least;
  uint64_t reduced = 0;  ///< bytes
  uint64_t peak = 0;     ///< the most bytes of the arena
  double exchange = 0;   ///< some transfer ran
  /// Of it, while the program waited for a parameter or a gradient, or ended a pass or a step.
  double exposed = 0;
  double waited = 0;
  size_t waits = 0;  ///< calls that waited

  [[nodiscard]] double hidden() const { return exchange > 0 ? 1 - exposed / exchange : 1; }
};

struct ReportedWait {
  size_t of = 0;  ///< place in TraceFile::ranks
  int64_t step = 0;
  CausedWait wait;
};

struct TraceReport {
  std::vector<ReportedStep> steps;  ///< by TraceFile::ranks, then in turn
  std::vector<ReportedWait> waits;  ///< likewise
};

/// The same, transfers and waits of each rank by their call.
TraceFile in_turn(TraceFile trace);

/// Of the trace of a sharded job, in_turn(). O(n log n) over calls, transfers and waits with their parameters.
TraceReport report_of(const TraceFile& trace);

}  // namespace pliant::sharded
