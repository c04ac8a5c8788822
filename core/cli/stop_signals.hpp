// StopSignals: Ctrl-C and the signals like it, while there is something to clear away.
#pragma once

#include <csignal>
#include <vector>

namespace pliant::cli {

/// While it lives, the first SIGINT, SIGTERM or SIGHUP is noted instead of ending the process; the second ends it. One
/// at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Throws Error with exit code 128 + n when signal n came.
  static void check();

 private:
  struct Before {
    int number;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

}  // namespace pliant::cli
