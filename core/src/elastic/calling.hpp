// Calling: how workers that an agent did not start find it. Each calls at an address and says which rank it is; once
// all are there they are welcomed, and their connections are control sockets from then on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/durable_file.hpp"
#include "base/result.hpp"

namespace pliant::elastic {

/// What a worker says first: one line.
struct Call {
  int64_t rank = 0;
  int64_t world_size = 0;
  int64_t protocol = 0;
};
/// What it is answered, one line, once all ranks have called: what workers that an agent starts find in their
/// environment.
struct Welcome {
  std::string directory;          ///< of the run
  std::string program;            ///< kProgramVariable
  std::string incarnation;        ///< Warden::kVariable
  std::string elasticity_digest;  ///< empty: the job has no [elasticity]
  int64_t agent = 0;              ///< its process
};

/// Bytes of such a line, at most.
inline constexpr size_t kLongestCall = size_t{64} << 10;

/// One line without the newline.
std::string to_line(const Call& call);
std::string to_line(const Welcome& welcome);
/// A refusal, which comes in the place of a Welcome.
std::string to_line(const Error& refusal);
/// kDataLoss for what is no call, and no answer.
Result<Call> parse_call(std::string_view line);
/// Of a refusal: the error that it says.
Result<Welcome> parse_welcome(std::string_view line);

/// Process and user at the other end of a connected Unix socket; of one that was made by connect(), those that listen.
struct Peer {
  pid_t process = -1;
  uid_t user = 0;
};
Result<Peer> peer_of(int socket);

struct Answered {
  FileDescriptor socket;
  Welcome welcome;
};

/// Calls at `address`, a name of an abstract Unix socket, and waits until it is welcomed; that may take as long as the
/// last rank takes. kFailedPrecondition (kInput) where nobody listens there, or another user does; kPeerLost where
/// the agent ends before it has answered; what a refusal says.
Result<Answered> call_agent(const std::string& address, const Call& call);

}  // namespace pliant::elastic
