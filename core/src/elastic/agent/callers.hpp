// Callers: an agent's side of calling. It waits for the workers that another launcher has started.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/durable_file.hpp"
#include "base/result.hpp"

namespace pliant::elastic {

/// A worker that has called.
struct Caller {
  FileDescriptor socket;
  FileDescriptor pidfd;
  pid_t process = -1;
};

class Callers {
 public:
  /// `listener`: a listening Unix socket, which is closed when all have called. `starter`: as CallingWorkers has it.
  explicit Callers(FileDescriptor listener, int starter = -1) : listener_(std::move(listener)), starter_(starter) {}

  /// Waits until each of the ranks 0 .. world_size - 1 has called; the answer has them in this order. Processes of
  /// other users are not heard. kDeadlineExceeded with the ranks that are missing, kPeerLost when one, or the starter,
  /// ends or hangs up, kInvalidArgument (kInput) for a call that does not fit: another world size or protocol, a rank
  /// that is there.
  Result<std::vector<Caller>> gather(int64_t world_size, std::chrono::duration<double> at_most);
  /// Tells all that have called, and all that call no later than now, why there is no job for them.
  void refuse(const Error& why);

 private:
  struct Pending {
    Caller worker;
    std::string said{};
    int64_t rank = -1;  ///< once it has said so
  };

  /// Takes those that have connected since.
  Result<> accept_all();
  /// Reads what `one` has said by now. False where it has hung up.
  Result<bool> hear(Pending& one, int64_t world_size);
  [[nodiscard]] std::string missing(int64_t world_size) const;

  FileDescriptor listener_;
  int starter_;
  std::vector<Pending> pending_;
};

}  // namespace pliant::elastic
