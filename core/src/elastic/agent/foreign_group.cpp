#include "elastic/agent/foreign_group.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <iterator>
#include <utility>

namespace pliant::elastic {
namespace {

/// A program that fails on all ranks so soon after the start was wrong from the start.
constexpr double kForeignStartSeconds = 10;
/// So long others have to end as the first did, before they are ended for it.
constexpr double kForeignAlikeSeconds = 1;

}  // namespace

void ForeignGroup::started(WorkerId worker, int64_t rank) {
  if (started_at_ < 0) started_at_ = actions_.now();
  rank_of_[worker] = rank;
}

void ForeignGroup::ended(WorkerId worker, const ExitStatus& status) {
  const auto found = rank_of_.find(worker);
  if (found == rank_of_.end()) return;
  const int64_t rank = found->second;
  rank_of_.erase(found);
  const bool clean = !status.signalled && status.code == 0;
  const bool is_first = failure_.empty();
  if (!clean && is_first && stop_signal_ == 0) {
    failure_ = fmt::format("rank {} {}", rank, describe(status));
    failed_as_ = worker_end(status);
  }
  const bool at_start = restarts_ == 0 && terminated_at_ < 0 && actions_.now() - started_at_ < kForeignStartSeconds;
  const bool waits =
      at_start && stop_signal_ == 0 && (failed_.empty() ? is_first : ended_alike(failed_.front(), status));
  if (!clean && waits && ended_by_fault(status)) {
    failed_.push_back(status);
    if (alone_since_ < 0) alone_since_ = actions_.now();
    if (rank_of_.empty()) all_gone();
    return;
  }
  if (!failure_.empty() && terminated_at_ < 0 && stop_signal_ == 0) end_for_failure();
  if (rank_of_.empty()) all_gone();
}

void ForeignGroup::end_for_failure() {
  alone_since_ = -1;
  actions_.event(failure_, true);
  end_all(SIGTERM);
}

bool ForeignGroup::all_failed_alike() const {
  return restarts_ == 0 && static_cast<int64_t>(failed_.size()) == world_size_;
}

void ForeignGroup::end_all(int signal) {
  for (const auto& [worker, rank] : rank_of_) actions_.signal(worker, signal);
  if (signal == SIGTERM) terminated_at_ = actions_.now();
}

void ForeignGroup::all_gone() {
  terminated_at_ = -1;
  if (stop_signal_ != 0) {
    over_ = job_stopped(stop_signal_, stop_reason_);
    return;
  }
  if (failure_.empty()) {
    over_.emplace();
    return;
  }
  if (all_failed_alike()) {
    over_ = job_failed(all_ended_alike(world_size_, failure_, failed_.front()), Origin::kRun, failed_as_);
    return;
  }
  if (alone_since_ >= 0) actions_.event(failure_, true);
  alone_since_ = -1;
  failed_.clear();
  const std::string why = failure_;
  if (options_.on_loss == "stop" || restarts_ >= options_.max_restarts) {
    over_ = job_failed(fmt::format("{}; {} of {} restarts used", why, restarts_, options_.max_restarts), Origin::kRun,
                       failed_as_);
    return;
  }
  if (options_.on_loss == "shrink") {
    const auto at = options_.micro_batch_of.lower_bound(world_size_);
    if (at == options_.micro_batch_of.begin()) {
      over_ = job_without_world_size(fmt::format("{}; no valid world size is smaller than {}", why, world_size_),
                                     failed_as_);
      return;
    }
    world_size_ = std::prev(at)->first;
    shrunk_by_ = why;
  }
  failure_.clear();
  ++restarts_;
  actions_.event(
      fmt::format("restarting all {} workers (restart {} of {})", world_size_, restarts_, options_.max_restarts),
      false);
  actions_.spawn_group(world_size_, restarts_);
}

void ForeignGroup::request_stop(int signal, std::string why) {
  if (stop_signal_ != 0) return;
  stop_signal_ = signal;
  stop_reason_ = std::move(why);
  alone_since_ = -1;
  end_all(SIGTERM);
  if (rank_of_.empty()) all_gone();
}

void ForeignGroup::tick() {
  if (alone_since_ >= 0 && actions_.now() - alone_since_ >= kForeignAlikeSeconds) end_for_failure();
  if (terminated_at_ >= 0 && actions_.now() - terminated_at_ >= options_.stop_grace_s) end_all(SIGKILL);
}

}  // namespace pliant::elastic
