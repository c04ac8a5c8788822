// The workers of an Agent: started, heard, signalled, counted when they end.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include "base/environment.hpp"
#include "base/printable.hpp"
#include "data/input_file.hpp"
#include "data/lengths_file.hpp"
#include "elastic/agent/agent_state.hpp"
#include "elastic/calling.hpp"
#include "plan/scheduler.hpp"
#include "sharded/visit_differences.hpp"

namespace pliant::elastic {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
using boost::system::error_code;

constexpr size_t kLinesOfTail = 12;
constexpr auto kSignalsApart = std::chrono::milliseconds(300);

// What the plan gives `rank` when the rows are shared out in order: for programs that do not attach.
std::vector<std::pair<std::string, std::string>> plan_variables(const AgentOrder& order, int64_t rank,
                                                                int64_t world_size) {
  const auto micro_batch = order.micro_batch_of.find(world_size);
  if (order.facts.global_batch == 0 || micro_batch == order.micro_batch_of.end()) return {};
  const RowRange share = share_of(order.facts.global_batch, order.facts.granule, world_size, rank);
  const auto text = [](int64_t n) { return std::to_string(n); };
  return {{"PLIANT_GLOBAL_BATCH", text(order.facts.global_batch)},
          {"PLIANT_MICRO_BATCH", text(micro_batch->second)},
          {"PLIANT_ACCUMULATION_STEPS", text(static_cast<int64_t>(micro_batches(share, micro_batch->second).size()))},
          {"PLIANT_ROW_FIRST", text(share.first)},
          {"PLIANT_ROW_COUNT", text(share.count)}};
}

}  // namespace

void Agent::State::signal(WorkerId worker, int number) {
  const auto found = slots.find(worker);
  if (found == slots.end()) return;
  if (number != SIGCONT) found->second.is_ended = true;
  // To all at once, and once: whoever is continued may be stopped again before a second signal.
  if (number == SIGKILL || number == SIGCONT) return found->second.process.signal_group(number);
  found->second.process.signal_group(SIGCONT);  // a stopped one could not hear it
  found->second.process.signal_alone(number);   // what it has started is its own business to end
}

std::optional<std::pair<std::string, std::string>> Agent::State::first_difference(const std::string& one,
                                                                                  const std::string& other) const {
  if (one.empty() || other.empty()) return std::nullopt;
  std::ifstream ones(order.directory.list_of(one));
  std::ifstream others(order.directory.list_of(other));
  if (!ones || !others) return std::nullopt;
  std::pair<std::string, std::string> lines;
  const auto next = [](std::ifstream& from, std::string& line) {
    if (std::getline(from, line)) return line = printable(line), true;
    line = "nothing more";
    return false;
  };
  while (true) {
    const bool is_one = next(ones, lines.first);
    const bool is_other = next(others, lines.second);
    if (!is_one && !is_other) return std::nullopt;
    if (lines.first != lines.second) return lines;
  }
}

std::optional<std::string> Agent::State::how_visits_differ(const std::vector<WorkerId>& ranks, int64_t of_generation,
                                                           bool all_done) {
  std::vector<const sharded::VisitReader*> pages;
  for (const WorkerId worker : ranks) {
    const auto found = slots.find(worker);
    pages.push_back(found != slots.end() ? page_of(worker, found->second) : nullptr);
  }
  return sharded::how_visits_differ(pages, of_generation, all_done);
}

const sharded::VisitReader* Agent::State::page_of(WorkerId worker, Slot& slot) const {
  if (!slot.visits) {
    auto opened = sharded::VisitReader::open(order.directory.path() / RunDirectory::visits_of(worker));
    if (!opened) return nullptr;
    slot.visits.emplace(std::move(*opened));
  }
  return &*slot.visits;
}

bool Agent::State::is_stopped(WorkerId worker) {
  const auto found = slots.find(worker);
  return found != slots.end() && found->second.process.is_stopped();
}

std::vector<std::pair<std::string, std::string>> Agent::State::environment(int64_t rank, int64_t world_size,
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
  made.emplace_back(kProgramVariable, shell_words(order.options.command));
  for (auto& variable : plan_variables(order, rank, world_size)) made.push_back(std::move(variable));
  made.emplace_back(kProtocolVariable, text(kProtocol));
  made.emplace_back(Warden::kVariable, warden->incarnation());
  if (!order.elasticity_digest.empty()) made.emplace_back(kDigestVariable, order.elasticity_digest);
  if (environment_variable("OMP_NUM_THREADS") == nullptr && world_size > 1) made.emplace_back("OMP_NUM_THREADS", "1");
  return made;
}

