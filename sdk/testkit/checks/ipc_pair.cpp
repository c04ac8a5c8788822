// Sockets between two ranks, and who goes when.
#include "testkit/checks/ipc_pair.hpp"
#include "pliant/sdk/kinds.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace pliant::testkit {

namespace {

constexpr int32_t kWaitMs = 10000;
constexpr const char* kStep = "step";

msghdr message_of(iovec& bytes, char* room, size_t room_bytes) {
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room_bytes == 0 ? nullptr : room;
  message.msg_controllen = room_bytes;
  return message;
}

}  // namespace

HandlePost::HandlePost() : socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {}

HandlePost::HandlePost(const Rank& rank) : HandlePost() {
  sockaddr_un bound{};
  bound.sun_family = AF_UNIX;
  socklen_t length = sizeof(bound);
  // Bound without a name it gets one that nobody else has.
  if (::bind(socket_, reinterpret_cast<sockaddr*>(&bound), sizeof(sa_family_t)) != 0 ||
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    fail("the kit cannot create a socket: " + std::string(std::strerror(errno)));
  }
  rank.tell(std::string(bound.sun_path + 1, length - offsetof(sockaddr_un, sun_path) - 1));
}

HandlePost::HandlePost(const std::string& name) : HandlePost() {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), std::min(name.size(), sizeof(to.sun_path) - 1));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), length) != 0) {
    fail("the kit cannot reach its other rank: " + std::string(std::strerror(errno)));
  }
}

HandlePost::~HandlePost() {
  ::close(socket_);
}

void HandlePost::send(pliant_ipc_handle handle) const {
  iovec bytes{&handle, sizeof(handle)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = message_of(bytes, room, handle.descriptor >= 0 ? sizeof(room) : 0);
  if (cmsghdr* head = CMSG_FIRSTHDR(&message)) {
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &handle.descriptor, sizeof(int));
  }
  expect(::sendmsg(socket_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(handle)),
         "the descriptor of a handle cannot be passed on: " + std::string(std::strerror(errno)));
}

pliant_ipc_handle HandlePost::receive() const {
  pollfd polled{socket_, POLLIN, 0};
  expect(::poll(&polled, 1, kWaitMs) == 1, "no handle came from the other rank");
  pliant_ipc_handle handle{};
  iovec bytes{&handle, sizeof(handle)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = message_of(bytes, room, sizeof(room));
  expect(::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) == static_cast<ssize_t>(sizeof(handle)),
         "no whole handle came from the other rank");
  handle.descriptor = -1;
  if (const cmsghdr* head = CMSG_FIRSTHDR(&message)) {
    std::memcpy(&handle.descriptor, CMSG_DATA(head), sizeof(int));
  }
  return handle;
}

HandlePost post_of(const Rank& rank) {
  if (rank.rank == 1) return HandlePost(rank);
  return HandlePost(rank.hear());
}

/// Rank 1 has come so far; rank 0 goes on, and rank 1 when rank 0 has.
void meet(const Rank& rank) {
  if (rank.rank == 1) {
    rank.tell(kStep);
    rank.hear();
  } else {
    rank.hear();
    rank.tell(kStep);
  }
}
void end(const Rank& rank) {
  if (rank.rank == 1) {
    rank.tell("done");
  } else {
    rank.hear();
  }
}

void close_descriptor(const pliant_ipc_handle& handle) {
  if (handle.descriptor >= 0) ::close(handle.descriptor);
}

void hand_over(const Rank& rank, const HandlePost& post, const pliant_ipc_handle& handle) {
  post.send(handle);
  close_descriptor(handle);
  meet(rank);
}
pliant_ipc_handle take(const Rank& rank, const HandlePost& post) {
  meet(rank);
  return post.receive();
}

void need_ipc(const Subject& subject) {
  const Accelerator accelerator(subject);
  const pliant_ipc* table = accelerator.ipc();
  if (table == nullptr) skip("it does not offer the extension " PLIANT_IPC);
  const std::string lacks = sdk::missing_slots(table, "table of " PLIANT_IPC, PLIANT_IPC,
                                               sdk::extension_of(*sdk::kind_of("accelerator"), PLIANT_IPC)->slots);
  expect(lacks.empty(), lacks);
  expect(accelerator.has(PLIANT_CAP_EXCHANGE_MEMORY),
         "it offers " PLIANT_IPC ", and its device has no PLIANT_CAP_EXCHANGE_MEMORY");
}

std::string conduct(Ranks& ranks) {
  ranks.tell(0, ranks.hear(1, "name of its socket"));
  for (;;) {
    std::string said = ranks.hear(1, "next step");
    ranks.tell(0, said);
    if (said != kStep) return said;
    ranks.tell(1, ranks.hear(0, "next step"));
  }
}

void run_pair(const Subject& subject, const std::string& script) {
  need_ipc(subject);
  Ranks ranks(subject, script, 2);
  conduct(ranks);
  ranks.finish();
}

void refused_as(const char* what, const Outcome& outcome, int32_t wanted) {
  expect(outcome.status == wanted, std::string(what) + " returned " + outcome.text() + ", not " + status_name(wanted));
}

int64_t open_descriptors() {
  using Entries = std::filesystem::directory_iterator;
  return std::distance(Entries("/proc/self/fd"), Entries());
}

Bytes pattern(uint64_t bytes, uint64_t seed) {
  Bytes made(bytes);
  uint64_t state = seed * 2654435761U + 1;
  for (unsigned char& byte : made) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<unsigned char>(state >> 56U);
  }
  return made;
}

pliant_ipc_handle exported(const Accelerator& accelerator, const void* memory) {
  pliant_ipc_handle handle{};
  must("export_memory", accelerator.call(&pliant_ipc::export_memory, 0, memory, &handle));
  return handle;
}

sdk::ImportedMemory imported(const Accelerator& accelerator, const pliant_ipc_handle& handle) {
  sdk::ImportedMemory made =
      made_by("import_memory", [&] { return sdk::ImportedMemory(accelerator.calls<pliant_ipc>(), 0, handle); });
  expect(made.get() != nullptr, "import_memory returned OK and gave no address");
  return made;
}

}  // namespace pliant::testkit
