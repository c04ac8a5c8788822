// Faults of processes that fork.
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "faults.hpp"

namespace pliant::broken {
namespace {

/// A process that has forked is refused.
struct ForkDisturbs : Honest {
  static inline std::atomic<int> forks{0};
  ForkDisturbs() {
    ::pthread_atfork(
        nullptr, [] { ++forks; }, nullptr);
  }
  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    if (forks != 0) throw Failure(PLIANT_INTERNAL, "this process has forked");
    Device::synchronize(stream);
  }
};

/// A rank counts as lost when its socket is closed, and a child that it forked holds that open.
class OrphanHolds : public Honest {
 public:
  OrphanHolds() : life_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    // A second instance of this process finds the name taken, and needs none.
    if (::bind(life_, reinterpret_cast<sockaddr*>(&name), name_of(::getpid(), name)) == 0) ::listen(life_, 1000);
  }
  ~OrphanHolds() override { ::close(life_); }

  using Honest::synchronize;
  void synchronize(Stream& stream) override {
    try {
      Device::synchronize(stream);
    } catch (const Failure& failure) {
      const std::string words = failure.what();
      const auto at = words.find("(pid ");
      if (failure.status() == PLIANT_PEER_LOST && at != std::string::npos) {
        const int64_t pid = std::strtoll(words.c_str() + at + 5, nullptr, 10);
        wait_while_held(pid);
      }
      throw;
    }
  }

 private:
  /// In no file system. Returns its length.
  static socklen_t name_of(int64_t pid, sockaddr_un& name) {
    name.sun_family = AF_UNIX;
    const std::string text = "pliant-broken-" + std::to_string(pid);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  /// A connection that nobody accepts ends with the last holder of the socket.
  static void wait_while_held(int64_t pid) {
    const int knock = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    const socklen_t length = name_of(pid, name);
    char nothing = 0;
    if (::connect(knock, reinterpret_cast<sockaddr*>(&name), length) == 0) ::recv(knock, &nothing, 1, 0);
    ::close(knock);
  }
  const int life_;
};

}  // namespace

std::vector<Fault> fork_faults() {
  return {{"fork-disturbs", {}, make<ForkDisturbs>}, {"orphan-holds", {}, make<OrphanHolds>}};
}

}  // namespace pliant::broken
