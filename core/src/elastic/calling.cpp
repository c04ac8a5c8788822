#include "elastic/calling.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_depth.hpp"

namespace pliant::elastic {
namespace {

using nlohmann::json;

constexpr int kDeepestLine = 1;

/// An object; nullopt: it is none, or nests.
json object_of(std::string_view line) {
  if (nests_deeper(line, kDeepestLine)) return {};
  json parsed = json::parse(line, nullptr, false);
  return parsed.is_object() ? parsed : json();
}

tl::unexpected<Error> no_such_line(const char* what) {
  return failed(Status::kDataLoss, fmt::format("what came is no {}", what));
}

tl::unexpected<Error> agent_is_gone() {
  return failed(Status::kPeerLost,
                "the agent of this job ended before all ranks had called; it says why on the stderr of rank 0");
}

/// What an agent that is gone does not take is lost; what it has said before is there to be read.
void send_line(int socket, const std::string& line) {
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(socket, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
}

/// Byte by byte: what follows the line is for whoever reads next.
Result<std::string> receive_line(int socket) {
  std::string line;
  for (char byte = 0; line.size() < kLongestCall;) {
    const ssize_t n = ::recv(socket, &byte, 1, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return agent_is_gone();
    if (byte == '\n') return line;
    line += byte;
  }
  return no_such_line("answer of an agent: it has no end");
}

}  // namespace

std::string to_line(const Call& call) {
  return json{{"call", "worker"}, {"rank", call.rank}, {"world_size", call.world_size}, {"protocol", call.protocol}}
      .dump();
}

std::string to_line(const Welcome& welcome) {
  return json{{"answer", "welcome"},
              {"directory", welcome.directory},
              {"program", welcome.program},
              {"incarnation", welcome.incarnation},
              {"elasticity_digest", welcome.elasticity_digest},
              {"agent", welcome.agent}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string to_line(const Error& refusal) {
  return json{{"answer", "refusal"},
              {"status", static_cast<int>(refusal.status())},
              {"origin", static_cast<int>(refusal.origin())},
              {"message", refusal.message().substr(0, kLongestCall / 8)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Call> parse_call(std::string_view line) {
  const json read = object_of(line);
  try {
    if (read.at("call") != "worker") return no_such_line("call of a worker");
    return Call{read.at("rank").get<int64_t>(), read.at("world_size").get<int64_t>(),
                read.at("protocol").get<int64_t>()};
  } catch (const json::exception&) {
    return no_such_line("call of a worker");
  }
}

Result<Welcome> parse_welcome(std::string_view line) {
  const json read = object_of(line);
  try {
    if (read.at("answer") == "refusal") {
      const auto status = read.at("status").get<int>();
      const auto origin = read.at("origin").get<int>();
      const bool known = status > static_cast<int>(Status::kOk) &&
                         status <= static_cast<int>(Status::kDeadlineExceeded) && origin >= 0 &&
                         origin <= static_cast<int>(Origin::kWorldSize);
      if (!known) return no_such_line("answer of an agent");
      return failed(static_cast<Status>(status), read.at("message").get<std::string>(), static_cast<Origin>(origin));
    }
    if (read.at("answer") != "welcome") return no_such_line("answer of an agent");
    return Welcome{read.at("directory").get<std::string>(), read.at("program").get<std::string>(),
                   read.at("incarnation").get<std::string>(), read.at("elasticity_digest").get<std::string>(),
                   read.at("agent").get<int64_t>()};
  } catch (const json::exception&) {
    return no_such_line("answer of an agent");
  }
}

Result<Peer> peer_of(int socket) {
  ucred other{};
  socklen_t size = sizeof(other);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0) return Peer{other.pid, other.uid};
  return failed(Status::kFailedPrecondition,
                fmt::format("cannot learn whose the other end of a socket is: {}", std::strerror(errno)));
}

Result<Answered> call_agent(const std::string& address, const Call& call) {
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  if (address.empty() || address.size() + 1 > sizeof(at.sun_path)) {
    return failed(
        Status::kInvalidArgument,
        fmt::format("the address of an agent has 1 to {} bytes, not {}", sizeof(at.sun_path) - 1, address.size()),
        Origin::kInput);
  }
  std::memcpy(at.sun_path + 1, address.data(), address.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size());
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) {
    return failed(Status::kResourceExhausted,
                  fmt::format("cannot create a socket to call the agent: {}", std::strerror(errno)));
  }
  int done = 0;
  do {
    done = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at), length);
  } while (done != 0 && errno == EINTR);
  if (done != 0) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("no agent is at '{}' ({}): it has refused the job, which the stderr of rank 0 says, or "
                              "has all its workers; ranks of one job are "
                              "processes of one machine, and each attaches once",
                              address, std::strerror(errno)),
                  Origin::kInput);
  }
  const Result<Peer> agent = peer_of(socket.get());
  if (!agent) return failed(Result<Peer>(agent));
  if (agent->user != ::geteuid()) {
    return failed(
        Status::kFailedPrecondition,
        fmt::format("'{}' is of user {}, and not of this process's user {}", address, agent->user, ::geteuid()),
        Origin::kInput);
  }
  send_line(socket.get(), to_line(call) + "\n");
  Result<std::string> line = receive_line(socket.get());
  if (!line) return failed(std::move(line));
  Result<Welcome> welcome = parse_welcome(*line);
  if (!welcome) return failed(std::move(welcome));
  return Answered{std::move(socket), std::move(*welcome)};
}

}  // namespace pliant::elastic
