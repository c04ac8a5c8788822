#include "elastic/agent/foreign_group.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <iterator>
#include <utility>

namespace pliant::elastic {

void ForeignGroup::started(WorkerId worker, int64_t rank) {
  rank_of_[worker] = rank;
}

void ForeignGroup::ended(WorkerId worker, const ExitStatus& status) {
  const auto found = rank_of_.find(worker);
  if (found == rank_of_.end()) return;
  const int64_t rank = found->second;
  rank_of_.erase(found);
  const bool clean = !status.signalled && status.code == 0;
  if (!clean && failure_.empty() && stop_code_ == 0) {
    failure_ = fmt::format("rank {} {}", rank, describe(status));
    actions_.event(failure_, true);
    end_all(SIGTERM);
  }
  if (rank_of_.empty()) all_gone();
}

void ForeignGroup::end_all(int signal) {
  for (const auto& [worker, rank] : rank_of_) actions_.signal(worker, signal);
  if (signal == SIGTERM) terminated_at_ = actions_.now();
}

void ForeignGroup::all_gone() {
  terminated_at_ = -1;
  if (stop_code_ != 0) {
    over_ = Verdict{stop_code_, "stopped", stop_reason_};
    return;
  }
  if (failure_.empty()) {
    over_ = Verdict{0, "finished", ""};
    return;
  }
  const std::string why = failure_;
  if (options_.on_loss == "stop" || restarts_ >= options_.max_restarts) {
    over_ = Verdict{1, "failed", fmt::format("{}; {} of {} restarts used", why, restarts_, options_.max_restarts)};
    return;
  }
  if (options_.on_loss == "shrink") {
    const auto at = options_.micro_batch_of.lower_bound(world_size_);
    if (at == options_.micro_batch_of.begin()) {
      over_ = Verdict{75, "no valid world size",
                      fmt::format("{}; no valid world size is smaller than {}", why, world_size_)};
      return;
    }
    world_size_ = std::prev(at)->first;
  }
  failure_.clear();
  ++restarts_;
  actions_.event(
      fmt::format("restarting all {} workers (restart {} of {})", world_size_, restarts_, options_.max_restarts),
      false);
  actions_.spawn_group(world_size_, restarts_);
}

void ForeignGroup::request_stop(int exit_code, std::string why) {
  if (stop_code_ != 0) return;
  stop_code_ = exit_code;
  stop_reason_ = std::move(why);
  end_all(SIGTERM);
  if (rank_of_.empty()) all_gone();
}

void ForeignGroup::tick() {
  if (terminated_at_ >= 0 && actions_.now() - terminated_at_ >= options_.stop_grace_s) end_all(SIGKILL);
}

}  // namespace pliant::elastic
