// Messages that stay in a socket.
#include "letter.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "pliant/sdk/failure.hpp"

namespace pliant::level_zero {

using accelerator::UniqueFd;
using sdk::Failure;

namespace {
constexpr size_t kMost = 4;
constexpr char kWord = 'L';

[[noreturn]] void refused() {
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot create a socket for an event between processes: ") +
                                               std::strerror(errno) + "; close some or raise ulimit -n");
}
}  // namespace

UniqueFd write_letter(const std::vector<int>& descriptors) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) refused();
  const UniqueFd from(ends[0]);
  UniqueFd letter(ends[1]);
  char word = kWord;
  iovec bytes{&word, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(kMost * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
  std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size() * sizeof(int));
  if (::sendmsg(from.get(), &message, MSG_NOSIGNAL) != 1) refused();
  return letter;
}

std::vector<UniqueFd> read_letter(int letter) {
  char word = 0;
  iovec bytes{&word, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(kMost * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  std::vector<UniqueFd> read;
  if (::recvmsg(letter, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1) return read;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int one = -1;
      std::memcpy(&one, CMSG_DATA(head) + i * sizeof(int), sizeof(one));
      read.emplace_back(one);
    }
  }
  if (word != kWord) read.clear();
  return read;
}

}  // namespace pliant::level_zero
