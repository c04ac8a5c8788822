// Workers that an agent did not start call it: who is heard, who is refused, and what both sides make of nonsense.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "elastic/agent/callers.hpp"
#include "elastic/calling.hpp"
#include "elastic/message.hpp"

using namespace pliant;
using namespace pliant::elastic;

namespace {

constexpr std::chrono::seconds kLong{20};

struct Listening {
  std::string address = "pliant-test-" + random_hex();
  FileDescriptor socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Listening() {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, address.data(), address.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
    REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at), length) == 0);
    REQUIRE(::listen(socket.get(), 16) == 0);
  }
};

/// A connection that has said `text`.
FileDescriptor says(const std::string& address, const std::string& text) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::memcpy(at.sun_path + 1, address.data(), address.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), length) == 0);
  REQUIRE(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  return socket;
}

std::string call_of(int64_t rank, int64_t world_size, int64_t protocol = kProtocol) {
  return to_line(Call{rank, world_size, protocol}) + "\n";
}

std::string refusal_of(const std::vector<std::string>& calls, int64_t world_size) {
  Listening listening;
  std::vector<FileDescriptor> workers;
  for (const std::string& call : calls) workers.push_back(says(listening.address, call));
  Callers callers(std::move(listening.socket));
  const auto gathered = callers.gather(world_size, kLong);
  REQUIRE_FALSE(gathered);
  CHECK(gathered.error().status() == Status::kInvalidArgument);
  CHECK(gathered.error().origin() == Origin::kInput);
  return gathered.error().message();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("workers that call are there rank by rank, and are welcomed with what a worker needs") {
  Listening listening;
  const Welcome welcome{"/runs/1", "python3 'my train.py'", "word", "0123", 7};
  std::vector<std::future<Result<Answered>>> workers;
  for (const int64_t rank : {2, 0, 1}) {
    workers.push_back(std::async(std::launch::async, [&, rank] {
      return call_agent(listening.address, {rank, 3, kProtocol});
    }));
  }
  Callers callers(std::move(listening.socket));
  const auto gathered = callers.gather(3, kLong);
  REQUIRE(gathered);
  REQUIRE(gathered->size() == 3);
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK((*gathered)[rank].process == ::getpid());
    Welcome own = welcome;
    own.directory += std::to_string(rank);
    const std::string line = to_line(own) + "\nmore";
    REQUIRE(::send((*gathered)[rank].socket.get(), line.data(), line.size(), 0) == static_cast<ssize_t>(line.size()));
  }
  for (size_t i = 0; i < 3; ++i) {
    const Result<Answered> answered = workers[i].get();
    REQUIRE(answered);
    CHECK(answered->welcome.directory == "/runs/1" + std::to_string(i == 0 ? 2 : i - 1));
    CHECK(answered->welcome.program == welcome.program);
    CHECK(answered->welcome.elasticity_digest == "0123");
    char rest[8];  // what comes behind the answer is left for the session
    CHECK(::recv(answered->socket.get(), rest, sizeof(rest), 0) == 4);
  }
}

TEST_CASE("an agent whose starter ends waits for nobody") {
  Listening listening;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const FileDescriptor starter(ends[0]);
  Callers callers(std::move(listening.socket), starter.get());
  ::close(ends[1]);
  const FileDescriptor worker = says(listening.address, call_of(1, 2));
  const auto gathered = callers.gather(2, kLong);
  REQUIRE_FALSE(gathered);
  CHECK(gathered.error().status() == Status::kPeerLost);
  CHECK(has(gathered.error().message(), "the process that started this agent ended before rank"));
}

TEST_CASE("a call that does not fit is refused with what is wrong") {
  CHECK(has(refusal_of({call_of(0, 3)}, 2), "calls itself rank 0 of 3, and this job has 2 workers"));
  CHECK(has(refusal_of({call_of(2, 2)}, 2), "calls itself rank 2 of 2"));
  CHECK(has(refusal_of({call_of(-1, 2)}, 2), "calls itself rank -1 of 2"));
  CHECK(has(refusal_of({call_of(1, 2), call_of(1, 2)}, 2), "both call themselves rank 1"));
  CHECK(has(refusal_of({call_of(0, 2, kProtocol + 1)}, 2), "another version of Pliant"));
}

