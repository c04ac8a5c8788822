// Sends verdicts to the process that waits for them.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "testkit/check.hpp"
#include "testkit/process.hpp"

namespace pliant::testkit {

namespace {

constexpr size_t kLongestReason = 1500;
std::atomic<int> outlet{-1};  // of the process, as its exit status is

void say(char what, const std::string& reason) {
  std::string text = what + reason.substr(0, kLongestReason);
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  static_cast<void>(send_message(outlet.load(), text));
}

}  // namespace

void report_to(int descriptor) {
  outlet.store(descriptor);
}

void fail(const std::string& reason) {
  say(kFailed, reason);
  ::_exit(0);
}

void skip(const std::string& reason) {
  say(kSkipped, reason);
  ::_exit(0);
}

void warn(const std::string& reason) {
  say(kWarned, reason);
}

void pass() {
  say(kPassed, "");
}

}  // namespace pliant::testkit
