// Forks while another thread is in the midst of core: the child waits for nothing that only that thread could give
// back.
#include <doctest/doctest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "base/no_fork.hpp"
#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/error.hpp"
#include "pliant/log.hpp"
#include "pliant/plan.hpp"
#include "plugin/plugin.hpp"
#include "thorough.hpp"

using namespace pliant;
using plugin::kind_of;
using plugin::Plugin;

namespace {

constexpr unsigned kLongest = 60;  // seconds that a child may take; one that waits for good ends by SIGALRM

const char* const kJob =
    "config_version = 1\n[run]\nepochs = 2\n[elasticity]\nuse = \"exact\"\n"
    "[elasticity.exact]\nmax_train_batch_size = 12\nmicro_batch_sizes = [2]\nmax_gpus = 100\n"  // of which it warns
    "[sampler]\nuse = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 64\n";

/// Exit status of a child that does `work` and nothing else; -1 for one that a signal ended.
template <class Work>
int in_child(Work&& work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(kLongest);
    int wrong = 99;
    try {
      wrong = work();
    } catch (...) {
    }
    ::_exit(wrong);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Two ends of a pipe.
struct Pipe {
  Pipe() { REQUIRE(::pipe(ends) == 0); }
  ~Pipe() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void say() const { CHECK(::write(ends[1], "x", 1) == 1); }
  void hear() const {
    char byte = 0;
    CHECK(::read(ends[0], &byte, 1) == 1);
  }
  int ends[2]{-1, -1};
};

std::string refusal(const Result<std::shared_ptr<const Plugin>>& opened) {
  return opened ? std::string() : opened.error().message();
}

/// A thread that is in the midst of loading a plugin.
class Loading {
 public:
  Loading() {
    const std::string ends = std::to_string(begun_.ends[1]) + " " + std::to_string(go_.ends[0]);
    ::setenv("PLIANT_TEST_SLOW", ends.c_str(), 1);
    thread_ = std::thread([this] { why_ = refusal(Plugin::open(file(), *kind_of("lr"))); });
    begun_.hear();
    ::unsetenv("PLIANT_TEST_SLOW");
  }
  ~Loading() {
    if (thread_.joinable()) thread_.join();
  }
  Loading(const Loading&) = delete;
  Loading& operator=(const Loading&) = delete;
  static std::string file() { return std::string(PLUGIN_TEST_DIR) + "/lr-slow.pliant.so"; }
  void go_on() const { go_.say(); }
  [[nodiscard]] const std::string& why_not() {
    thread_.join();
    return why_;
  }

 private:
  Pipe begun_;
  Pipe go_;
  std::thread thread_;
  std::string why_;
};

std::atomic<const Loading*> goes_on_at_fork{nullptr};

struct Patience {
  explicit Patience(std::chrono::milliseconds wanted) { set_fork_patience(wanted); }
  ~Patience() { set_fork_patience(before); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;
  const std::chrono::milliseconds before = fork_patience();
};

}  // namespace

TEST_CASE("a fork in the midst of another thread's loading waits for its end, and the child opens that plugin") {
  Loading other;
  // Registered after core's own handler, and so called before it.
  REQUIRE(::pthread_atfork(
              [] {
                if (const Loading* const loading = goes_on_at_fork.exchange(nullptr)) loading->go_on();
              },
              nullptr, nullptr) == 0);
  goes_on_at_fork = &other;
  CHECK(in_child([] { return refusal(Plugin::open(Loading::file(), *kind_of("lr"))).empty() ? 0 : 1; }) == 0);
  CHECK(other.why_not().empty());
}

TEST_CASE("a child that a fork made when its patience was over says so, and waits for nothing") {
  const Patience patience{std::chrono::milliseconds(20)};
  Loading other;
  CHECK(in_child([] {
          const auto opened = Plugin::open(std::string(PLIANT_PLUGIN_DIR) + "/lr-sqrt.pliant.so", *kind_of("lr"));
          if (opened || opened.error().status() != Status::kFailedPrecondition) return 1;
          return opened.error().message().find("was forked while another thread") == std::string::npos ? 2 : 0;
        }) == 0);
  CHECK(in_child([] {
          const Log log("lines of a child are written or lost");
          return 0;
        }) == 99);
  other.go_on();
  CHECK(other.why_not().empty());
  CHECK(in_child([] { return refusal(Plugin::open(Loading::file(), *kind_of("lr"))).empty() ? 0 : 1; }) == 0);
}

TEST_CASE("what a thread holds itself does not keep it from forking, and is whole in the child") {
  const NoFork own;
  CHECK(in_child([] { return refusal(Plugin::open(Loading::file(), *kind_of("lr"))).empty() ? 0 : 1; }) == 0);
}

TEST_CASE("a child logs though another thread was writing a line at the fork") {
  static Pipe begun;
  static Pipe go;
  static std::atomic<int> lines{0};
  set_log_sink(
      [](LogLevel, std::string_view, std::string_view line) {
        ++lines;
        if (line != "slow") return;
        begun.say();
        go.hear();
      },
      LogLevel::kInfo);
  std::thread other([] { Log("test").write(LogLevel::kInfo, "slow"); });
  begun.hear();
  CHECK(in_child([] {
          Log("test").write(LogLevel::kInfo, "quick");
          set_log_sink({});
          return lines == 2 ? 0 : 1;
        }) == 0);
  go.say();
  other.join();
  set_log_sink({});
}

TEST_CASE(
    "a lock that another thread held at the fork is refused in the child, or taken over where that does no harm") {
  ProcessLock lock;
  Pipe begun;
  Pipe go;
  std::thread other([&] {
    const ProcessLock::Held held(lock, "planner");
    begun.say();
    go.hear();
  });
  begun.hear();
  CHECK(in_child([&] {
          try {
            const ProcessLock::Held refused(lock, "planner");
            return 1;
          } catch (const Error& error) {
            if (error.status() != Status::kFailedPrecondition) return 2;
            if (error.message().find("this planner was in use by another thread") == std::string::npos) return 3;
          }
          { const ProcessLock::Held taken_over(lock); }
          const ProcessLock::Held free_again(lock, "planner");
          return 0;
        }) == 0);
  go.say();
  other.join();
  const ProcessLock::Held free_again(lock, "planner");
}

// With sanitizers the memory of a child may be locked for good: theirs is not made for forks beside threads.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("children plan, however many are forked while other threads open, plan, log and close") {
  set_log_sink([](LogLevel, std::string_view, std::string_view) {}, LogLevel::kInfo);
  const ConfigNeeds needs{"elasticity", "sampler"};
  const Config kept = Config::parse(kJob, needs);
  const Planner planner(kept);
  const auto plan_anew = [&] {
    const Config config = Config::parse(kJob, needs);
    return make_plan(config).global_batch == 12;
  };
  const auto begin = [&] {
    Dataset dataset;
    dataset.lengths = std::vector<int32_t>(60, 5);
    return Batches(kept, make_plan(kept), dataset).batch(0, 0).epoch == 0;
  };
  std::atomic<bool> is_over{false};
  std::atomic<bool> is_right{true};
  std::vector<std::thread> threads;
  const auto repeat = [&](auto work) {
    threads.emplace_back([&is_over, &is_right, work] {
      while (!is_over) {
        if (!work()) is_right = false;
      }
    });
  };
  repeat(plan_anew);
  repeat(begin);
  repeat([&] { return make_plan(kept).global_batch == 12; });
  int wrong = 0;
  for (int i = 0; i < (test::is_thorough() ? 2000 : 200); ++i)
    wrong += in_child([&] { return plan_anew() && begin() && planner.plan().global_batch == 12 ? 0 : 1; }) == 0 ? 0 : 1;
  is_over = true;
  for (std::thread& thread : threads) thread.join();
  set_log_sink({});
  CHECK(wrong == 0);
  CHECK(is_right);
}
#endif
