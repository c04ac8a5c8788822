// Group: metrics of steps and results of evaluations, of all ranks as one.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/agent/group.hpp"

namespace pliant::elastic {

std::map<std::string, double> Group::metrics_of_votes() {
  MetricTable all;
  for (const WorkerId rank : ranks_) {
    for (const MetricShare& share : members_.at(rank).vote->metrics) {
      if (all.take(share) || !told_disputed_.insert(share.name).second) continue;
      actions_.event(fmt::format("metric {} is left out: ranks combine it by different rules, from step {} on",
                                 share.name, committed_),
                     true);
    }
  }
  return all.values();
}

void Group::on(WorkerId worker, Member&, const Evaluated& message) {
  if (message.step < 0 || message.step > committed_) return;
  if (message.attempt >= 0 && message.attempt != generation_) return;
  PendingEvaluation& pending = evaluations_[message.step];
  if (message.attempt > pending.attempt) {
    pending.within = {};
    pending.attempt = message.attempt;
  }
  EvaluationParts& parts = message.attempt < 0 ? pending.outside : pending.within;
  parts.gave.insert(worker);
  for (const MetricShare& share : message.metrics) {
    if (parts.metrics.take(share) || !told_disputed_.insert(share.name).second) continue;
    actions_.event(fmt::format("metric {} is left out: ranks combine it by different rules", share.name), true);
  }
}

void Group::record_evaluations() {
  const auto is_lost = [this](WorkerId id) {
    return lost_since_.contains(id) || (members_.contains(id) && !members_.at(id).fenced.empty());
  };
  for (auto& [step, pending] : std::exchange(evaluations_, {})) {
    if (step > committed_) continue;  // the job has gone back
    EvaluationParts all = std::move(pending.outside);
    if (pending.attempt == generation_) {
      all.gave.merge(pending.within.gave);
      for (const MetricShare& share : pending.within.metrics.shares()) static_cast<void>(all.metrics.take(share));
    }
    Evaluation record{step, static_cast<int64_t>(all.gave.size()), 0, all.metrics.values()};
    const std::set<WorkerId>& gave = all.gave;
    if (step == committed_) {
      record.lost = std::count_if(committers_.begin(), committers_.end(),
                                  [&](WorkerId id) { return is_lost(id) && !gave.contains(id); });
    }
    if (record.values.empty()) continue;
    if (const auto recorded = actions_.record(record); !recorded) {
      actions_.event(recorded.error().message(), true);
      continue;
    }
    found_ = record;
    std::string line = fmt::format("evaluation after step {}:", step);
    for (const auto& [name, value] : record.values) line += fmt::format(" {} {:.6g}", name, value);
    if (record.lost == 1) line += "; a rank was lost before it could give a part";
    if (record.lost > 1) line += fmt::format("; {} ranks were lost before they could give a part", record.lost);
    actions_.event(line, false);
  }
}

bool Group::has_step(int64_t step) const {
  return actions_.has_step(step) && (!ended_ || step < ended_->step);
}

std::string Group::reason_to_end() const {
  std::string reason;
  for (const WorkerId rank : ranks_) {
    const Member& member = members_.at(rank);
    if (reason.empty() && !member.vote->end.empty()) reason = fmt::format("rank {}: {}", member.rank, member.vote->end);
  }
  return reason;
}

void Group::end_if_asked(const std::string& reason) {
  if (reason.empty()) return;
  ended_ = EndRecord{committed_, reason};
  if (const auto recorded = actions_.record(*ended_); !recorded) actions_.event(recorded.error().message(), true);
}

void Group::finish_job() {
  record_evaluations();
  over_ = pending_;
}

}  // namespace pliant::elastic
