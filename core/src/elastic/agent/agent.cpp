// Agent: one thread around one event loop that starts workers, hears them, and does what the group decides.
#include "elastic/agent/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include "elastic/agent/agent_state.hpp"

namespace pliant::elastic {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kVisitsApart = std::chrono::milliseconds(100);

}  // namespace

void Agent::State::listen_for_stops() {
  if (order.options.stop) or_throw(stop_calls.listen(*order.options.stop, [this] { stop(SIGTERM, "request"); }));
  if (!order.options.take_signals) return;
  stop_signals.take([this](int number) {
    // Who stops a job may say so twice at once: `timeout` does, and systemd with SendSIGHUP.
    if (now() - signalled_at < kOneOrderSeconds) return;
    signalled_at = now();
    stop(number, "signal");
  });
}

void Agent::State::stop(int number, const char* by) {
  ++stops_seen;
  if (!launches && stops_seen > 1) return;  // each rank passes on what it got, and its launcher kills those that stay
  if (stops_seen > 1) {
    event("stopping at once", true);
    for (const auto& [id, slot] : slots) slot.process.signal_group(SIGKILL);
    forced = job_stopped(number, fmt::format("stopped at once by a second {}", by));
    return;
  }
  // While no worker has used the API the program may be a foreign one, and is asked to end as one.
  event(foreign    ? "stopping: waiting for the workers to end; another signal stops at once"
        : launches ? "stopping after this step; another signal stops at once"
                   : "stopping after this step",
        false);
  if (foreign) {
    group.reset();
    foreign->request_stop(number, fmt::format("stopped by a {}", by));
  } else if (group) {
    group->request_stop(number);
  }
}

void Agent::State::wait_for_tick() {
  timer.expires_after(kTick);
  timer.async_wait([this](const error_code& error) {
    if (error) return;
    if (!look() && group) group->fail(job_failed(gone));
    if (workers_owed > 0) spawn_owed();
    if (group) group->tick();
    if (foreign) foreign->tick();
    tend_warden();
    if (order.options.show_logs) {
      for (auto& [id, slot] : slots) show_log(slot, false);
    }
    wait_for_tick();
  });
}

void Agent::State::wait_for_visits() {
  visits_timer.expires_after(kVisitsApart);
  visits_timer.async_wait([this](const error_code& error) {
    if (error) return;
    if (group) group->compare_visits(false);
    wait_for_visits();
  });
}

void Agent::State::tend_warden() {
  if (!warden) return;
  const Result<bool> replaced = warden->tend();
  if (!replaced && !warden_missing) {
    event(fmt::format("no warden runs: if this agent dies, worker processes may stay behind: {}; retrying",
                      replaced.error().message()),
          true);
  }
  warden_missing = !replaced;
  if (!replaced || !*replaced) return;
  event("the warden, which ends the workers if this agent dies, was gone or stopped and has been replaced", true);
  watch_warden();
}

void Agent::State::watch_warden() {
  if (!warden) return;
  const int end = ::fcntl(warden->pidfd(), F_DUPFD_CLOEXEC, 0);
  if (end < 0) return;  // the next tick finds out as well
  warden_end.emplace(loop, end);
  warden_end->async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& error) {
    if (!error) tend_warden();
  });
}

std::optional<JobEnd> Agent::State::job_end() const {
  if (forced && slots.empty()) return forced;
  if (group && group->job_end()) return group->job_end();
  if (!group && foreign && foreign->job_end()) return foreign->job_end();
  if (spawn_failure.empty() || pace.steps() > 0) return std::nullopt;
  return job_failed(spawn_failure, Origin::kInput);  // what is left of the group dies with its slots
}

