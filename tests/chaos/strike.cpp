// PliantCall: how a blow falls, and on whom.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "chaos/pliant_call.hpp"
#include "first_free_descriptor.hpp"

namespace pliant::test {

bool PliantCall::strike(const Blow& blow) {
  constexpr int64_t kInitial = 4;
  if (blow.who == Who::kSurroundings) {
    if (directory_.empty()) return false;
    strike_surroundings(blow);
    return true;
  }
  if (blow.who == Who::kAgent && blow.deed == Deed::kSignal) {
    signal_agent(blow);
    return true;
  }
  if (blow.who == Who::kAgent) {
    const rlimit limit{static_cast<rlim_t>(blow.number) * 1024, static_cast<rlim_t>(blow.number) * 1024};
    seen_.surroundings_struck = seen_.disk_struck = true;
    return ::prlimit(agent_, RLIMIT_FSIZE, &limit, nullptr) == 0;
  }
  if (blow.who == Who::kWarden) {
    const pid_t warden = warden_of(agent_);
    if (warden == 0) return false;
    seen_.warden_struck = true;
    send(warden, blow);
    return true;
  }
  if (blow.who == Who::kGrandchild) {
    const auto all = grandchildren_of(agent_, kInitial);
    if (!all.empty()) ::kill(all[blow.pick % all.size()], blow.number);
    return true;
  }
  const std::vector<WorkerSeen> workers = workers_of(agent_, kInitial);
  if (workers.empty()) return false;
  if (blow.who == Who::kAgentAndWorkers) signal_agent(blow);
  if (blow.who == Who::kAllWorkers || blow.who == Who::kAgentAndWorkers) {
    // Where none can write, a snapshot cannot be asked for.
    if (blow.deed == Deed::kFileSize) seen_.surroundings_struck = seen_.disk_struck = true;
    for (const WorkerSeen& worker : workers) strike_worker(worker, blow);
    return true;
  }
  const bool newest = blow.who == Who::kNewest;
  if (newest && workers.back().id < kInitial && next_ > 0 && blows_[next_ - 1].who == Who::kWorker &&
      seconds_now() - due_ < 1)
    return false;  // the one that follows a loss is about to be started
  return strike_worker(newest ? workers.back() : workers[blow.pick % workers.size()], blow);
}

bool PliantCall::strike_worker(const WorkerSeen& worker, const Blow& blow) {
  const Harm harm = harm_of(blow);
  if (harm != Harm::kNone) seen_.struck.insert(worker.id);
  if (harm == Harm::kSure) seen_.doomed.insert(worker.id);
  if (blow.deed == Deed::kSignal) {
    send(worker.pid, blow);
    return true;
  }
  const bool descriptors = blow.deed == Deed::kDescriptors;
  const auto number = static_cast<rlim_t>(blow.number);
  const rlim_t most = descriptors ? first_free_descriptor(worker.pid) + number : number * 1024;
  const rlimit limit{most, most};
  return ::prlimit(worker.pid, descriptors ? RLIMIT_NOFILE : RLIMIT_FSIZE, &limit, nullptr) == 0;
}

void PliantCall::send(pid_t pid, const Blow& blow) {
  ::kill(pid, blow.number);
  if (stops_a_process(blow.number)) stopped_.push_back({pid, blow.for_s < 0 ? INFINITY : seconds_now() + blow.for_s});
}

void PliantCall::signal_agent(const Blow& blow) {
  seen_.signals.insert(blow.number);
  if (blow.number == SIGTERM || blow.number == SIGINT || blow.number == SIGHUP) ++seen_.stops_asked;
  Blow own = blow;
  own.for_s = std::max(0.0, blow.for_s);  // an agent that stays stopped ends no job
  send(agent_, own);
}

void PliantCall::strike_surroundings(const Blow& blow) {
  seen_.surroundings_struck = true;
  if (blow.deed != Deed::kCutLink) seen_.disk_struck = true;
  if (blow.deed == Deed::kFillDisk) {
    surroundings_.fill_disk();
    disk_free_at_ = blow.for_s < 0 ? INFINITY : seconds_now() + blow.for_s;
  } else if (blow.deed == Deed::kCutLink) {
    surroundings_.set_link(false);
    link_up_at_ = seconds_now() + blow.for_s;
  } else {
    std::error_code ignored;
    std::filesystem::remove_all(blow.name.empty() ? directory_ : directory_ / blow.name, ignored);
    seen_.ledger_removed = blow.name.empty() || blow.name == "ledger.jsonl";
  }
}

}  // namespace pliant::test
