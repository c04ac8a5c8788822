#include "sharded/trace/trace_waits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <tuple>
#include <utility>

#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/exchange.hpp"
#include "sharded/trace/trace_orders.hpp"

namespace pliant::sharded {
namespace {

constexpr size_t kNoTransfer = std::numeric_limits<size_t>::max();
/// Transfers in front of a gather that are looked at: their time is added up, and more of them make no difference.
constexpr size_t kMostInFront = 64;
const char* words_of_kind(TracedTransfer::Kind kind) {
  return kind == TracedTransfer::Kind::kGather ? "gather" : "sum of gradients";
}

/// Of a wait, that one thing must have made to be its cause.
constexpr double kMostOfIt = 0.5;

class WaitReader {
 public:
  WaitReader(const TraceFile& trace, size_t of)
      : trace_(trace),
        model_(*trace.model),
        rank_(trace.ranks[of]),
        orders_(rank_.calls),
        latest_{std::vector<size_t>(model_.parameters().size(), kNoTransfer),
                std::vector<size_t>(model_.parameters().size(), kNoTransfer)} {
    for (size_t other = 0; other < trace.ranks.size(); ++other) {
      if (other != of && trace.ranks[other].generation == rank_.generation) others_.push_back(&trace.ranks[other]);
    }
    const bool is_ahead = std::any_of(rank_.transfers.begin(), rank_.transfers.end(),
                                      [](const TracedTransfer& one) { return one.is_ahead; });
    gathers_ahead_ = is_ahead || !orders_.came_back();
  }

  [[nodiscard]] std::vector<CausedWait> read() {
    std::vector<CausedWait> made;
    for (size_t begin = 0; begin < rank_.waits.size();) {
      size_t end = begin + 1;
      while (end < rank_.waits.size() && rank_.waits[end].call == rank_.waits[begin].call) ++end;
      take_transfers(rank_.waits[begin].call);
      CausedWait wait = of_visit(std::span(rank_.waits).subspan(begin, end - begin));
      if (wait.microseconds > 0) made.push_back(std::move(wait));
      begin = end;
    }
    return made;
  }

 private:
  struct Busy {
    double all = 0;         ///< microseconds
    size_t longest = 0;     ///< transfer
    bool is_other = false;  ///< that was begun by another call than the gather
  };

  void take_transfers(size_t call) {
    for (; next_ < rank_.transfers.size() && rank_.transfers[next_].call <= call; ++next_) {
      const TracedTransfer& one = rank_.transfers[next_];
      for (const uint32_t parameter : one.parameters) latest_[static_cast<size_t>(one.kind)][parameter] = next_;
    }
  }

  [[nodiscard]] CausedWait of_visit(std::span<const TracedWait> waits) const {
    const auto length = [](const TracedWait& one) { return std::max(one.ended - one.began, 0.0); };
    CausedWait made;
    made.call = waits.front().call;
    made.began = waits.front().began;
    const TracedWait* longest = &waits.front();
    for (const TracedWait& one : waits) {
      made.parameters.push_back(one.parameter);
      made.microseconds += length(one);
      if (length(one) > length(*longest)) longest = &one;
    }
    const size_t transfer = latest_[static_cast<size_t>(longest->of)][longest->parameter];
    if (transfer == kNoTransfer) {
      made.why = "the cause is not in the trace";
    } else {
      std::tie(made.cause, made.why) = cause_of(*longest, transfer);
    }
    return made;
  }

  using Cause = std::pair<WaitCause, std::string>;

  [[nodiscard]] Cause cause_of(const TracedWait& wait, size_t number) const {
    const TracedTransfer& gather = rank_.transfers[number];
    const double most = kMostOfIt * (wait.ended - wait.began);
    if (Cause late = of_other_ranks(wait, number); late.first == WaitCause::kOtherRank) return late;
    if (wait.of == TracedTransfer::Kind::kReduce) {
      const std::string& module = owner_of(wait.parameter, rank_.calls[gather.call]);
      return {WaitCause::kGradients, fmt::format("gradients of {} were being sent", module)};
    }
    const bool is_by_demand = gather.call == wait.call;
    if (is_by_demand && gathers_ahead_ && orders_.left_at(wait.call)) return without_order(wait);
    const std::string released = released_for(gather);
    const Busy busy = busy_before(number);
    if (busy.all >= most && (busy.is_other || released.empty())) return of_busy(busy);
    if (!released.empty()) return {WaitCause::kBudgetFull, fmt::format("budget full until {} was released", released)};
    if (is_by_demand) return by_demand(gather);
    const double behind = idle_before(number);
    if (behind >= most) {
      return {WaitCause::kAfterProgram,
              fmt::format("its gather waited {} for work of the program", milliseconds_text(behind))};
    }
    return {WaitCause::kTransfer,
            fmt::format("its gather took {} and began {} before", milliseconds_text(gather.ended - gather.began),
                        milliseconds_text(std::max(wait.began - gather.began, 0.0)))};
  }