Result<> Agent::State::start(int64_t rank, int64_t world_size, int64_t restarts) {
  LaunchOrder launch;
  launch.command = order.command;
  launch.environment = environment(rank, world_size, restarts);
  launch.working_dir = order.config.run().working_dir;
  launch.log = order.directory.logs() / (restarts == 0 ? fmt::format("rank-{}.log", rank)
                                                       : fmt::format("rank-{}.restart-{}.log", rank, restarts));
  WorkerLog log(launch.log);
  Result<WorkerProcess> process = WorkerProcess::start(launch);
  if (!process) return failed(std::move(process));
  warden->watch(process->pid());
  const WorkerId id = take(std::move(*process), rank, std::move(log));
  if (group) group->started(id);
  if (foreign) foreign->started(id, rank);
  attend(id);
  return {};
}

// A worker that is ready begins nothing while another one is still to be told of.
void Agent::State::adopt_group() {
  if (const auto joined = next_generation(order.config.run().workers); !joined) {
    spawn_failure = joined.error().message();
    return event(spawn_failure, true);
  }
  generation_in_hand = true;
  const Welcome welcome{order.directory.path().string(), shell_words(order.options.command), random_hex(),
                        order.elasticity_digest, ::getpid()};
  for (Caller& caller : order.callers) {
    const WorkerId id = take(WorkerProcess(std::move(caller)), next_worker, WorkerLog("/dev/null"));
    group->started(id);
    static_cast<void>(slots.at(id).process.send(to_line(welcome)));
  }
  for (const auto& [id, slot] : slots) {
    attend(id);
    if (!slots.at(id).process.flush()) flush(id);
  }
}

WorkerId Agent::State::take(WorkerProcess process, int64_t rank, WorkerLog log) {
  const WorkerId id = next_worker++;
  // Not for the next worker to inherit.
  asio::posix::stream_descriptor socket(loop, ::fcntl(process.socket(), F_DUPFD_CLOEXEC, 0));
  asio::posix::stream_descriptor end(loop, ::fcntl(process.pidfd(), F_DUPFD_CLOEXEC, 0));
  slots.emplace(id, Slot{std::move(process), rank, std::move(log), std::move(socket), std::move(end), false});
  return id;
}

void Agent::State::attend(WorkerId id) {
  listen(id);
  slots.at(id).end.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](const error_code& error) {
    if (!error) worker_ended(id);
  });
}

void Agent::State::listen(WorkerId id) {
  slots.at(id).socket.async_wait(asio::posix::stream_descriptor::wait_read, [this, id](const error_code& error) {
    if (error || !slots.contains(id)) return;
    if (hear(id)) return listen(id);
    // One whose process goes on without the job is as gone as another; its launcher waits for the process.
    if (!launches && !slots.at(id).broken) worker_ended(id);
  });
}

bool Agent::State::hear(WorkerId id) {
  if (slots.at(id).broken) return false;
  bool closed = false;
  const auto lines = slots.at(id).process.receive(closed);
  if (!lines) return break_with(id, lines.error());
  for (const std::string& line : *lines) {
    const Result<FromWorker> message = parse_from_worker(line);
    if (!message) return break_with(id, message.error());
    if (group && foreign && std::holds_alternative<Hello>(*message)) {  // this program uses the API
      foreign_restarts = foreign->restarts();
      foreign.reset();
    }
    // Its group is being ended as a foreign one, by SIGTERM, which a program that uses the API leaves to its agent.
    const bool stays = !group && foreign && order.config.run().attach == "auto";
    if (stays && std::holds_alternative<Hello>(*message)) kill(id);
    if (std::holds_alternative<Injected>(*message)) slots.at(id).is_ended = true;
    if (std::holds_alternative<Finished>(*message)) slots.at(id).has_finished = true;
    const auto* const written = std::get_if<SnapshotWritten>(&*message);
    if (written != nullptr && !written->error.empty() && !look() && group) group->fail(job_failed(gone));
    if (group) group->received(id, *message);
  }
  return !closed;
}

bool Agent::State::break_with(WorkerId id, const Error& why) {
  Slot& slot = slots.at(id);
  slot.broken = true;
  event(fmt::format("killing worker {} (RANK {} at its start, process {}): {}", id, slot.rank, slot.process.pid(),
                    why.message()),
        true);
  kill(id);
  return false;
}

void Agent::State::flush(WorkerId id) {
  slots.at(id).socket.async_wait(asio::posix::stream_descriptor::wait_write, [this, id](const error_code& error) {
    if (!error && slots.contains(id) && !slots.at(id).process.flush()) flush(id);
  });
}

