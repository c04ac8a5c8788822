// run_job in a program of its own: what it leaves alone, and how it is told to stop.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <clocale>
#include <filesystem>
#include <functional>
#include <locale>
#include <string>
#include <thread>
#include <vector>

#include "pliant/error.hpp"
#include "pliant/job.hpp"
#include "scratch_folder.hpp"
#include "unit/agent/job_ends.hpp"

namespace {

using pliant::Config;
using pliant::JobEnd;
using pliant::JobOptions;
using pliant::JobOutcome;
using pliant::JobStop;
using pliant::JobSummary;
using pliant::elastic::has_failed;
using pliant::elastic::was_stopped;

struct Hears final : pliant::JobObserver {
  std::function<void(std::string_view)> heard = [](std::string_view) {};
  void on_event(std::string_view line, bool) override { heard(line); }
};

constexpr const char* kBegun = "rank 0| begun";
constexpr const char* kAsked = "stopping: waiting for the workers to end; another signal stops at once";

/// Runs one worker, `script` of sh, which says "begun" when it has.
JobSummary run(const std::string& script, JobOptions options, std::function<void(std::string_view)> heard = {}) {
  const pliant::test::ScratchFolder folder;
  const auto file =
      folder.write("pliant.toml", "config_version = 1\n[run]\nattach = \"never\"\nmax_restarts = 0\nlog_dir = \"" +
                                      folder.path().string() + "\"\n");
  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  options.command = {"/bin/sh", "-c", script};
  options.show_logs = true;
  Hears observer;
  if (heard) observer.heard = std::move(heard);
  const Config config = Config::open(file, pliant::job_needs(Config::open(file, {}, overrides)), overrides);
  return pliant::run_job(config, options, observer);
}

volatile sig_atomic_t heard_by_program = 0;
extern "C" void of_the_program(int) {
  heard_by_program = heard_by_program + 1;
}

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGQUIT, SIGUSR1};

/// The program's own handlers while it lives.
class OwnHandlers {
 public:
  OwnHandlers() {
    heard_by_program = 0;
    struct sigaction own {};
    own.sa_handler = of_the_program;
    own.sa_flags = SA_RESTART;
    ::sigaddset(&own.sa_mask, SIGUSR2);
    for (const int number : kSignals) before_.push_back(set(number, own));
  }
  ~OwnHandlers() {
    for (size_t i = 0; i < before_.size(); ++i) set(kSignals[i], before_[i]);
  }
  OwnHandlers(const OwnHandlers&) = delete;
  OwnHandlers& operator=(const OwnHandlers&) = delete;

  static bool are_there() {
    for (const int number : kSignals) {
      struct sigaction now {};
      ::sigaction(number, nullptr, &now);
      if (now.sa_handler != of_the_program || (now.sa_flags & SA_RESTART) == 0 || !::sigismember(&now.sa_mask, SIGUSR2))
        return false;
    }
    return true;
  }

 private:
  static struct sigaction set(int number, const struct sigaction& action) {
    struct sigaction had {};
    ::sigaction(number, &action, &had);
    return had;
  }
  std::vector<struct sigaction> before_;
};

/// Everything of the process that a job might change, as text.
std::string state_of_process() {
  std::string state = std::filesystem::current_path().string() + " " + std::locale().name() + " " +
                      std::setlocale(LC_ALL, nullptr) + " " + std::to_string(::getpgrp());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  state += " " + std::to_string(mask);
  for (const auto what : {RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_STACK}) {
    rlimit limit{};
    ::getrlimit(what, &limit);
    state += " " + std::to_string(limit.rlim_cur);
  }
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  for (int number = 1; number < SIGRTMAX; ++number) state += ::sigismember(&blocked, number) == 1 ? "b" : "-";
  for (char** entry = environ; *entry != nullptr; ++entry) state += std::string("\n") + *entry;
  return state;
}

}  // namespace

