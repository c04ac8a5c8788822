// Agent: one thread around one event loop that starts workers, hears them, and does what the group decides.
#include "elastic/agent/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdlib>

#include "data/lengths_file.hpp"
#include "elastic/agent/job_plan.hpp"
#include "elastic/agent/resume_check.hpp"
#include "elastic/agent/worker_log.hpp"
#include "elastic/agent/worker_process.hpp"
#include "plan/scheduler.hpp"

namespace pliant::elastic {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(250);

}  // namespace

struct Agent::State final : GroupActions, ForeignActions {
  // A worker with the handles through which the loop hears of it. The handles are copies: the process owns the
  // originals.
  struct Slot {
    WorkerProcess process;
    int64_t rank;
    WorkerLog log;
    asio::posix::stream_descriptor socket;
    asio::posix::stream_descriptor end;
  };

  State(AgentOrder given, JobObserver& hears, Warden guard)
      : order(std::move(given)), observer(hears), warden(std::move(guard)), ledger(std::move(order.ledger)) {}

  AgentOrder order;
  JobObserver& observer;
  Warden warden;
  std::optional<Ledger> ledger;
  std::optional<JobPlan> job_plan;
  std::optional<Rendezvous> rendezvous;
  std::optional<Group> group;
  std::optional<ForeignGroup> foreign;
  asio::io_context loop{1};
  asio::signal_set signals{loop};
  asio::steady_timer timer{loop};
  std::map<WorkerId, Slot> slots;
  WorkerId next_worker = 0;
  Generation generation;  // the newest one
  bool generation_in_hand = false;
  int64_t foreign_restarts = 0;  // before the program said that it uses the API
  int signals_seen = 0;
  std::optional<Verdict> forced;  // by a second signal
  std::string spawn_failure;
  Clock::time_point began = Clock::now();
  Pace pace;

  // The common part of both kinds of group.

  [[nodiscard]] double now() const override { return std::chrono::duration<double>(Clock::now() - began).count(); }
  void event(const std::string& line, bool warning) override { observer.on_event(line, warning); }
  void kill(WorkerId worker) override { signal(worker, SIGKILL); }
  void signal(WorkerId worker, int number) override {
    const auto found = slots.find(worker);
    if (found == slots.end()) return;
    if (number == SIGKILL) return found->second.process.signal_group(number);
    found->second.process.signal_group(SIGCONT);  // a stopped one could not hear it
    ::kill(found->second.process.pid(), number);  // what it has started is its own business to end
  }
  [[nodiscard]] bool is_stopped(WorkerId worker) override {
    const auto found = slots.find(worker);
    return found != slots.end() && found->second.process.is_stopped();
  }

  std::vector<std::pair<std::string, std::string>> environment(int64_t rank, int64_t world_size,
                                                               int64_t restarts) const {
    const RunOptions& run = order.config.run();
    const auto text = [](int64_t n) { return std::to_string(n); };
    std::vector<std::pair<std::string, std::string>> made;
    made.emplace_back("RANK", text(generation.first_rank + rank));
    made.emplace_back("LOCAL_RANK", text(rank));
    made.emplace_back("WORLD_SIZE", text(world_size));
    made.emplace_back("LOCAL_WORLD_SIZE", text(world_size));
    made.emplace_back("GROUP_RANK", text(generation.group_rank));
    made.emplace_back("GROUP_WORLD_SIZE", text(generation.node_count));
    made.emplace_back("ROLE_NAME", "default");
    made.emplace_back("ROLE_RANK", text(generation.first_rank + rank));
    made.emplace_back("ROLE_WORLD_SIZE", text(world_size));
    made.emplace_back("MASTER_ADDR", generation.master_addr);
    made.emplace_back("MASTER_PORT", text(generation.master_port));
    made.emplace_back("TORCHELASTIC_RUN_ID", order.facts.run_id);
    made.emplace_back("TORCHELASTIC_RESTART_COUNT", text(restarts));
    made.emplace_back("TORCHELASTIC_MAX_RESTARTS", text(run.max_restarts));
    made.emplace_back("TORCHELASTIC_USE_AGENT_STORE", "False");
    made.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    made.emplace_back("PLIANT_RUN_DIR", order.directory.path().string());
    if (!order.elasticity_digest.empty()) made.emplace_back(kDigestVariable, order.elasticity_digest);
    if (std::getenv("OMP_NUM_THREADS") == nullptr && world_size > 1) made.emplace_back("OMP_NUM_THREADS", "1");
    return made;
  }

