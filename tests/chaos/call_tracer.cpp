// CallTracer: the order of ptrace's reports is theirs to choose, so a child may be heard of before its parent tells.
#include "chaos/call_tracer.hpp"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "unit/accelerator/own_namespaces.hpp"

namespace pliant::test {
namespace {

constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
constexpr int kSystemCall = SIGTRAP | 0x80;

}  // namespace

CallTracer::CallTracer(pid_t agent, int child, int64_t stop, int signal)
    : agent_(agent), child_(child), stop_(stop), signal_(signal) {
  if (::ptrace(PTRACE_SEIZE, agent, 0, kOptions) != 0 || ::ptrace(PTRACE_INTERRUPT, agent, 0, 0) != 0)
    throw pliant_test::Refused(std::string("ptrace: ") + std::strerror(errno));
  what_[agent] = child == 0 ? What::kTarget : What::kAgent;
  if (child == 0) target_ = agent;
}

// The target stops at each system call; whoever else is followed does so only until the target is known.
void CallTracer::go_on(pid_t pid, int signal) {
  const What what = what_[pid];
  if (what == What::kTarget && struck_ == 0) {
    ::ptrace(PTRACE_SYSCALL, pid, 0, signal);
  } else if (what == What::kAgent && target_ == 0) {
    ::ptrace(PTRACE_CONT, pid, 0, signal);
  } else {
    ::ptrace(PTRACE_DETACH, pid, 0, signal);
  }
}

void CallTracer::began(pid_t pid, What what) {
  what_[pid] = what;
  if (waiting_.erase(pid) > 0) go_on(pid, 0);
}

void CallTracer::count(pid_t pid) {
  if (what_[pid] != What::kTarget || struck_ != 0 || ++seen_ < stop_) return;
  struck_ = target_;
  ::kill(target_, signal_);
}

bool CallTracer::step(pid_t pid, int status) {
  if (!WIFSTOPPED(status)) {
    what_.erase(pid);
    return false;
  }
  const auto event = static_cast<unsigned>(status) >> 16U;
  const int signal = WSTOPSIG(status);
  if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
    unsigned long made = 0;
    ::ptrace(PTRACE_GETEVENTMSG, pid, 0, &made);
    What what = event == PTRACE_EVENT_CLONE ? what_[pid] : What::kOther;
    if (what == What::kOther && what_[pid] == What::kAgent && ++children_ == child_) {
      what = What::kTarget;
      target_ = static_cast<pid_t>(made);
    }
    began(static_cast<pid_t>(made), what);
    go_on(pid, 0);
  } else if (event == PTRACE_EVENT_STOP && what_[pid] == What::kUnknown) {
    waiting_.insert(pid);
  } else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP && what_[pid] == What::kTarget) {
    ::ptrace(PTRACE_LISTEN, pid, 0, 0);  // it was stopped by a signal
  } else if (signal == kSystemCall) {
    count(pid);
    go_on(pid, 0);
  } else {
    go_on(pid, event != 0 ? 0 : signal);
  }
  return true;
}

}  // namespace pliant::test