void Agent::State::worker_ended(WorkerId id) {
  if (!slots.contains(id)) return;
  hear(id);                                // what it said before it died counts
  if (group) group->compare_visits(true);  // so does what it did, and its page goes with it
  Slot slot = std::move(slots.at(id));
  slots.erase(id);
  ExitStatus status = slot.process.reap();
  if (warden) warden->forget(slot.process.pid());
  if (!launches && slot.has_finished) status = {};  // what it does after the job is its launcher's affair
  std::error_code ignored;
  std::filesystem::remove(order.directory.path() / RunDirectory::visits_of(id), ignored);
  if (order.options.show_logs) show_log(slot, true);
  const bool failed_by_itself = status.is_known && !status.signalled && status.code != 0;
  const bool was_struck = status.signalled && !slot.is_ended && stops_seen == 0;
  const std::vector<std::string> last_lines = slot.log.last_lines();
  if (failed_by_itself) status.last_words = cause_among(last_lines);
  if ((failed_by_itself || was_struck) && !order.options.show_logs) show_tail(slot, status, last_lines);
  if (!order_to_stop(status)) return count_end(id, status);
  const auto moment = std::make_shared<asio::steady_timer>(loop, kSignalsApart);
  moment->async_wait([this, id, status, moment](const error_code&) { count_end(id, status); });
}

void Agent::State::show_tail(const Slot& slot, const ExitStatus& status, const std::vector<std::string>& lines) {
  ExitStatus end = status;
  end.last_words = cause_among(lines);
  const auto is_like_it = [&](const ExitStatus& other) { return ended_alike(other, end); };
  if (std::any_of(shown_ends.begin(), shown_ends.end(), is_like_it)) return;
  shown_ends.push_back(std::move(end));
  const size_t first = lines.size() > kLinesOfTail ? lines.size() - kLinesOfTail : 0;
  for (size_t i = first; i < lines.size(); ++i) event(fmt::format("  rank {}| {}", slot.rank, lines[i]), false);
  event(fmt::format("  the whole log: {}", slot.log.file().string()), false);
}

bool Agent::State::order_to_stop(const ExitStatus& status) const {
  return stops_seen == 0 && status.signalled &&
         (status.code == SIGINT || status.code == SIGTERM || status.code == SIGHUP);
}

void Agent::State::count_end(WorkerId id, const ExitStatus& status) {
  if (group && foreign) group.reset();  // one ended before any used the API: for now it counts as foreign
  if (group) group->ended(id, status);
  if (foreign) foreign->ended(id, status);
}

void Agent::State::show_log(Slot& slot, bool all) {
  if (const int64_t skipped = all ? slot.log.skip_to_last() : 0; skipped > 0) {
    event(fmt::format("{} bytes of rank {} are not shown here; complete log: {}", skipped, slot.rank,
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

void Agent::State::send(WorkerId worker, const ToWorker& message) {
  const auto found = slots.find(worker);
  if (found == slots.end() || found->second.broken) return;
  if (const auto sent = found->second.process.send(to_line(message)); !sent) {
    break_with(worker, sent.error());
    return;
  }
  if (!found->second.process.flush()) flush(worker);
}

void Agent::State::spawn() {
  ++workers_owed;
  spawn_owed();
}

void Agent::State::spawn_owed() {
  for (; workers_owed > 0; --workers_owed) {
    restore_files();
    const Result<> started = spawn_one();
    if (!started && spawn_refused != started.error().message()) {
      spawn_refused = started.error().message();
      event(fmt::format("{}; retrying", spawn_refused), true);
    }
    if (!started) return;
  }
  spawn_refused.clear();
}

void Agent::State::restore_files() {
  if (!job_plan || !look()) return;
  const auto restore = [this](const fs::path& file, const std::string& text) {
    const auto found = data::read_whole(file);
    if (found && (*found)->bytes() == text) return;
    const Result<> written = write_file(file, text);
    event(fmt::format("{} was removed or changed: {}", file.string(),
                      written ? std::string("written again") : written.error().message()),
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
                    written ? std::string("written again") : written.error().message()),
        true);
}

Result<> Agent::State::spawn_one() {
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

void Agent::State::spawn_group(int64_t world_size, int64_t restarts) {
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

Result<int64_t> Agent::State::next_generation(int64_t world_size) {
  // The workers of the first generation were started in it; whoever then forms it must not ask for another.
  if (std::exchange(generation_in_hand, false)) return generation.number;
  Result<Generation> joined = rendezvous->join(order.facts.run_id, static_cast<int32_t>(world_size));
  if (!joined) return failed(std::move(joined));
  generation = *joined;
  return generation.number;
}

}  // namespace pliant::elastic
