// Agent: one thread around one event loop that starts workers, hears them, and does what the group decides.
#include "elastic/agent/agent.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/durable_file.hpp"
#include "base/environment.hpp"
#include "data/lengths/input_file.hpp"
#include "data/lengths_file.hpp"
#include "elastic/agent/job_plan.hpp"
#include "elastic/agent/rescue.hpp"
#include "elastic/agent/resume_check.hpp"
#include "elastic/agent/stop.hpp"
#include "elastic/agent/worker_log.hpp"
#include "elastic/agent/worker_process.hpp"
#include "elastic/snapshot.hpp"
#include "elastic/state_digest.hpp"
#include "plan/scheduler.hpp"
#include "sharded/visit_page.hpp"

namespace pliant::elastic {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using boost::system::error_code;

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kSignalsApart = std::chrono::milliseconds(300);
constexpr double kOneOrderSeconds = 1;

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
    bool broken = false;  ///< speaks no protocol, and is killed for it
    int64_t program = 0;  ///< the process that speaks, by its own account: a launcher may be before it
    std::optional<sharded::VisitReader> visits{};  ///< of a sharded job, once it was asked for
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
  StopSignals stop_signals{loop};
  StopCalls stop_calls{loop};
  asio::steady_timer timer{loop};
  std::optional<asio::posix::stream_descriptor> warden_end;
  bool warden_missing = false;
  std::map<WorkerId, Slot> slots;
  WorkerId next_worker = 0;
  Generation generation;  // the newest one
  bool generation_in_hand = false;
  int64_t foreign_restarts = 0;              // before the program said that it uses the API
  int stops_seen = 0;                        // signals and calls
  double signalled_at = -kOneOrderSeconds;   // when the last signal came
  std::optional<Verdict> forced;             // by a second of these
  std::string spawn_failure;                 // of the first group, or of a foreign one
  int64_t replacements = 0;                  // workers that were started in the place of others, one at a time
  int64_t workers_owed = 0;                  // that are to be started and could not be yet
  std::string spawn_refused;                 // why, as it was last said
  size_t pruned = 0;                         // snapshots of the lineage whose files were removed, from the oldest on
  uintmax_t dataset_size = 0;                // bytes of the file in the run directory
  FileDescriptor home;                       // the run directory, as it was
  FileDescriptor digests;                    // its file of digests, once a worker has made it
  std::string gone;                          // what became of the run directory; empty: it is there
  std::optional<DirectoryLock> rescue_lock;  // of the one that was made instead
  Clock::time_point began = Clock::now();
  Pace pace;

  // The common part of both kinds of group.

  [[nodiscard]] double now() const override { return std::chrono::duration<double>(Clock::now() - began).count(); }
  void event(const std::string& line, bool warning) override { observer.on_event(line, warning); }
  void kill(WorkerId worker) override { signal(worker, SIGKILL); }
  void wake(WorkerId worker) override { signal(worker, SIGCONT); }
  void signal(WorkerId worker, int number) override {
    const auto found = slots.find(worker);
    if (found == slots.end()) return;
    // To all at once, and once: whoever is continued may be stopped again before a second signal.
    if (number == SIGKILL || number == SIGCONT) return found->second.process.signal_group(number);
    found->second.process.signal_group(SIGCONT);  // a stopped one could not hear it
    ::kill(found->second.process.pid(), number);  // what it has started is its own business to end
  }
  [[nodiscard]] std::optional<std::string> how_visits_differ(const std::vector<WorkerId>& ranks, int64_t of_generation,
                                                             bool all_done) override {
    std::vector<const sharded::VisitReader*> pages;
    for (const WorkerId worker : ranks) {
      const auto found = slots.find(worker);
      if (found == slots.end()) return std::nullopt;
      Slot& slot = found->second;
      if (!slot.visits) {
        auto opened = sharded::VisitReader::open(order.directory.visits(slot.program));
        if (!opened) return std::nullopt;
        slot.visits.emplace(std::move(*opened));
      }
      pages.push_back(&*slot.visits);
    }
    return sharded::how_visits_differ(pages, of_generation, all_done);
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
    made.emplace_back(kProtocolVariable, text(kProtocol));
    made.emplace_back(Warden::kVariable, warden.incarnation());
    if (!order.elasticity_digest.empty()) made.emplace_back(kDigestVariable, order.elasticity_digest);
    if (environment_variable("OMP_NUM_THREADS") == nullptr && world_size > 1) made.emplace_back("OMP_NUM_THREADS", "1");
    return made;
  }

