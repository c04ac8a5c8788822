#include "sharded/trace/trace_report.hpp"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "sharded/trace/trace_orders.hpp"
#include "sharded/trace/traced_program.hpp"

namespace pliant::sharded {
namespace {

/// Steps of a generation after which nothing new is learnt where the order stays.
constexpr size_t kLearningSteps = 2;

struct Interval {
  double began = 0;
  double ended = 0;
};

/// The same points, in intervals that do not touch, ascending.
std::vector<Interval> united(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& left, const Interval& right) { return left.began < right.began; });
  std::vector<Interval> made;
  for (const Interval& one : intervals) {
    if (one.ended <= one.began) continue;
    if (!made.empty() && one.began <= made.back().ended) {
      made.back().ended = std::max(made.back().ended, one.ended);
    } else {
      made.push_back(one);
    }
  }
  return made;
}

double length_of(const std::vector<Interval>& apart) {
  double all = 0;
  for (const Interval& one : apart) all += one.ended - one.began;
  return all;
}

double common_length(const std::vector<Interval>& left, const std::vector<Interval>& right) {
  double all = 0;
  for (size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    all += std::max(std::min(left[i].ended, right[j].ended) - std::max(left[i].began, right[j].began), 0.0);
    ++(left[i].ended < right[j].ended ? i : j);
  }
  return all;
}

/// Reads one rank's steps.
class StepReader {
 public:
  StepReader(const TraceFile& trace, size_t of)
      : rank_(trace.ranks[of]),
        of_(of),
        orders_(rank_.calls),
        least_(least_gathered(*trace.model, rank_.calls, {trace.budget, trace.compute, trace.reduce})) {
    for (const TracedStep& step : whole_steps(rank_)) whole_.insert(step.front().front().step);
  }

  /// `waits`: caused_waits() of the rank.
  [[nodiscard]] std::vector<ReportedStep> read(const std::vector<CausedWait>& waits) {
    std::vector<ReportedStep> made;
    size_t wait = 0;
    for (size_t begin = 0; begin < rank_.calls.size();) {
      size_t end = begin + 1;
      while (end < rank_.calls.size() && rank_.calls[end].step == rank_.calls[begin].step) ++end;
      ReportedStep step = of_calls(begin, end);
      step.learns = step.learns || made.size() < kLearningSteps;
      add_transfers(step, begin, end);
      for (; wait < waits.size() && waits[wait].call < end; ++wait) {
        ++step.waits;
        step.waited += waits[wait].microseconds;
      }
      made.push_back(step);
      begin = end;
    }
    return made;
  }

 private:
  using Kind = TracedCall::Kind;

  [[nodiscard]] ReportedStep of_calls(size_t begin, size_t end) const {
    ReportedStep made;
    made.of = of_;
    made.step = rank_.calls[begin].step;
    made.is_whole = whole_.count(made.step) > 0;
    made.began = rank_.calls[begin].began;
    made.ended = rank_.calls[end - 1].ended;
    for (size_t at = begin; at < end; ++at) {
      const TracedCall& call = rank_.calls[at];
      made.passes += call.kind == Kind::kBeginPass ? 1 : 0;
      made.evaluations += call.kind == Kind::kBeginEvaluation ? 1 : 0;
      made.least.with_room += least_[at].with_room;
      made.least.at_budget += least_[at].at_budget;
      made.peak = std::max({made.peak, call.live_bytes, call.most_bytes});
      if (call.kind == Kind::kEnter && orders_.left_at(at)) made.learns = true;
    }
    return made;
  }

  /// Those that the calls from `begin` to `end` enqueued.
  void add_transfers(ReportedStep& step, size_t begin, size_t end) {
    std::vector<Interval> exchange;
    for (; transfer_ < rank_.transfers.size() && rank_.transfers[transfer_].call < end; ++transfer_) {
      const TracedTransfer& one = rank_.transfers[transfer_];
      exchange.push_back({one.began, one.ended});
      if (one.kind == TracedTransfer::Kind::kReduce) {
        step.reduced += one.bytes;
      } else if (rank_.calls[one.call].kind == Kind::kByHand) {
        step.by_hand += one.bytes;
      } else {
        step.gathered += one.bytes;
        step.ahead += one.is_ahead ? one.bytes : 0;
      }
    }
    std::vector<Interval> still;
    for (size_t at = begin; at < end; ++at) {
      const TracedCall& call = rank_.calls[at];
      if (call.kind == Kind::kEndPass || call.kind == Kind::kEndStep) still.push_back({call.began, call.ended});
    }
    for (; wait_ < rank_.waits.size() && rank_.waits[wait_].call < end; ++wait_) {
      still.push_back({rank_.waits[wait_].began, rank_.waits[wait_].ended});
    }
    const std::vector<Interval> apart = united(std::move(exchange));
    step.exchange = length_of(apart);
    step.exposed = common_length(apart, united(std::move(still)));
  }

  const TracedRank& rank_;
  const size_t of_;
  const TraceOrders orders_;
  const std::vector<LeastGathered> least_;
  std::set<int64_t> whole_;
  size_t transfer_ = 0;
  size_t wait_ = 0;
};

}  // namespace

TraceFile in_turn(TraceFile trace) {
  const auto by_call = [](const auto& left, const auto& right) { return left.call < right.call; };
  for (TracedRank& rank : trace.ranks) {
    std::stable_sort(rank.transfers.begin(), rank.transfers.end(), by_call);
    std::stable_sort(rank.waits.begin(), rank.waits.end(), by_call);
  }
  return trace;
}

TraceReport report_of(const TraceFile& trace) {
  TraceReport made;
  for (size_t of = 0; of < trace.ranks.size(); ++of) {
    std::vector<CausedWait> waits = caused_waits(trace, of);
    const std::vector<ReportedStep> steps = StepReader(trace, of).read(waits);
    made.steps.insert(made.steps.end(), steps.begin(), steps.end());
    for (CausedWait& wait : waits) {
      const int64_t step = trace.ranks[of].calls[wait.call].step;
      made.waits.push_back({of, step, std::move(wait)});
    }
  }
  return made;
}

}  // namespace pliant::sharded
