// Handles of pliant.ipc/0 between the ranks of a test, their descriptors with them; and tests of two such ranks.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pliant/abi/ipc.h"
#include "ranks.hpp"

namespace pliant_test {

/// Two ends of a socket, made before ranks are forked: rank 0 uses the first, rank 1 the second.
class Wire {
 public:
  Wire() {
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_) != 0) throw std::runtime_error("socketpair");
  }
  ~Wire() {
    for (const int end : ends_) ::close(end);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  void pass(int32_t rank, const pliant_ipc_handle& handle) const {
    pliant_ipc_handle copy = handle;
    iovec bytes{&copy, sizeof(copy)};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (handle.descriptor >= 0) {
      message.msg_control = room;
      message.msg_controllen = sizeof(room);
      cmsghdr* head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(head), &handle.descriptor, sizeof(int));
    }
    if (::sendmsg(ends_[rank], &message, 0) != static_cast<ssize_t>(sizeof(copy))) throw std::runtime_error("sendmsg");
  }
  [[nodiscard]] pliant_ipc_handle take(int32_t rank) const {
    pliant_ipc_handle handle{};
    iovec bytes{&handle, sizeof(handle)};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    if (::recvmsg(ends_[rank], &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(handle))) {
      throw std::runtime_error("recvmsg");
    }
    handle.descriptor = -1;
    if (cmsghdr* head = CMSG_FIRSTHDR(&message)) std::memcpy(&handle.descriptor, CMSG_DATA(head), sizeof(int));
    return handle;
  }

 private:
  int ends_[2] = {-1, -1};
};

/// The extension of a device, called so that a failure is an Outcome.
class Ipc {
 public:
  explicit Ipc(const Device& device) : calls_(device.extension_calls<pliant_ipc>(PLIANT_IPC)) {}
  [[nodiscard]] const pliant_ipc& table() const { return calls_.table(); }
  /// `ipc.call(&pliant_ipc::export_memory, 0, memory, &handle)`
  template <class... Parameters, class... Arguments>
  Outcome call(int32_t (*pliant_ipc::*slot)(void*, Parameters...), const Arguments&... arguments) const {
    return calls_.ask(slot, arguments...);
  }
  [[nodiscard]] pliant_ipc_handle handle_to(const void* memory) const {
    pliant_ipc_handle handle{};
    calls_.must(&pliant_ipc::export_memory, 0, memory, &handle);
    return handle;
  }
  Outcome import(const pliant_ipc_handle& handle, void*& out) const {
    return call(&pliant_ipc::import_memory, 0, &handle, &out);
  }
  void release(void* memory) const { calls_->release_memory(calls_.self(), 0, memory); }

 private:
  const pliant::sdk::Calls<pliant_ipc> calls_;
};

inline void close_descriptor(const pliant_ipc_handle& handle) {
  if (handle.descriptor >= 0) ::close(handle.descriptor);
}

inline std::unique_ptr<Device> tested_device(int32_t) {
  return std::make_unique<Device>(OptionSettings{}, tested_file());
}

/// Of a rank that has its end of a wire.
using PairBody = std::function<std::string(const Rank&, const Wire&)>;

/// Two processes, with a wire between them; what each returns must be "".
inline void run_pair(const PairBody& body,
                     const std::function<std::unique_ptr<Device>(int32_t rank)>& make = tested_device) {
  static_cast<void>(tested_file());  // sets the environment of the ranks
  const Wire wire;
  Processes processes(
      2, [&](const Rank& self) { return body(self, wire); }, make);
  const std::vector<RankEnd> ends = processes.ends();
  for (size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r);
    CHECK(ends[r].text == "");
  }
}

inline int64_t open_descriptors() {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries("/proc/self/fd"), Entries());
}

/// Files without a name that this process has mapped.
inline int64_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:") != std::string::npos ? 1 : 0;
  return count;
}

}  // namespace pliant_test
