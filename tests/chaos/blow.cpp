// What a blow means: how long it explains that nothing moves, what it does to a worker, and its words.
#include "chaos/blow.hpp"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cstring>

namespace pliant::test {

bool stops_a_process(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

double explains(const Blow& blow) {
  const bool stops = blow.deed == Deed::kSignal && stops_a_process(blow.number);
  if (stops && (blow.who == Who::kAgent || blow.who == Who::kAgentAndWorkers)) return blow.for_s + kHangSeconds;
  if (stops && blow.who == Who::kWarden) return 0;
  if (stops) return blow.for_s < 0 ? kHangSeconds + 3 : std::min(blow.for_s, kHangSeconds + 3);
  if (blow.deed == Deed::kCutLink) return blow.for_s + kPeerSeconds + kHangSeconds;
  if (blow.deed == Deed::kFillDisk) return std::max(blow.for_s, 0.0);
  return 0;
}

Harm harm_of(const Blow& blow) {
  constexpr double kHarmlessSeconds = 1;  // less than hang_timeout_s, with some room
  if (blow.deed != Deed::kSignal) return Harm::kSure;
  if (stops_a_process(blow.number)) return blow.for_s < 0 || blow.for_s > kHarmlessSeconds ? Harm::kSure : Harm::kNone;
  switch (blow.number) {
    case SIGCHLD:
    case SIGURG:
    case SIGWINCH:
    case SIGCONT:
      return Harm::kNone;
    case SIGINT:
    case SIGTERM:
    case SIGHUP:  // the toy worker leaves them to the agent, once it has begun
      return Harm::kPossible;
    default:
      return Harm::kSure;
  }
}

std::string words_for(const Blow& blow) {
  const std::string how_long = blow.for_s < 0 ? "for good" : fmt::format("for {:.2f} s", blow.for_s);
  const char* const who[] = {"the agent",
                             "the warden",
                             "a worker",
                             "the newest worker",
                             "a grandchild",
                             "all workers",
                             "the agent and all workers",
                             "the surroundings"};
  const std::string whom = who[static_cast<int>(blow.who)];
  switch (blow.deed) {
    case Deed::kSignal:
      return fmt::format("signal {} ({}) to {}{}", blow.number, ::strsignal(blow.number), whom,
                         stops_a_process(blow.number) ? ", which stops it " + how_long : "");
    case Deed::kDescriptors:
      return fmt::format("{} may have {} file descriptors more", whom, blow.number);
    case Deed::kFileSize:
      return fmt::format("{} may write files of {} KiB", whom, blow.number);
    case Deed::kFillDisk:
      return "the disk is full " + how_long;
    case Deed::kRemove:
      return fmt::format("{} is removed", blow.name.empty() ? "the run directory" : blow.name);
    case Deed::kCutLink:
      return "the link is down " + how_long;
  }
  return "";
}

}  // namespace pliant::test
