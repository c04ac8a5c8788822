// A rank that runs ahead of another, and is struck where its coordinator holds it up.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace pliant::test {

/// Where the two meet, in the folder of the job. Whoever reads it goes on once the other was struck and continued, has
/// died or was not held up at all.
inline constexpr const char* kMeetingPlace = "held.fifo";

/// Of the other one: blocks until then, so that no collective of the pass ends before.
inline void let_run_ahead() {
  ::mkfifo(kMeetingPlace, 0600);
  const int end = ::open(kMeetingPlace, O_RDONLY | O_CLOEXEC);
  std::array<char, 1> none{};
  while (::read(end, none.data(), none.size()) > 0) {
  }
  ::close(end);
}

/// Sends `signal` to this process once the thread that made it sleeps inside the visit `visit`.
class Ahead {
 public:
  Ahead(int signal, int visit) : signal_(signal), visit_(visit), runner_(::gettid()) {
    ::mkfifo(kMeetingPlace, 0600);
    meeting_ = ::open(kMeetingPlace, O_WRONLY | O_CLOEXEC);  // blocks until the other is there
    watcher_ = std::thread([this] { watch(); });
  }
  ~Ahead() {
    is_over_ = true;
    watcher_.join();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  void enter(int visit) { inside_ = visit; }
  void is_in() { inside_ = kOutside; }

 private:
  static constexpr int kOutside = -1;

  void watch() {
    while (!is_over_) {
      if (inside_ == visit_ && sleeps()) {
        ::raise(signal_);
        break;
      }
      std::this_thread::yield();
    }
    ::close(meeting_);
  }
  [[nodiscard]] bool sleeps() const {
    std::ifstream in(fmt::format("/proc/self/task/{}/stat", runner_));
    const std::string stat{std::istreambuf_iterator<char>(in), {}};
    const size_t state = stat.rfind(')') + 2;
    return state < stat.size() && stat[state] == 'S';
  }

  int signal_;
  int visit_;
  pid_t runner_;
  int meeting_ = -1;
  std::atomic<int> inside_{kOutside};
  std::atomic<bool> is_over_{false};
  std::thread watcher_;
};

}  // namespace pliant::test
