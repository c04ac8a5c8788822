// Group: whether sampler, balancer and learning-rate rules decide the same on every rank.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "elastic/agent/group.hpp"
#include "elastic/assignment_record.hpp"

namespace pliant::elastic {
namespace {

constexpr const char* kRemedy = "plugins must be the same on all machines, and must not change while the job runs";

/// Another machine's arithmetic may differ in the last bits.
bool are_alike(const std::vector<double>& one, const std::vector<double>& other) {
  constexpr double kLastBits = 1e-6;
  return std::equal(one.begin(), one.end(), other.begin(), other.end(), [](double a, double b) {
    return a == b || std::abs(a - b) <= kLastBits * std::max(std::abs(a), std::abs(b));
  });
}

}  // namespace

void Group::on(WorkerId, Member& member, const Reducing& message) {
  const bool present = phase_ == Phase::kRunning || phase_ == Phase::kForming;
  if (message.generation != generation_ || !present || message.step != committed_) return;
  member.stage = Stage::kReducing;
  member.odd.reset();
  const Result<StepFacts> planned = actions_.facts_of(committed_);
  if (!planned) return end(job_failed(planned.error()), true);
  if (message.rows != planned->rows) {
    member.odd = OddDecision{"sampler", "other rows"};
    return part_with_odd();
  }
  const Assignment* const own = assignment();
  if (own == nullptr) return;
  if (digest_of(*own) != message.assignment) member.odd = OddDecision{"balancer", "another assignment"};
  part_with_odd();
}

// Where nobody has what the agent has, it is the agent, or the plugin answers anyhow.
void Group::part_with_odd() {
  std::vector<WorkerId> odd;
  size_t alike = 0;
  for (const WorkerId id : ranks_) {
    const Member& member = members_.at(id);
    if (member.stage < Stage::kReducing) continue;
    if (member.odd) odd.push_back(id);
    if (!member.odd) ++alike;
  }
  if (odd.empty() || (alike == 0 && odd.size() < ranks_.size())) return;
  const OddDecision& first = *members_.at(odd.front()).odd;
  if (alike == 0 || options_.on_loss == "stop") {
    return end(job_failed(fmt::format("step {}: the {} gave {} {} than the agent; a {} must give the same answer to "
                                      "the same request in every process",
                                      committed_, first.plugin, label(odd.front()), first.what, first.plugin),
                          Origin::kPlugin),
               true);
  }
  for (const WorkerId id : odd) {
    const OddDecision& own = *members_.at(id).odd;
    fence(id, fmt::format("got {} of step {} from its {} than the agent and was killed; {}", own.what, committed_,
                          own.plugin, kRemedy));
  }
}

bool Group::rates_agree() {
  const auto of = [this](WorkerId id) -> const std::vector<double>& { return members_.at(id).vote->scaling; };
  std::vector<WorkerId> voices = ranks_;
  const auto most = [&]() -> const std::vector<double>* {
    for (const WorkerId one : voices) {
      const auto alike =
          std::count_if(voices.begin(), voices.end(), [&](WorkerId id) { return are_alike(of(id), of(one)); });
      if (2 * alike > static_cast<int64_t>(voices.size())) return &of(one);
    }
    return nullptr;
  };
  const std::vector<double>* right = most();
  if (right == nullptr) {  // those with the files that the job began with know better than others
    std::erase_if(voices, [this](WorkerId id) { return members_.at(id).brings.plugins != job_->plugins; });
    right = most();
  }
  if (right == nullptr) {
    std::string all;
    for (const WorkerId id : ranks_) {
      all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", label(id), members_.at(id).vote->learning_rate);
    }
    end(job_failed(fmt::format("step {} is not committed: the ranks have different learning rates, or other answers of "
                               "[lr], and there is no majority ({}); {}",
                               committed_, all, kRemedy),
                   Origin::kPlugin),
        true);
    return false;
  }
  const std::vector<double> answers = *right;
  bool agree = true;
  for (const WorkerId id : ranks_) {
    if (are_alike(of(id), answers)) continue;
    agree = false;
    fence(id, fmt::format("got other answers for step {} from its learning-rate rules than the other ranks (rate {}) "
                          "and was killed; {}",
                          committed_, members_.at(id).vote->learning_rate, kRemedy));
  }
  if (agree) return true;
  for (const WorkerId id : ranks_) {  // nothing is committed before that one is gone
    if (!members_.at(id).fenced.empty()) members_.at(id).vote.reset();
  }
  return false;
}

void Group::tell_of_other_plugins(WorkerId worker, const Ready& message) {
  const std::vector<std::string>& right = job_->plugins;
  std::string all;
  for (size_t i = 0; i < message.plugins.size(); ++i) {
    const std::string other = i < right.size() ? right[i] : "none";
    if (message.plugins[i] == other) continue;
    all += fmt::format("{}{} instead of {}", all.empty() ? "" : ", ", message.plugins[i], other);
  }
  if (all.empty() || !told_plugins_.insert(all).second) return;
  actions_.event(fmt::format("{} has other plugin files than the workers that the job began with ({}); it takes part "
                             "as long as their answers are the same",
                             label(worker), all),
                 true);
}

}  // namespace pliant::elastic