TEST_CASE("what calls in another way is no worker, and nobody waits for it") {
  Listening listening;
  std::vector<FileDescriptor> others;
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\n"), std::string("{\"call\":\"worker\"}\n"), std::string("[[[[\n"),
        std::string(size_t{80} << 10, 'x'), call_of(0, 1) + "more", std::string()}) {
    others.push_back(says(listening.address, text));
  }
  others.pop_back();  // has hung up
  const FileDescriptor worker = says(listening.address, call_of(0, 1));
  Callers callers(std::move(listening.socket));
  const auto gathered = callers.gather(1, kLong);
  REQUIRE(gathered);
  CHECK(gathered->size() == 1);
  char byte = 0;
  for (size_t i = 0; i < 3; ++i) CHECK(::recv(others[i].get(), &byte, 1, MSG_DONTWAIT) == 0);
}

TEST_CASE("ranks that do not come within the time are named") {
  Listening listening;
  const FileDescriptor worker = says(listening.address, call_of(1, 4));
  Callers callers(std::move(listening.socket));
  const auto gathered = callers.gather(4, std::chrono::milliseconds(50));
  REQUIRE_FALSE(gathered);
  CHECK(gathered.error().status() == Status::kDeadlineExceeded);
  CHECK(has(gathered.error().message(), "ranks 0, 2, 3 of 4 did not attach"));
}

TEST_CASE("a worker that ends before the others have called ends the wait for them") {
  Listening listening;
  const pid_t child = ::fork();
  if (child == 0) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, listening.address.data(), listening.address.size());
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + listening.address.size());
    const std::string call = call_of(1, 2);
    const bool said = ::connect(socket, reinterpret_cast<const sockaddr*>(&at), length) == 0 &&
                      ::send(socket, call.data(), call.size(), 0) > 0;
    ::raise(said ? SIGKILL : SIGABRT);
  }
  Callers callers(std::move(listening.socket));
  const auto gathered = callers.gather(2, kLong);
  REQUIRE_FALSE(gathered);
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(gathered.error().status() != Status::kDeadlineExceeded);
}

TEST_CASE("all that have called hear why there is no job, and those that call later that nobody is there") {
  Listening listening;
  auto worker = std::async(std::launch::async, [&] { return call_agent(listening.address, {0, 2, kProtocol}); });
  Callers callers(std::move(listening.socket));
  REQUIRE_FALSE(callers.gather(2, std::chrono::milliseconds(100)));
  callers.refuse(Error(Status::kNotFound, "job.toml:3:1: no \"such\"\nthing", Origin::kPlugin));
  const Result<Answered> refused = worker.get();
  REQUIRE_FALSE(refused);
  // It may have called after the time was over.
  if (refused.error().status() == Status::kNotFound) {
    CHECK(refused.error().message() == "job.toml:3:1: no \"such\"\nthing");
    CHECK(refused.error().origin() == Origin::kPlugin);
  }
  const Result<Answered> late = call_agent(listening.address, {1, 2, kProtocol});
  REQUIRE_FALSE(late);
  CHECK(late.error().status() == Status::kFailedPrecondition);
  CHECK(late.error().origin() == Origin::kInput);
}

TEST_CASE("an agent that ends, or answers nonsense, leaves no worker waiting") {
  for (const std::string& answer :
       {std::string(), std::string("hello\n"),
        std::string("{\"answer\":\"refusal\",\"status\":99,\"origin\":0,\"message\":\"\"}\n"),
        std::string("{\"answer\":\"welcome\"}\n"), std::string("{\"answer\":[[]]}\n")}) {
    CAPTURE(answer);
    Listening listening;
    auto worker = std::async(std::launch::async, [&] { return call_agent(listening.address, {0, 1, kProtocol}); });
    FileDescriptor taken(::accept(listening.socket.get(), nullptr, nullptr));
    REQUIRE(::send(taken.get(), answer.data(), answer.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(answer.size()));
    taken = FileDescriptor();
    const Result<Answered> answered = worker.get();
    REQUIRE_FALSE(answered);
    CHECK(answered.error().status() == (answer.empty() ? Status::kPeerLost : Status::kDataLoss));
  }
}

TEST_CASE("an address that nobody listens at, or that is none, is refused") {
  CHECK(call_agent("pliant-test-" + random_hex(), {0, 1, kProtocol}).error().status() == Status::kFailedPrecondition);
  CHECK(call_agent("", {0, 1, kProtocol}).error().status() == Status::kInvalidArgument);
  CHECK(call_agent(std::string(200, 'x'), {0, 1, kProtocol}).error().status() == Status::kInvalidArgument);
}