void Agent::State::open_group(int64_t restarts_spent) {
  const RunOptions& run = order.config.run();
  GroupOptions options;
  options.workers = run.workers;
  options.micro_batch_of = order.micro_batch_of;
  options.other_batch_of = order.other_batch_of;
  const BalancerOptions& balancer = order.config.balancer();
  options.rates = {balancer.cost_per_token, balancer.cost_per_square};
  options.fit = balancer.fit;
  options.on_loss = launches ? run.on_loss : "stop";  // its launcher starts all of them again
  options.kill_when_failed = !launches;
  options.on_nonfinite = run.on_nonfinite;
  options.compare_states = run.digest_every > 0;
  if (ledger) options.stopped_before_at = ledger->lineage().not_finite_step;
  if (ledger) options.fingerprint = ledger->lineage().fingerprint;
  options.max_restarts = launches ? run.max_restarts - restarts_spent : 0;
  options.must_attach = !launches || run.attach == "required";
  options.start_timeout_s = run.start_timeout_s;
  options.hang_timeout_s = run.hang_timeout_s;
  options.min_resize_interval_s = static_cast<double>(order.min_resize_interval_s);
  options.snapshot_every = run.snapshot_every;
  options.trace = order.options.trace.has_value();
  options.injections = order.options.injections;
  const int64_t committed = ledger ? static_cast<int64_t>(ledger->lineage().commits.size()) : 0;
  group.emplace(std::move(options), *this, committed, order.snapshot);
}

void Agent::State::open_groups() {
  const RunOptions& run = order.config.run();
  if (!launches || run.attach != "never") open_group(0);
  if (launches && run.attach != "required") {
    foreign.emplace(ForeignOptions{order.micro_batch_of, run.workers, run.on_loss, run.max_restarts, run.stop_grace_s},
                    *this);
  }
}

JobEnd Agent::State::run() {
  rendezvous.emplace(or_throw(Rendezvous::open(order.config)));
  home = or_throw(open_file(order.directory.path(), O_RDONLY | O_DIRECTORY, "open the run directory"));
  open_groups();
  listen_for_stops();
  wait_for_tick();
  if (order.config.has("coordinator")) wait_for_visits();
  watch_warden();
  launches ? spawn_group(order.config.run().workers, 0) : adopt_group();
  while (true) {
    if (const auto over = job_end()) return at_end(*over);
    loop.run_one();
  }
}

Agent::Agent(AgentOrder order, JobObserver& observer, std::optional<Warden> warden)
    : state_(std::make_unique<State>(std::move(order), observer, std::move(warden))) {}
Agent::~Agent() = default;
JobEnd Agent::run() {
  return state_->run();
}
const RunDirectory& Agent::directory() const {
  return state_->order.directory;
}
const Pace& Agent::pace() const {
  return state_->pace;
}
const std::optional<Ledger>& Agent::ledger() const {
  return state_->ledger;
}
Batches* Agent::batches() {
  return state_->job_plan ? &state_->job_plan->batches() : nullptr;
}
bool Agent::uses_api() const {
  return state_->group && state_->group->uses_api();
}
int64_t Agent::generations() const {
  return uses_api() ? state_->group->generations() : state_->generation.number;
}
std::vector<InjectedKill> Agent::pending_kills() const {
  return state_->group ? state_->group->pending_kills() : state_->order.options.injections;
}
int64_t Agent::digests() const {
  return state_->group ? state_->group->digests() : 0;
}
sharded::TracedPasses Agent::traced_passes() const {
  return state_->group ? state_->group->traced_passes() : sharded::TracedPasses{};
}

ShardedMemory Agent::sharded_memory() const {
  return state_->group ? state_->group->memory() : ShardedMemory{};
}
int64_t Agent::bytes_moved() const {
  return state_->group ? state_->group->bytes_moved() : 0;
}
double Agent::digest_seconds() const {
  return state_->group ? state_->group->digest_seconds() : 0;
}
int64_t Agent::world_size() const {
  if (uses_api()) return state_->group->world_size();
  return state_->foreign ? state_->foreign->world_size() : 0;
}
std::string Agent::shrunk_by() const {
  if (uses_api()) return state_->group->shrunk_by();
  return state_->foreign ? state_->foreign->shrunk_by() : std::string();
}
int64_t Agent::restarts() const {
  if (uses_api()) return state_->foreign_restarts + state_->group->restarts();
  return state_->foreign ? state_->foreign->restarts() : state_->foreign_restarts;
}

}  // namespace pliant::elastic
