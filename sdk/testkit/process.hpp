// Processes of the kit: it starts itself again for each check and each rank, and they talk in messages.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pliant::testkit {

/// First letters of messages from a started process.
inline constexpr char kPassed = 'P';
inline constexpr char kFailed = 'F';
inline constexpr char kSkipped = 'S';
inline constexpr char kWarned = 'W';
inline constexpr char kAnswer = 'A';  ///< whatever a check and its ranks have agreed on

/// The descriptor through which a started process talks to who started it.
inline constexpr int kOwnSocket = 3;

/// False when the other side is gone.
bool send_message(int socket, const std::string& text);
/// Waits up to timeout_ms (-1: without limit). Nothing: too late, or the other side is gone (`gone` says which).
std::optional<std::string> receive_message(int socket, int timeout_ms, bool& gone);

/// A started process. Killed when this object or the starting process ends.
class Process {
 public:
  /// This very program with these arguments. Throws std::runtime_error when the system refuses.
  explicit Process(const std::vector<std::string>& arguments);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;

  [[nodiscard]] int socket() const { return socket_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void send_signal(int number) const;
  /// Waits until it has ended. Nothing after timeout_ms.
  std::optional<int> wait_status(int timeout_ms);
  /// Nanoseconds that its threads stood ready and had no CPU, summed over the threads seen at this and earlier calls. 0
  /// where the kernel keeps no schedstat.
  int64_t waited_for_cpu_ns();

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::optional<int> status_;
  std::map<std::string, int64_t> waits_ns_;  ///< by thread
};

/// "ended by signal 11 (Segmentation fault)", "ended with 3".
std::string words_of(int wait_status);

/// Nanoseconds of a clock that all processes of the machine share.
int64_t now_ns();

}  // namespace pliant::testkit
