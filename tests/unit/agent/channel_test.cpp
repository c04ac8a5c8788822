// A worker's end of the socket: what the agent said is heard, and its end is a status and not the program's.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>

#include "elastic/channel.hpp"

using namespace pliant::elastic;
using pliant::FileDescriptor;
using pliant::Status;

namespace {

struct Pair {
  FileDescriptor agent;
  FileDescriptor worker;
};

Pair make_pair() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void say(const FileDescriptor& agent, const std::string& text) {
  REQUIRE(::write(agent.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

template <class Call>
Status status_of(Call&& call) {
  try {
    call();
  } catch (const pliant::Error& error) {
    return error.status();
  }
  return Status::kOk;
}

}  // namespace

TEST_CASE("what an agent said before it was gone is heard, and then its end") {
  Pair ends = make_pair();
  std::atomic<int64_t> aborted{0};
  Channel channel(
      std::move(ends.worker), [&](int64_t generation) { aborted = generation; }, "pliant run x");
  CHECK(status_of([&] { channel.require_agent(); }) == Status::kOk);
  say(ends.agent, to_line(ToWorker(Abort{7})) + "\n");
  ends.agent = FileDescriptor();
  CHECK(std::get<Abort>(channel.receive()).generation == 7);
  CHECK(status_of([&] { channel.receive(); }) == Status::kPeerLost);
  CHECK(status_of([&] { channel.require_agent(); }) == Status::kPeerLost);
  channel.send(Finished{});  // is lost, and harms nobody
  for (int again = 0; again < 2; ++again) CHECK(status_of([&] { channel.receive(); }) == Status::kPeerLost);
}

TEST_CASE("the end of the agent ends every generation") {
  Pair ends = make_pair();
  std::atomic<int64_t> aborted{0};
  {
    Channel channel(
        std::move(ends.worker), [&](int64_t generation) { aborted = generation; }, "pliant run x");
    ends.agent = FileDescriptor();
    CHECK(status_of([&] { channel.receive(); }) == Status::kPeerLost);
  }  // the reading thread has ended
  CHECK(aborted == Channel::kEveryGeneration);
}

TEST_CASE("an agent that says what is no message, or never ends one, is left, and sees that") {
  for (const std::string& nonsense : {std::string("{\"neither\"\n"), std::string(2 * kLongestMessage, 'x')}) {
    Pair ends = make_pair();
    Channel channel(
        std::move(ends.worker), [](int64_t) {}, "pliant run x");
    for (size_t at = 0; at < nonsense.size();) {
      const ssize_t n = ::send(ends.agent.get(), nonsense.data() + at, nonsense.size() - at, MSG_NOSIGNAL);
      if (n <= 0) break;
      at += static_cast<size_t>(n);
    }
    CHECK(status_of([&] { channel.receive(); }) == Status::kPeerLost);
    char byte = 0;
    CHECK(::recv(ends.agent.get(), &byte, 1, 0) <= 0);
  }
}

TEST_CASE("a channel that ends in order aborts nothing") {
  Pair ends = make_pair();
  std::atomic<int64_t> aborted{0};
  {
    const Channel channel(
        std::move(ends.worker), [&](int64_t generation) { aborted = generation; }, "pliant run x");
  }
  CHECK(aborted == 0);
}

TEST_CASE("a socket is taken once, by its own number, and never passed on") {
  const Pair ends = make_pair();
  const int inherited = ::fcntl(ends.worker.get(), F_DUPFD, 0);
  const std::string number = std::to_string(inherited);
  const std::string text = text_of_socket(inherited);
  const std::string of_agent = text_of_socket(ends.agent.get());
  const std::string another = number + of_agent.substr(of_agent.find(':'));
  for (const std::string& wrong : {std::string(), number, number + ":", std::string("x:1"), number + ":0", text + "x",
                                   another, std::string("-1:5"), std::string("987654:5")}) {
    CAPTURE(wrong);
    CHECK(status_of([&] { take_socket(wrong); }) == Status::kFailedPrecondition);
  }
  { const FileDescriptor of_older = take_socket(std::to_string(::fcntl(inherited, F_DUPFD, 0)), false); }
  const FileDescriptor taken = take_socket(text);
  CHECK((::fcntl(taken.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(status_of([&] { take_socket(text); }) == Status::kFailedPrecondition);
}
