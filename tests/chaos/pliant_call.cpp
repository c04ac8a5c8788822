// PliantCall: one thread that strikes in time, watches the ledger, and reaps.
#include "chaos/pliant_call.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <regex>
#include <sstream>

#include "scratch_folder.hpp"

namespace pliant::test {
namespace {

namespace fs = std::filesystem;

constexpr double kTickSeconds = 0.002;
constexpr double kDeadlineSeconds = 30;  // from one commit to the next, beyond what the blows explain
constexpr double kOrphanSeconds = 5;
constexpr int kFatalOutput = 127;

/// Sanitizers catch signals that are sent to end a program, and end it in their own way.
void have_signals_left_alone() {
  for (const char* const options : {"TSAN_OPTIONS", "ASAN_OPTIONS"}) {
    const char* const given = std::getenv(options);
    const std::string before = given == nullptr ? std::string() : std::string(given) + ":";
    ::setenv(options, (before + "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0").c_str(),
             1);
  }
}

void begin_program(const fs::path& folder, const std::vector<std::string>& words, int gate, bool ignore_file_size) {
  std::vector<std::string> all{std::string(PLIANT_BIN_DIR) + "/pliant"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = ::open((folder / "stdout").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err = ::open((folder / "stderr").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  if (ignore_file_size) ::signal(SIGXFSZ, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  char byte = 0;
  const bool may_begin = ::read(gate, &byte, 1) == 0;
  ::close_range(3, ~0U, 0);
  have_signals_left_alone();
  if (may_begin && ::chdir(folder.c_str()) == 0) ::execv(argv[0], argv.data());
  ::_exit(kFatalOutput);
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<nlohmann::json> ledger_lines(const fs::path& directory) {
  std::vector<nlohmann::json> records;
  std::istringstream lines(read_all(directory / "ledger.jsonl"));
  for (std::string line; std::getline(lines, line) && !lines.eof();)
    records.push_back(nlohmann::json::parse(line, nullptr, false));
  return records;
}

PliantCall::PliantCall(Surroundings& surroundings, const Play& play, const std::vector<std::string>& words,
                       fs::path directory)
    : surroundings_(surroundings), folder_(surroundings.folder()), play_(play), directory_(std::move(directory)) {
  if (!directory_.empty()) lines_before_ = static_cast<int64_t>(ledger_lines(directory_).size());
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &children, nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  agent_ = ::fork();
  if (agent_ < 0) throw std::runtime_error("no process");
  if (agent_ == 0) {
    ::close(ends[1]);
    const bool limits = std::any_of(play.blows.begin(), play.blows.end(), [](const auto& blows) {
      return std::any_of(blows.begin(), blows.end(), [](const Blow& b) { return b.deed == Deed::kFileSize; });
    });
    begin_program(folder_, words, ends[0], limits);
  }
  ::close(ends[0]);
  gate_ = ends[1];
}

PliantCall::~PliantCall() {
  if (gate_ >= 0) ::close(gate_);
  if (ledger_ >= 0) ::close(ledger_);
  if (!ended_) ::kill(agent_, SIGKILL), ::waitpid(agent_, nullptr, 0);
}

void PliantCall::trace(int64_t at_call) {
  tracer_ = std::make_unique<CallTracer>(agent_, play_.trace_child, at_call, play_.trace_signal);
}

Incarnation PliantCall::run(std::vector<Blow> blows) {
  blows_ = std::move(blows);
  ::close(gate_);
  gate_ = -1;
  began_ = progress_at_ = seconds_now();
  double explained = 0;
  for (const Blow& blow : blows_) explained += explains(blow);
  sigset_t children;
  ::sigemptyset(&children);
  ::sigaddset(&children, SIGCHLD);
  for (double before = began_; !ended_; before = seconds_now()) {
    const timespec tick{0, static_cast<long>(kTickSeconds * 1e9)};
    ::sigtimedwait(&children, nullptr, &tick);
    late_ += std::max(0.0, seconds_now() - before - 0.1);
    reap();
    if (ended_) break;
    find_struck_by_tracer();
    follow_ledger();
    play_next();
    undo(seconds_now());
    if (seconds_now() - progress_at_ < kDeadlineSeconds + explained + late_) continue;
    seen_.ended = false;
    for (const pid_t pid : processes_in(folder_.string())) ::kill(pid, SIGKILL);
    if (const pid_t warden = warden_of(agent_); warden != 0) ::kill(warden, SIGKILL);
    ::kill(agent_, SIGKILL);
  }
  find_struck_by_tracer();
  follow_ledger();
  note_progress();
  undo(INFINITY);
  wait_for_the_last();
  read_words();
  read_ledger();
  return seen_;
}

void PliantCall::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG | __WALL)) > 0;) {
    if (tracer_ && tracer_->step(pid, status)) continue;
    if (pid != agent_) continue;
    ended_ = true;
    seen_.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

void PliantCall::find_struck_by_tracer() {
  if (!tracer_ || tracer_->struck() == 0 || struck_ > 0) return;
  ++struck_;
  seen_.done.push_back(fmt::format("signal {} to {} at stop {} of its system calls", play_.trace_signal,
                                   play_.trace_child == 0   ? "the agent"
                                   : play_.trace_child == 1 ? "the warden"
                                                            : fmt::format("worker {}", play_.trace_child - 2),
                                   tracer_->stops_seen()));
  if (play_.trace_child == 0) {
    seen_.signals.insert(play_.trace_signal);
    if (play_.trace_signal != SIGKILL) ++seen_.stops_asked;
  } else if (play_.trace_child == 1) {
    seen_.warden_struck = true;
  } else {
    seen_.struck.insert(play_.trace_child - 2);  // they are started in the order of their ids
    seen_.doomed.insert(play_.trace_child - 2);
  }
}

void PliantCall::follow_ledger() {
  if (ledger_ < 0) {
    if (directory_.empty()) {
      std::error_code absent;
      directory_ = fs::canonical(folder_ / "pliant-runs" / "toy" / "latest", absent);
      if (absent) return directory_.clear();
    }
    ledger_ = ::open((directory_ / "ledger.jsonl").c_str(), O_RDONLY | O_CLOEXEC);
    if (ledger_ < 0) return;
    char byte = 0;
    for (int64_t lines = 0; lines < lines_before_ && ::read(ledger_, &byte, 1) == 1;) lines += byte == '\n';
  }
  char bytes[4096];
  for (ssize_t n = 0; (n = ::read(ledger_, bytes, sizeof(bytes))) > 0;) {
    for (ssize_t i = 0; i < n; ++i) {
      if (bytes[i] != '\n') {
        line_ += bytes[i];
        continue;
      }
      if (line_.find("\"record\":\"commit\"") != std::string::npos) {
        note_progress();
        ++commits_;
      }
      line_.clear();
    }
  }
}

void PliantCall::note_progress() {
  const double here = seconds_now();
  Gap gap{here - progress_at_, kUsualSeconds + late_};
  for (const Struck& blow : history_) {
    if (blow.at + blow.explains >= progress_at_ - kUsualSeconds) gap.bound += blow.explains;
  }
  if (seen_.longest_gap == 0 || gap.seconds - gap.bound > seen_.worst.seconds - seen_.worst.bound) seen_.worst = gap;
  if (gap.seconds > seen_.longest_gap) {
    seen_.longest_gap = gap.seconds;
    seen_.longest_bound = gap.bound;
  }
  progress_at_ = here;
  late_ = 0;
}

void PliantCall::play_next() {
  while (next_ < blows_.size()) {
    const Blow& blow = blows_[next_];
    if (commits_ < blow.after_commits) return;
    if (due_ < 0) due_ = seconds_now() + blow.then_s;
    if (seconds_now() < due_ || !strike(blow)) return;
    seen_.done.push_back(fmt::format("{:.3f} s, {} commits: {}", seconds_now() - began_, commits_, words_for(blow)));
    history_.push_back({seconds_now(), explains(blow)});
    ++struck_;
    ++next_;
    due_ = -1;
  }
}

// Ends what lasts a while and is over by `at`.
void PliantCall::undo(double at) {
  for (Stopped& one : stopped_) {
    if (at < one.until || (one.until == INFINITY && !ended_)) continue;
    if (!(ended_ && one.pid == agent_)) ::kill(one.pid, SIGCONT);
    one.until = -1;
  }
  stopped_.erase(std::remove_if(stopped_.begin(), stopped_.end(), [](const Stopped& one) { return one.until < 0; }),
                 stopped_.end());
  if (disk_free_at_ >= 0 && at >= disk_free_at_ && (disk_free_at_ != INFINITY || ended_)) {
    surroundings_.free_disk();
    disk_free_at_ = -1;
  }
  if (link_up_at_ >= 0 && at >= link_up_at_) {
    surroundings_.set_link(true);
    link_up_at_ = -1;
  }
}

void PliantCall::wait_for_the_last() {
  std::vector<pid_t> left;
  for (const double since = seconds_now(); !(left = processes_in(folder_.string())).empty();) {
    reap();  // what was orphaned is this process's now
    if (seconds_now() - since > kOrphanSeconds) break;
    const timespec tick{0, 5'000'000};
    ::nanosleep(&tick, nullptr);
  }
  seen_.left_behind = static_cast<int64_t>(left.size());
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
  reap();
}

void PliantCall::read_words() {
  seen_.err = read_all(folder_ / "stderr");
  std::istringstream lines(read_all(folder_ / "stdout"));
  std::string last;
  for (std::string line; std::getline(lines, line);) last = line;
  summary_ = nlohmann::json::parse(last, nullptr, false);
  if (summary_.is_object()) {
    seen_.restarts = summary_.value("restarts", int64_t{0});
    if (const std::string named = summary_.value("directory", ""); !named.empty()) directory_ = named;
  }
  static const std::regex kLost(
      "worker (\\d+)\\)? (was killed by|exited with|made no progress|cannot (take part|join|write)|was stopped|was not "
      "ready|has saved|holds steps|reads other|is killed)");
  for (std::sregex_iterator at(seen_.err.begin(), seen_.err.end(), kLost), end; at != end; ++at)
    seen_.lost.insert(std::atoll((*at)[1].str().c_str()));
}

void PliantCall::read_ledger() {
  if (directory_.empty()) return;
  int64_t lineage = 0;
  int64_t line = 0;
  int64_t world_size = 0;
  bool fresh = lines_before_ > 0;
  for (const nlohmann::json& record : ledger_lines(directory_)) {
    const bool own = ++line > lines_before_;
    if (!record.is_object()) continue;
    const std::string kind = record.value("record", "");
    if (kind == "generation") world_size = record.value("world_size", int64_t{0});
    if (kind == "commit") {
      ++lineage;
      if (own) fresh = false;
    }
    if (kind != "restart") continue;
    const int64_t to = record.value("step", int64_t{0});
    if (own) seen_.retreats.push_back({lineage - to, world_size, fresh});
    lineage = to;
  }
}

}  // namespace pliant::test
