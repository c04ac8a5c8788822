// Pace: when steps were committed, what interruptions cost, and how fast the job is.
#include "elastic/agent/pace.hpp"

#include <algorithm>

namespace pliant::elastic {
namespace {

constexpr size_t kWindow = 10;  // commits that the present speed is taken over

}  // namespace

void Pace::interrupted(double now) {
  if (interrupted_at_ < 0) interrupted_at_ = now;
}

JobProgress Pace::committed(const CommitRecord& entry, int64_t world_size, int64_t total_steps, double now) {
  if (!commits_.empty()) tokens_after_first_ += entry.size.tokens;
  commits_.push_back({now, entry.size.tokens, interrupted_at_ >= 0});
  if (interrupted_at_ >= 0) worst_recovery_ = std::max(worst_recovery_, now - interrupted_at_);
  interrupted_at_ = -1;

  JobProgress progress;
  progress.step = entry.step + 1;
  progress.total_steps = total_steps;
  progress.loss = entry.loss;
  progress.learning_rate = entry.learning_rate;
  progress.world_size = world_size;
  progress.tokens = entry.size.tokens;
  progress.seconds = now;
  const size_t window = std::min(commits_.size() - 1, kWindow);
  const double span = now - commits_[commits_.size() - 1 - window].seconds;
  if (span > 0) {
    progress.tokens_per_second = static_cast<double>(tokens_of_last(window)) / span;
    progress.seconds_left = span / static_cast<double>(window) * static_cast<double>(total_steps - progress.step);
  }
  return progress;
}

int64_t Pace::tokens_of_last(size_t window) const {
  int64_t tokens = 0;
  for (size_t i = commits_.size() - window; i < commits_.size(); ++i) tokens += commits_[i].tokens;
  return tokens;
}

double Pace::tokens_per_second() const {
  if (commits_.size() < 2) return 0;
  const double span = commits_.back().seconds - commits_.front().seconds;
  return span > 0 ? static_cast<double>(tokens_after_first_) / span : 0;
}

double Pace::seconds_lost() const {
  std::vector<double> usual;
  std::vector<double> disturbed;
  for (size_t i = 1; i < commits_.size(); ++i) {
    (commits_[i].interrupted ? disturbed : usual).push_back(commits_[i].seconds - commits_[i - 1].seconds);
  }
  double step = 0;
  if (!usual.empty()) {
    const auto middle = usual.begin() + static_cast<std::ptrdiff_t>(usual.size() / 2);
    std::nth_element(usual.begin(), middle, usual.end());
    step = *middle;
  }
  double lost = 0;
  for (const double gap : disturbed) lost += std::max(0.0, gap - step);
  return lost;
}

}  // namespace pliant::elastic