  // Starts one worker and listens to it.
  Result<> start(int64_t rank, int64_t world_size, int64_t restarts) {
    LaunchOrder launch;
    launch.command = order.command;
    launch.environment = environment(rank, world_size, restarts);
    launch.working_dir = order.config.run().working_dir;
    launch.log = order.directory.logs() / (restarts == 0 ? fmt::format("rank-{}.log", rank)
                                                         : fmt::format("rank-{}.restart-{}.log", rank, restarts));
    WorkerLog log(launch.log);
    Result<WorkerProcess> process = WorkerProcess::start(launch);
    if (!process) return failed(std::move(process));
    warden.watch(process->pid());
    const WorkerId id = next_worker++;
    // Not for the next worker to inherit.
    asio::posix::stream_descriptor socket(loop, ::fcntl(process->socket(), F_DUPFD_CLOEXEC, 0));
    asio::posix::stream_descriptor end(loop, ::fcntl(process->pidfd(), F_DUPFD_CLOEXEC, 0));
    slots.emplace(id, Slot{std::move(*process), rank, std::move(log), std::move(socket), std::move(end), false});
    if (group) group->started(id);
    if (foreign) foreign->started(id, rank);
    listen(id);
    slots.at(id).end.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](const error_code& error) {
      if (!error) worker_ended(id);
    });
    return {};
  }

  void listen(WorkerId id) {
    slots.at(id).socket.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](const error_code& error) {
      if (!error && slots.contains(id) && hear(id)) listen(id);
    });
  }

  // Handles what a worker has said; false when there is nothing more to hear from it.
  bool hear(WorkerId id) {
    if (slots.at(id).broken) return false;
    bool closed = false;
    const auto lines = slots.at(id).process.receive(closed);
    if (!lines) return break_with(id, lines.error());
    for (const std::string& line : *lines) {
      const Result<FromWorker> message = parse_from_worker(line);
      if (!message) return break_with(id, message.error());
      if (const auto* hello = std::get_if<Hello>(&*message)) slots.at(id).program = hello->pid;
      if (group && foreign && std::holds_alternative<Hello>(*message)) {  // this program uses the API
        foreign_restarts = foreign->restarts();
        foreign.reset();
      }
      // Its group is being ended as a foreign one, by SIGTERM, which a program that uses the API leaves to its agent.
      const bool stays = !group && foreign && order.config.run().attach == "auto";
      if (stays && std::holds_alternative<Hello>(*message)) kill(id);
      const auto* const written = std::get_if<SnapshotWritten>(&*message);
      if (written != nullptr && !written->error.empty() && !look() && group) group->fail({1, "failed", gone});
      if (group) group->received(id, *message);
    }
    return !closed;
  }

  // Kills a worker that does not keep to the protocol; its end is a loss like any other. Returns false.
  bool break_with(WorkerId id, const Error& why) {
    Slot& slot = slots.at(id);
    slot.broken = true;
    event(fmt::format("worker {} (RANK {} at its start, process {}) is killed: {}", id, slot.rank, slot.process.pid(),
                      why.message()),
          true);
    kill(id);
    return false;
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
    std::error_code ignored;
    std::filesystem::remove(order.directory.visits(slot.program), ignored);
    if (order.options.show_logs) show_log(slot, true);
    const bool failed_by_itself = !status.signalled && status.code != 0;
    const std::vector<std::string> last_lines = slot.log.last_lines();
    if (failed_by_itself) status.last_words = cause_among(last_lines);
    if (failed_by_itself && !order.options.show_logs) {
      for (const std::string& line : last_lines) event(fmt::format("  rank {}| {}", slot.rank, line), false);
      event(fmt::format("  the whole log: {}", slot.log.file().string()), false);
    }
    if (!order_to_stop(status)) return count_end(id, status);
    const auto moment = std::make_shared<asio::steady_timer>(loop, kSignalsApart);
    moment->async_wait([this, id, status, moment](const error_code&) { count_end(id, status); });
  }

  // Whoever stops a job often signals the agent and the workers together (systemd, Slurm). A worker that died of that
  // is no loss, so the agent gives its own signal time to arrive.
  [[nodiscard]] bool order_to_stop(const ExitStatus& status) const {
    return stops_seen == 0 && status.signalled &&
           (status.code == SIGINT || status.code == SIGTERM || status.code == SIGHUP);
  }

  void count_end(WorkerId id, const ExitStatus& status) {
    if (group && foreign) group.reset();  // one ended before any used the API: for now it counts as foreign
    if (group) group->ended(id, status);
    if (foreign) foreign->ended(id, status);
  }

  void show_log(Slot& slot, bool all) {
    if (const int64_t skipped = all ? slot.log.skip_to_last() : 0; skipped > 0) {
      event(fmt::format("{} bytes of rank {} are left out here; the whole log: {}", skipped, slot.rank,
                        slot.log.file().string()),
            true);
    }
    const int64_t size = slot.log.size();  // it may grow as fast as it is shown
    for (bool more = true; more;) {
      const std::vector<std::string> lines = slot.log.added_lines(all);
      for (const std::string& line : lines) event(fmt::format("rank {}| {}", slot.rank, line), false);
      more = all && !lines.empty() && slot.log.shown() < size;
    }
  }

  // GroupActions.

  void send(WorkerId worker, const ToWorker& message) override {
    const auto found = slots.find(worker);
    if (found == slots.end() || found->second.broken) return;
    if (const auto sent = found->second.process.send(to_line(message)); !sent) {
      break_with(worker, sent.error());
      return;
    }
    if (!found->second.process.flush()) flush(worker);
  }

  void spawn() override {
    ++workers_owed;
    spawn_owed();
  }

  [[nodiscard]] int64_t owed() const override { return workers_owed; }

  // What keeps a worker from being started, a lack of descriptors say, may pass.
  void spawn_owed() {
    for (; workers_owed > 0; --workers_owed) {
      restore_files();
      const Result<> started = spawn_one();
      if (!started && spawn_refused != started.error().message()) {
        spawn_refused = started.error().message();
        event(fmt::format("{}; trying on", spawn_refused), true);
      }
      if (!started) return;
    }
    spawn_refused.clear();
  }

  // A worker that joins reads what the agent has in its memory: what was removed or damaged since is written again.
  void restore_files() {
    if (!job_plan || !look()) return;
    const auto restore = [this](const fs::path& file, const std::string& text) {
      const auto found = data::read_whole(file);
      if (found && (*found)->bytes() == text) return;
      const Result<> written = write_file(file, text);
      event(fmt::format("{} was removed or changed: {}", file.string(),
                        written ? std::string("it is written again") : written.error().message()),
            true);
    };
    restore(order.directory.config(), order.config.resolved_toml());
    restore(order.directory.facts(), text_of(order.facts));
    std::error_code absent;
    const fs::path dataset = order.directory.dataset();
    if (fs::is_regular_file(dataset, absent) && fs::file_size(dataset, absent) == dataset_size) return;
    fs::remove(dataset, absent);
    const Result<> written = data::write_dataset_once(dataset, job_plan->batches().dataset());
    event(fmt::format("{} was removed or changed: {}", dataset.string(),
                      written ? std::string("it is written again") : written.error().message()),
          true);
  }

  Result<> spawn_one() {
    std::vector<bool> taken(static_cast<size_t>(order.config.run().workers), false);
    for (const auto& [id, slot] : slots) {
      if (static_cast<size_t>(slot.rank) < taken.size()) taken[static_cast<size_t>(slot.rank)] = true;
    }
    const auto free = std::find(taken.begin(), taken.end(), false);
    Result<> started = start(free == taken.end() ? 0 : free - taken.begin(), order.config.run().workers,
                             foreign_restarts + replacements + 1);
    if (started) ++replacements;
    return started;
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
    for (int64_t rank = 0; rank < world_size; ++rank) {
      if (const Result<> started = start(rank, world_size, restarts); !started) {
        spawn_failure = started.error().message();
        event(spawn_failure, true);
      }
    }
  }

  Result<int64_t> next_generation(int64_t world_size) override {
    // The workers of the first generation were started in it; whoever then forms it must not ask for another.
    if (std::exchange(generation_in_hand, false)) return generation.number;
    Result<Generation> joined = rendezvous->join(order.facts.run_id, static_cast<int32_t>(world_size));
    if (!joined) return failed(std::move(joined));
    generation = *joined;
    return generation.number;
  }

  Result<> open_plan(const std::string& fingerprint) override {
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
      std::error_code absent;
      dataset_size = fs::file_size(order.directory.dataset(), absent);
      if (!ledger) ledger = or_throw(Ledger::create(order.directory.ledger(), order.facts.run_id, fingerprint));
      if (ledger->lineage().fingerprint != fingerprint) {
        job_plan.reset();  // they are another job's
        return other_batches(order, ledger->lineage(), fingerprint);
      }
      if (Result<> sound = check_ledger(order, ledger->lineage(), job_plan->batches()); !sound) {
        job_plan.reset();
        return failed(std::move(sound));
      }
      return {};
    } catch (const Error& error) {
      return tl::unexpected<Error>(error);
    }
  }

  bool has_step(int64_t step) override { return job_plan->batches().has_step(step); }
  Result<StepFacts> facts_of(int64_t step) override { return job_plan->facts_of(step); }
  Result<Assignment> assignment_of(int64_t step, const Sharing& how, CostRates rates) override {
    return job_plan->assignment_of(step, how, rates);
  }

  Result<> record(const CommitRecord& entry) override { return append(entry); }
  Result<> record(const GenerationRecord& entry) override {
    GenerationRecord with_config = entry;
    with_config.config = digest_of_config(order.config.resolved_toml());
    return append(with_config);
  }
  Result<> record(const RestartRecord& entry) override { return append(entry); }
  Result<> record(const NotFiniteRecord& entry) override { return append(entry); }
  Result<> record(const SnapshotRecord& entry) override {
    SnapshotRecord inside = entry;
    if (fs::path(entry.file).is_absolute()) {
      inside.file = fs::path(entry.file).lexically_relative(order.directory.path()).string();
    }
    return append(inside);
  }
  void drop_snapshot(const SnapshotRecord& entry) override {
    std::error_code ignored;  // one that stays costs room only
    fs::remove(order.directory.path() / entry.file, ignored);
  }
  std::string snapshot_path(int64_t step) const override {
    if (gone.empty()) return snapshot_file(step).string();
    return rescue_lock ? (order.directory.path() / snapshot_file(step)).string() : std::string();
  }
  void confirmed(const SnapshotRecord& entry) override { prune_snapshots(entry.step); }
  bool has_snapshot(const SnapshotRecord& entry) const override {
    std::error_code error;
    return fs::exists(order.directory.path() / entry.file, error);
  }

  [[nodiscard]] bool has_newest_snapshot() const {
    const auto& snapshots = ledger->lineage().snapshots;
    return !snapshots.empty() && has_snapshot(snapshots.back());
  }

  template <class Record>
  Result<> append(const Record& entry) {
    if (Result<> there = look(); !there) return there;
    return ledger->append(entry);
  }

  // Whether the run directory is still there. The first look that finds it gone leaves it for a fresh one, whose ledger
  // has the same records; the job ends then, with a snapshot there where there is one or a worker can write one.
  Result<> look() {
    if (!gone.empty()) return {};
    if (!ledger) {
      look_without_ledger();
      return {};
    }
    Result<> there = ledger->check_in_place();
    if (there) {
      hold_digests();
      return {};
    }
    gone = fmt::format("the run directory {} is {}: {}", order.directory.path().string(),
                       there.error().status() == Status::kNotFound ? "gone" : "damaged", there.error().message());
    if (!slots.empty() || has_newest_snapshot()) leave_directory();
    event(gone, true);
    return failed(Status::kNotFound, gone);
  }

  // For a rescue: what is held can still be read when it is removed.
  void hold_digests() {
    if (digests.get() >= 0 || order.config.run().digest_every == 0) return;
    if (auto file = open_file(order.directory.path() / kDigestsFile, O_RDONLY, "open the digests"))
      digests = std::move(*file);
  }

  // A foreign program keeps its state elsewhere and goes on; what it prints is lost.
  void look_without_ledger() {
    if (home.get() < 0 || names(order.directory.path(), home.get())) return;
    home = FileDescriptor();
    event(fmt::format("the run directory {} was removed, moved or replaced: what workers print is lost",
                      order.directory.path().string()),
          true);
  }

  void leave_directory() {
    if (const Result<> moved = move_to_fresh_directory(); !moved)
      gone += fmt::format("; nothing could be saved: {}", moved.error().message());
  }

  Result<> move_to_fresh_directory() {
    if (!job_plan) return failed(Status::kFailedPrecondition, "no worker was ready yet");
    Result<RunDirectory> fresh = rescue_directory(order.directory);
    if (!fresh) return failed(std::move(fresh));
    Result<DirectoryLock> lock = DirectoryLock::take(*fresh);
    if (!lock) return failed(std::move(lock));
    Result<Ledger> copy = rescue_run(*fresh, order, job_plan->batches().dataset(), *ledger, digests.get());
    if (!copy) return failed(std::move(copy));
    gone += fmt::format("; what the job has goes to {path}: go on with `pliant run {config} --resume {path}`",
                        fmt::arg("path", fresh->path().string()), fmt::arg("config", order.config.file().string()));
    rescue_lock = std::move(*lock);
    ledger = std::move(*copy);
    order.directory = std::move(*fresh);
    return {};
  }

  // The verdict, unless nothing is left of the run that it is about.
  Verdict at_end(Verdict over) {
    static_cast<void>(look());
    if (gone.empty()) {
      if (ledger && over.outcome != "failed") prune_snapshots(INT64_MAX);
      return over;
    }
    if (rescue_lock && !has_newest_snapshot()) {
      event("no worker could write a snapshot there: a resume has to compute steps again", true);
    }
    return over.outcome == "failed" ? over : Verdict{1, "failed", gone};
  }

  // Keeps the newest ones of at most `step` steps, and those of more, which do not count yet.
  void prune_snapshots(int64_t step) {
    const auto& all = ledger->lineage().snapshots;
    const auto end = std::partition_point(all.begin(), all.end(), [step](const auto& one) { return one.step <= step; });
    auto oldest = static_cast<size_t>(end - all.begin());
    pruned = std::min(pruned, oldest);
    for (int64_t kept = 0; oldest > pruned && kept < order.config.run().keep_snapshots;) {
      if (has_snapshot(all[--oldest])) ++kept;
    }
    for (; pruned < oldest; ++pruned) drop_snapshot(all[pruned]);
  }

  void interrupted() override { pace.interrupted(now()); }

  void committed(const CommitRecord& entry, int64_t world_size) override {
    observer.on_commit(pace.committed(entry, world_size, job_plan->batches().expected_steps(), now()));
  }

  void agent_kill_point(int64_t step, const char* at) override {
    for (const InjectedKill& kill : order.options.injections) {
      if (kill.agent && kill.step == step && kill.at == at) ::kill(::getpid(), SIGKILL);
    }
  }

  // The loop.

  void listen_for_stops() {
    if (order.options.stop)
      or_throw(stop_calls.listen(*order.options.stop, [this] { stop(128 + SIGTERM, "request"); }));
    if (!order.options.take_signals) return;
    stop_signals.take([this](int number) {
      // Who stops a job may say so twice at once: `timeout` does, and systemd with SendSIGHUP.
      if (now() - signalled_at < kOneOrderSeconds) return;
      signalled_at = now();
      stop(128 + number, "signal");
    });
  }

  // `by`: what has told so, in one word.
  void stop(int code, const char* by) {
    if (++stops_seen > 1) {
      event("stopping at once", true);
      for (const auto& [id, slot] : slots) slot.process.signal_group(SIGKILL);
      forced = Verdict{code, "stopped", fmt::format("stopped at once by a second {}", by)};
      return;
    }
    // While no worker has used the API the program may be a foreign one, and is asked to end as one.
    event(foreign ? "stopping: the workers are asked to end; once more stops at once"
                  : "stopping after this step; once more stops at once",
          false);
    if (foreign) {
      group.reset();
      foreign->request_stop(code, fmt::format("stopped by a {}", by));
    } else if (group) {
      group->request_stop(code);
    }
  }

  void wait_for_tick() {
    timer.expires_after(kTick);
    timer.async_wait([this](const error_code& error) {
      if (error) return;
      if (!look() && group) group->fail({1, "failed", gone});
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

  void tend_warden() {
    const Result<bool> replaced = warden.tend();
    if (!replaced && !warden_missing) {
      event(fmt::format("nobody would end the workers' processes if this agent died: {}; trying on",
                        replaced.error().message()),
            true);
    }
    warden_missing = !replaced;
    if (!replaced || !*replaced) return;
    event("the process that ends the workers' should this agent die was gone or stopped: another takes its place",
          true);
    watch_warden();
  }

  void watch_warden() {
    const int end = ::fcntl(warden.pidfd(), F_DUPFD_CLOEXEC, 0);
    if (end < 0) return;  // the next tick finds out as well
    warden_end.emplace(loop, end);
    warden_end->async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& error) {
      if (!error) tend_warden();
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
    options.on_nonfinite = run.on_nonfinite;
    options.compare_states = run.digest_every > 0;
    if (ledger) options.stopped_before_at = ledger->lineage().not_finite_step;
    if (ledger) options.fingerprint = ledger->lineage().fingerprint;
    options.max_restarts = run.max_restarts - restarts_spent;
    options.must_attach = run.attach == "required";
    options.start_timeout_s = run.start_timeout_s;
    options.hang_timeout_s = run.hang_timeout_s;
    options.min_resize_interval_s = static_cast<double>(order.min_resize_interval_s);
    options.snapshot_every = run.snapshot_every;
    options.trace = order.options.trace.has_value();
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
    home = or_throw(open_file(order.directory.path(), O_RDONLY | O_DIRECTORY, "open the run directory"));
    open_groups();
    listen_for_stops();
    wait_for_tick();
    watch_warden();
    spawn_group(order.config.run().workers, 0);
    while (true) {
      if (const auto over = verdict()) return at_end(*over);
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
std::vector<InjectedKill> Agent::unstruck() const {
  return state_->group ? state_->group->unstruck() : state_->order.options.injections;
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
int64_t Agent::restarts() const {
  if (uses_api()) return state_->foreign_restarts + state_->group->restarts();
  return state_->foreign ? state_->foreign->restarts() : state_->foreign_restarts;
}

}  // namespace pliant::elastic