  // Starts one worker and listens to it. False when it cannot be started.
  bool start(int64_t rank, int64_t world_size, int64_t restarts) {
    const WorkerId id = next_worker++;
    LaunchOrder launch;
    launch.command = order.command;
    launch.environment = environment(rank, world_size, restarts);
    launch.working_dir = order.config.run().working_dir;
    launch.log = order.directory.logs() / (restarts == 0 ? fmt::format("rank-{}.log", rank)
                                                         : fmt::format("rank-{}.restart-{}.log", rank, restarts));
    WorkerLog log(launch.log);
    Result<WorkerProcess> process = WorkerProcess::start(launch);
    if (!process) {
      spawn_failure = process.error().message();
      event(spawn_failure, true);
      return false;
    }
    warden.watch(process->pid());
    // Not for the next worker to inherit.
    asio::posix::stream_descriptor socket(loop, ::fcntl(process->socket(), F_DUPFD_CLOEXEC, 0));
    asio::posix::stream_descriptor end(loop, ::fcntl(process->pidfd(), F_DUPFD_CLOEXEC, 0));
    slots.emplace(id, Slot{std::move(*process), rank, std::move(log), std::move(socket), std::move(end)});
    if (group) group->started(id);
    if (foreign) foreign->started(id, rank);
    listen(id);
    slots.at(id).end.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](const error_code& error) {
      if (!error) worker_ended(id);
    });
    return true;
  }

  void listen(WorkerId id) {
    slots.at(id).socket.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](const error_code& error) {
      if (!error && slots.contains(id) && hear(id)) listen(id);
    });
  }

  // Handles what a worker has said; false when its end of the socket is closed.
  bool hear(WorkerId id) {
    bool closed = false;
    for (const std::string& line : slots.at(id).process.receive(closed)) {
      const Result<FromWorker> message = parse_from_worker(line);
      if (!message) {
        event(fmt::format("worker {} is killed: {}", id, message.error().message()), true);
        kill(id);
        return false;
      }
      if (group && foreign && std::holds_alternative<Hello>(*message)) {  // this program uses the API
        foreign_restarts = foreign->restarts();
        foreign.reset();
      }
      if (group) group->received(id, *message);
    }
    return !closed;
  }

  void flush(WorkerId id) {
    slots.at(id).socket.async_wait(asio::posix::stream_descriptor::wait_write, [this, id](const error_code& error) {
      if (!error && slots.contains(id) && !slots.at(id).process.flush()) flush(id);
    });
  }

  void worker_ended(WorkerId id) {
    hear(id);  // what it said before it died counts
    Slot slot = std::move(slots.at(id));
    slots.erase(id);
    ExitStatus status = slot.process.reap();
    warden.forget(slot.process.pid());
    if (order.options.show_logs) show_log(slot, true);
    const bool failed_by_itself = !status.signalled && status.code != 0;
    const std::vector<std::string> last_lines = slot.log.last_lines();
    if (failed_by_itself) status.last_words = cause_among(last_lines);
    if (failed_by_itself && !order.options.show_logs) {
      for (const std::string& line : last_lines) event(fmt::format("  rank {}| {}", slot.rank, line), false);
      event(fmt::format("  the whole log: {}", slot.log.file().string()), false);
    }
    if (group && foreign) group.reset();  // one ended before any used the API: for now it counts as foreign
    if (group) group->ended(id, status);
    if (foreign) foreign->ended(id, status);
  }

  void show_log(Slot& slot, bool all) {
    for (const std::string& line : slot.log.added_lines(all)) event(fmt::format("rank {}| {}", slot.rank, line), false);
  }

  // GroupActions.

  void send(WorkerId worker, const ToWorker& message) override {
    const auto found = slots.find(worker);
    if (found == slots.end()) return;
    found->second.process.send(to_line(message));
    if (!found->second.process.flush()) flush(worker);
  }

  void spawn() override {
    std::vector<bool> taken(static_cast<size_t>(order.config.run().workers), false);
    for (const auto& [id, slot] : slots) {
      if (static_cast<size_t>(slot.rank) < taken.size()) taken[static_cast<size_t>(slot.rank)] = true;
    }
    const auto free = std::find(taken.begin(), taken.end(), false);
    start(free == taken.end() ? 0 : free - taken.begin(), order.config.run().workers, group ? group->restarts() : 0);
  }

  void spawn_group(int64_t world_size, int64_t restarts) override {
    // Those who failed before they could say what they are may say so now.
    if (restarts > 0 && order.config.run().attach == "auto") open_group(restarts);
    generation_in_hand = false;
    if (const auto joined = next_generation(world_size); !joined) {
      spawn_failure = joined.error().message();
      return event(spawn_failure, true);
    }
    generation_in_hand = true;
    for (int64_t rank = 0; rank < world_size; ++rank) start(rank, world_size, restarts);
  }

  Result<int64_t> next_generation(int64_t world_size) override {
    // The workers of the first generation were started in it; whoever then forms it must not ask for another.
    if (std::exchange(generation_in_hand, false)) return generation.number;
    Result<Generation> joined = rendezvous->join(order.facts.run_id, static_cast<int32_t>(world_size));
    if (!joined) return failed(std::move(joined));
    generation = *joined;
    return generation.number;
  }

  Result<int64_t> total_steps(const std::string& fingerprint) override {
    try {
      if (order.micro_batch_of.empty() || !order.config.has("elasticity")) {
        return failed(
            Status::kInvalidArgument,
            "this program uses the embedding API, which needs a plan: add an [elasticity] section to the config",
            ExitCode::kUsage);
      }
      Plan plan;
      plan.global_batch = order.facts.global_batch;
      plan.granule = order.facts.granule;
      job_plan.emplace(order.config, plan, or_throw(data::read_dataset(order.directory.dataset())));
      if (!ledger) ledger = or_throw(Ledger::create(order.directory.ledger(), order.facts.run_id, fingerprint));
      if (ledger->lineage().fingerprint != fingerprint) {
        job_plan.reset();  // they are another job's
        return other_batches(order, ledger->lineage(), fingerprint);
      }
      if (Result<> sound = check_ledger(order, ledger->lineage(), job_plan->batches()); !sound) {
        job_plan.reset();
        return failed(std::move(sound));
      }
      return job_plan->batches().total_steps();
    } catch (const Error& error) {
      return tl::unexpected<Error>(error);
    }
  }

  StepFacts facts_of(int64_t step) override { return job_plan->facts_of(step); }
  Result<Assignment> assignment_of(int64_t step, const Sharing& how, CostRates rates) override {
    return job_plan->assignment_of(step, how, rates);
  }

  Result<> record(const CommitRecord& entry) override { return ledger->append(entry); }
  Result<> record(const GenerationRecord& entry) override { return ledger->append(entry); }
  Result<> record(const RestartRecord& entry) override { return ledger->append(entry); }
  Result<> record(const SnapshotRecord& entry) override {
    auto appended = ledger->append(entry);
    if (appended) prune_snapshots();
    return appended;
  }

  void prune_snapshots() {
    const auto& kept = ledger->lineage().snapshots;
    const auto keep = static_cast<size_t>(order.config.run().keep_snapshots);
    for (size_t i = 0; i + keep < kept.size(); ++i) {
      std::error_code ignored;  // one that stays costs room only
      fs::remove(order.directory.path() / kept[i].file, ignored);
    }
  }

  void interrupted() override { pace.interrupted(now()); }

  void committed(const CommitRecord& entry, int64_t world_size, int64_t total) override {
    observer.on_commit(pace.committed(entry, world_size, total, now()));
  }

  void agent_kill_point(int64_t step, const char* at) override {
    for (const InjectedKill& kill : order.options.injections) {
      if (kill.agent && kill.step == step && kill.at == at) ::kill(::getpid(), SIGKILL);
    }
  }

  // The loop.

  void wait_for_signal() {
    signals.async_wait([this](const error_code& error, int number) {
      if (error) return;
      const int code = 128 + number;
      if (++signals_seen > 1) {
        event("stopping at once", true);
        for (const auto& [id, slot] : slots) slot.process.signal_group(SIGKILL);
        forced = Verdict{code, "stopped", "stopped at once by a second signal"};
      } else {
        // While no worker has used the API the program may be a foreign one, and is asked to end as one.
        event(foreign ? "stopping: the workers are asked to end; once more stops at once"
                      : "stopping after this step; once more stops at once",
              false);
        if (foreign) {
          group.reset();
          foreign->request_stop(code);
        } else if (group) {
          group->request_stop(code);
        }
      }
      wait_for_signal();
    });
  }

  void wait_for_tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](const error_code& error) {
      if (error) return;
      if (group) group->tick();
      if (foreign) foreign->tick();
      if (order.options.show_logs) {
        for (auto& [id, slot] : slots) show_log(slot, false);
      }
      wait_for_tick();
    });
  }

  [[nodiscard]] std::optional<Verdict> verdict() const {
    if (forced && slots.empty()) return forced;
    if (group && group->verdict()) return group->verdict();
    if (!group && foreign && foreign->verdict()) return foreign->verdict();
    if (spawn_failure.empty() || pace.steps() > 0) return std::nullopt;
    return Verdict{2, "failed", spawn_failure};  // what is left of the group dies with its slots
  }

  void open_group(int64_t restarts_spent) {
    const RunOptions& run = order.config.run();
    GroupOptions options;
    options.workers = run.workers;
    options.micro_batch_of = order.micro_batch_of;
    options.other_batch_of = order.other_batch_of;
    const BalancerOptions& balancer = order.config.balancer();
    options.rates = {balancer.cost_per_token, balancer.cost_per_square};
    options.fit = balancer.fit;
    options.on_loss = run.on_loss;
    options.max_restarts = run.max_restarts - restarts_spent;
    options.must_attach = run.attach == "required";
    options.start_timeout_s = run.start_timeout_s;
    options.hang_timeout_s = run.hang_timeout_s;
    options.min_resize_interval_s = static_cast<double>(order.min_resize_interval_s);
    options.snapshot_every = run.snapshot_every;
    options.injections = order.options.injections;
    const int64_t committed = ledger ? static_cast<int64_t>(ledger->lineage().commits.size()) : 0;
    group.emplace(std::move(options), *this, committed, order.snapshot);
  }

  void open_groups() {
    const RunOptions& run = order.config.run();
    if (run.attach != "never") open_group(0);
    if (run.attach != "required") {
      foreign.emplace(
          ForeignOptions{order.micro_batch_of, run.workers, run.on_loss, run.max_restarts, run.stop_grace_s}, *this);
    }
  }

  Verdict run() {
    rendezvous.emplace(or_throw(Rendezvous::open(order.config)));
    open_groups();
    signals.add(SIGINT);
    signals.add(SIGTERM);
    struct sigaction hangup {};  // under nohup it stays ignored
    if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) signals.add(SIGHUP);
    wait_for_signal();
    wait_for_tick();
    spawn_group(order.config.run().workers, 0);
    while (true) {
      if (const auto over = verdict()) return *over;
      loop.run_one();
    }
  }
};

Agent::Agent(AgentOrder order, JobObserver& observer, Warden warden)
    : state_(std::make_unique<State>(std::move(order), observer, std::move(warden))) {}
Agent::~Agent() = default;
Verdict Agent::run() {
  return state_->run();
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
std::vector<InjectedKill> Agent::unstruck() const {
  return state_->group ? state_->group->unstruck() : state_->order.options.injections;
}
int64_t Agent::restarts() const {
  if (uses_api()) return state_->foreign_restarts + state_->group->restarts();
  return state_->foreign ? state_->foreign->restarts() : state_->foreign_restarts;
}

}  // namespace pliant::elastic