TEST_CASE("a job touches no signal of a program that does not ask for it, and nothing else of the process") {
  const OwnHandlers own;
  const std::string before = state_of_process();
  bool begun = false;
  const JobSummary summary = run("echo begun", {}, [&](std::string_view line) {
    if (line != kBegun) return;
    begun = true;
    CHECK(OwnHandlers::are_there());
    CHECK(state_of_process() == before);
  });
  CHECK(summary.end.outcome == JobOutcome::kFinished);
  CHECK(begun);
  CHECK(OwnHandlers::are_there());
  CHECK(state_of_process() == before);
}

TEST_CASE("a job that takes signals is ended by one, names it and puts the program's handlers back") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    const OwnHandlers own;
    const std::string before = state_of_process();
    JobOptions options;
    options.take_signals = true;
    const JobSummary summary = run("echo begun; exec sleep 600", options, [&](std::string_view line) {
      if (line == kBegun) ::kill(::getpid(), number);
    });
    CHECK(was_stopped(summary.end, number));
    CHECK(summary.end.reason == "stopped by a signal");
    CHECK(OwnHandlers::are_there());
    CHECK(state_of_process() == before);
  }
}

TEST_CASE("a job that fails puts the program's handlers back, too") {
  const OwnHandlers own;
  JobOptions options;
  options.take_signals = true;
  CHECK(has_failed(run("exit 7", options).end));
  CHECK(OwnHandlers::are_there());
}

TEST_CASE("a job that fails for a worker has its exit code or signal") {
  const JobEnd exited = run("exit 7", {}).end;
  REQUIRE(exited.worker);
  CHECK(exited.worker->exit_code == 7);
  CHECK(exited.worker->signal == 0);
  const JobEnd killed = run("kill -SEGV $$", {}).end;
  CHECK(has_failed(killed));
  REQUIRE(killed.worker);
  CHECK(killed.worker->exit_code == 0);
  CHECK(killed.worker->signal == SIGSEGV);
}

TEST_CASE("a stop that is requested from another thread asks the workers to end, as SIGTERM does") {
  const OwnHandlers own;
  JobOptions options;
  options.stop.emplace();
  std::thread other;
  const JobSummary summary = run("trap 'echo ending; exit 0' TERM; echo begun; while :; do sleep 0.01; done", options,
                                 [&](std::string_view line) {
                                   if (line == kBegun) other = std::thread([stop = *options.stop] { stop.request(); });
                                 });
  REQUIRE(other.joinable());
  other.join();
  CHECK(was_stopped(summary.end, SIGTERM));
  CHECK(summary.end.reason == "stopped by a request");
  CHECK(OwnHandlers::are_there());
}

TEST_CASE("a second request kills the workers at once") {
  JobOptions options;
  options.stop.emplace();
  const JobSummary summary = run("trap '' TERM; echo begun; exec sleep 600", options, [&](std::string_view line) {
    if (line == kBegun || line == kAsked) options.stop->request();
  });
  CHECK(was_stopped(summary.end, SIGTERM));
  CHECK(summary.end.reason == "stopped at once by a second request");
  CHECK(summary.wall_seconds < 10);  // [run] stop_grace_s is 15
}

TEST_CASE("requests that came before the job count as soon as it has begun") {
  JobOptions options;
  options.stop.emplace();
  options.stop->request();
  const JobSummary once = run("exec sleep 600", options);
  CHECK(was_stopped(once.end, SIGTERM));
  CHECK(once.end.reason == "stopped by a request");
  options.stop.emplace();
  options.stop->request();
  options.stop->request();
  CHECK(run("trap '' TERM; exec sleep 600", options).end.reason == "stopped at once by a second request");
}

TEST_CASE("a program that ignores SIGCHLD is refused: a failed worker would seem to end well") {
  struct sigaction ignored {};
  ignored.sa_handler = SIG_IGN;
  struct sigaction had {};
  ::sigaction(SIGCHLD, &ignored, &had);
  std::string why;
  try {
    static_cast<void>(run("exit 1", {}));
  } catch (const pliant::Error& error) {
    CHECK(error.status() == pliant::Status::kFailedPrecondition);
    why = error.message();
  }
  ::sigaction(SIGCHLD, &had, nullptr);
  CHECK(why.find("this program ignores SIGCHLD") == 0);
}