  [[nodiscard]] Cause without_order(const TracedWait& wait) const {
    const size_t left = *orders_.left_at(wait.call);
    if (orders_.is_first(left)) return {WaitCause::kNoTrace, "gathered on demand: no trace of this order yet"};
    return {WaitCause::kLeftTrace, fmt::format("gathered on demand: the pass left its trace at {}",
                                               model_.modules()[*rank_.calls[left].module].name)};
  }

  [[nodiscard]] Cause by_demand(const TracedTransfer& gather) const {
    return {WaitCause::kOnDemand, gathers_ahead_
                                      ? fmt::format("gathered on demand, in {}, although the order was known",
                                                    milliseconds_text(gather.ended - gather.began))
                                      : fmt::format("gathered on demand: {} does not prefetch", trace_.coordinator)};
  }

  /// The latest other rank, where it made most of the wait.
  [[nodiscard]] Cause of_other_ranks(const TracedWait& wait, size_t number) const {
    const TracedTransfer& gather = rank_.transfers[number];
    double latest = gather.began;
    const TracedRank* who = nullptr;
    for (const TracedRank* const other : others_) {
      if (number >= other->transfers.size()) continue;
      const TracedTransfer& same = other->transfers[number];
      const bool is_same = same.kind == gather.kind && same.parameters == gather.parameters;
      if (!is_same || same.began <= latest || same.began > gather.ended) continue;
      latest = same.began;
      who = other;
    }
    if (who == nullptr || latest - std::max(gather.began, wait.began) < kMostOfIt * (wait.ended - wait.began))
      return {};
    return {WaitCause::kOtherRank, fmt::format("rank {} reached the {} {} later than this one", who->rank,
                                               words_of_kind(gather.kind), milliseconds_text(latest - gather.began))};
  }

  /// What was released in the call that began the gather, and before it, where the budget had no room for it otherwise;
  /// empty: there was room, or nothing was released. The module of the largest.
  [[nodiscard]] std::string released_for(const TracedTransfer& gather) const {
    if (trace_.budget == 0) return {};
    const TracedCall& call = rank_.calls[gather.call];
    uint64_t wanted = gather.call > 0 ? rank_.calls[gather.call - 1].live_bytes : 0;
    uint32_t largest = PLIANT_NO_PARAMETER;
    for (const pliant_action& action : call.actions) {
      if (action.kind == PLIANT_ACTION_RELEASE && is_larger(action.parameter, largest)) largest = action.parameter;
      if (action.kind != PLIANT_ACTION_GATHER) continue;
      wanted += WholeMemory::taken_by(model_.parameter(action.parameter).elements * bytes_of(trace_.compute));
      if (action.parameter == gather.parameters.back()) break;
    }
    if (largest == PLIANT_NO_PARAMETER || wanted <= trace_.budget) return {};
    return owner_of(largest, call);
  }
  [[nodiscard]] bool is_larger(uint32_t parameter, uint32_t other) const {
    return other == PLIANT_NO_PARAMETER || model_.parameter(parameter).elements > model_.parameter(other).elements;
  }

  /// The module that is left where that uses it, else the first that has it, else the parameter's own name.
  [[nodiscard]] const std::string& owner_of(uint32_t parameter, const TracedCall& call) const {
    const auto& modules = model_.modules();
    const auto has = [parameter](const std::vector<uint32_t>& list) {
      return std::find(list.begin(), list.end(), parameter) != list.end();
    };
    if (call.kind == TracedCall::Kind::kLeave && has(modules[*call.module].used)) return modules[*call.module].name;
    const auto own = std::find_if(modules.begin(), modules.end(), [&](const ModuleRow& row) { return has(row.own); });
    return own != modules.end() ? own->name : model_.parameter(parameter).name;
  }

