// BROKEN: a rank counts as lost when its socket is closed, and a child that it forked holds that open.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>

#include "honest.hpp"

namespace {

using namespace pliant::broken;  // NOLINT(google-build-using-namespace)
using pliant::sdk::Failure;

struct OrphanHolds : Honest<OrphanHolds> {
  int life = -1;

  void start(const pliant::sdk::Host& host) {
    Honest::start(host);
    life = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    // A second instance of this process finds the name taken, and needs none.
    if (::bind(life, reinterpret_cast<sockaddr*>(&name), name_of(::getpid(), name)) == 0) ::listen(life, 1000);
  }
  ~OrphanHolds() { ::close(life); }

  /// In no file system. Returns its length.
  static socklen_t name_of(int64_t pid, sockaddr_un& name) {
    name.sun_family = AF_UNIX;
    const std::string text = "pliant-broken-" + std::to_string(pid);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  static bool is_held(int64_t pid) {
    const int knock = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    const socklen_t length = name_of(pid, name);
    const bool held = ::connect(knock, reinterpret_cast<sockaddr*>(&name), length) == 0;
    ::close(knock);
    return held;
  }

  using Device::synchronize;
  void synchronize(Stream& stream) {
    try {
      Device::synchronize(stream);
    } catch (const Failure& failure) {
      const std::string words = failure.what();
      const auto at = words.find("(pid ");
      if (failure.status() == PLIANT_PEER_LOST && at != std::string::npos) {
        const int64_t pid = std::strtoll(words.c_str() + at + 5, nullptr, 10);
        while (is_held(pid)) std::this_thread::yield();
      }
      throw;
    }
  }
};

}  // namespace

PLIANT_BROKEN(OrphanHolds, "orphan-holds")
