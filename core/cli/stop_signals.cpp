#include "stop_signals.hpp"

#include <fmt/format.h>

namespace pliant::cli {

namespace {

volatile std::sig_atomic_t stopped_by = 0;

extern "C" void note_signal(int number) {
  stopped_by = number;
}

}  // namespace

StoppedBySignal::StoppedBySignal(int number) : number_(number), message_(fmt::format("stopped by signal {}", number)) {}

StopSignals::StopSignals() {
  stopped_by = 0;
  struct sigaction noted {};
  noted.sa_handler = note_signal;
  noted.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old {};
    if (::sigaction(number, nullptr, &old) != 0 || old.sa_handler == SIG_IGN) continue;  // nohup
    ::sigaction(number, &noted, nullptr);
    before_.push_back({number, old});
  }
}

StopSignals::~StopSignals() {
  for (const Before& one : before_) ::sigaction(one.number, &one.action, nullptr);
}

void StopSignals::check() {
  const int number = stopped_by;
  if (number != 0) throw StoppedBySignal(number);
}

}  // namespace pliant::cli