  /// Transfers that ran between the call that began the gather and the gather.
  [[nodiscard]] Busy busy_before(size_t number) const {
    const TracedTransfer& gather = rank_.transfers[number];
    const double since = rank_.calls[gather.call].began;
    Busy made;
    double longest = 0;
    for (size_t i = number; i-- > 0 && number - i <= kMostInFront;) {
      const TracedTransfer& one = rank_.transfers[i];
      const double time = std::min(one.ended, gather.began) - std::max(one.began, since);
      if (one.ended <= since) break;
      made.all += std::max(time, 0.0);
      if (time <= longest) continue;
      longest = time;
      made.longest = i;
      made.is_other = one.call != gather.call;
    }
    return made;
  }

  [[nodiscard]] Cause of_busy(const Busy& busy) const {
    const TracedTransfer& one = rank_.transfers[busy.longest];
    uint32_t largest = PLIANT_NO_PARAMETER;
    for (const uint32_t parameter : one.parameters) {
      if (is_larger(parameter, largest)) largest = parameter;
    }
    const std::string of = largest == PLIANT_NO_PARAMETER ? "nothing" : owner_of(largest, rank_.calls[one.call]);
    return {WaitCause::kExchangeBusy, fmt::format("exchange busy for {}, longest with the {} of {}",
                                                  milliseconds_text(busy.all), words_of_kind(one.kind), of)};
  }

  /// Microseconds in which the gather was enqueued, nothing was exchanged, and it did not begin.
  [[nodiscard]] double idle_before(size_t number) const {
    const TracedTransfer& gather = rank_.transfers[number];
    double since = rank_.calls[gather.call].ended;
    if (number > 0) since = std::max(since, rank_.transfers[number - 1].ended);
    return gather.began - since;
  }

  const TraceFile& trace_;
  const ModelTables& model_;
  const TracedRank& rank_;
  const TraceOrders orders_;
  std::vector<const TracedRank*> others_;      ///< of the generation
  std::array<std::vector<size_t>, 2> latest_;  ///< transfers, by kind and parameter
  size_t next_ = 0;                            ///< of the transfers
  bool gathers_ahead_ = true;
};

struct CauseWords {
  const char* word;
  const char* words;
};
constexpr CauseWords kCauseWords[kWaitCauses] = {
    {"no_trace", "on demand, no trace yet"},
    {"left_trace", "on demand, trace left"},
    {"on_demand", "on demand"},
    {"budget_full", "budget full"},
    {"exchange_busy", "exchange busy"},
    {"after_program", "behind work of the program"},
    {"other_rank", "another rank was late"},
    {"transfer", "the gather itself"},
    {"gradients", "gradients being sent"},
    {"not_recorded", "not in the trace"},
};

/// "layers.7 (backward) began"
std::string words_of_late(const ModelTables& model, const TracedCall& call) {
  const char* const direction = call.direction == Direction::kBackward    ? " (backward)"
                                : call.direction == Direction::kRecompute ? " (recompute)"
                                                                          : "";
  switch (call.kind) {
    case TracedCall::Kind::kEnter:
      return fmt::format("{}{} began", model.modules()[*call.module].name, direction);
    case TracedCall::Kind::kLeave:
      return fmt::format("{}{} ended", model.modules()[*call.module].name, direction);
    case TracedCall::Kind::kBeginPass:
    case TracedCall::Kind::kBeginEvaluation:
      return "the pass began";
    case TracedCall::Kind::kEndPass:
      return "the pass ended";
    case TracedCall::Kind::kEndStep:
      return "the step ended";
    case TracedCall::Kind::kByHand:
      return "a call by hand ended";
  }
  return "";
}

}  // namespace

const char* word_of(WaitCause cause) {
  return kCauseWords[static_cast<size_t>(cause)].word;
}

const char* words_of(WaitCause cause) {
  return kCauseWords[static_cast<size_t>(cause)].words;
}

std::vector<CausedWait> caused_waits(const TraceFile& trace, size_t of) {
  return WaitReader(trace, of).read();
}

std::string sentence_of(const TraceFile& trace, size_t of, const CausedWait& wait) {
  const TracedCall& call = trace.ranks[of].calls[wait.call];
  return fmt::format("{} {} late: {}", words_of_late(*trace.model, call), milliseconds_text(wait.microseconds),
                     wait.why);
}

std::string milliseconds_text(double microseconds) {
  const double milliseconds = microseconds / 1000;
  return milliseconds < 1 ? fmt::format("{:.2f} ms", milliseconds) : fmt::format("{:.1f} ms", milliseconds);
}

}  // namespace pliant::sharded
