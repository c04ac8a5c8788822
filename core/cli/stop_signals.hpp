// StopSignals: Ctrl-C and the signals like it, while there is something to clear away.
#pragma once

#include <csignal>
#include <exception>
#include <string>
#include <vector>

namespace pliant::cli {

/// A command gives up because of a signal; the process ends with 128 + number() then. No Error: nothing takes it for a
/// failure on its way to main().
class StoppedBySignal : public std::exception {
 public:
  explicit StoppedBySignal(int number);
  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] const char* what() const noexcept override { return message_.c_str(); }

 private:
  int number_;
  std::string message_;
};

/// While it lives, the first SIGINT, SIGTERM or SIGHUP is noted instead of ending the process; the second ends it. One
/// at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Throws StoppedBySignal when one came.
  static void check();

 private:
  struct Before {
    int number;
    struct sigaction action;
  };
  std::vector<Before> before_;
};

}  // namespace pliant::cli
