// stderr of a process that must not wait for whoever reads it.
#pragma once

#include <memory>
#include <string_view>

namespace pliant {

/// Writes `text` to stderr. What cannot be written there is lost. Any thread. Waits for the reader of a full pipe,
/// except while an UnblockedStderr lives.
void write_stderr(std::string_view text) noexcept;

/// Waits, up to two seconds, until what write_stderr has queued is written.
void flush_stderr() noexcept;

/// While one lives, write_stderr queues: a thread writes, and where it does not keep up, because nobody reads, lines
/// are left out and counted. One at a time.
class UnblockedStderr {
 public:
  static constexpr size_t kMostQueued = size_t{256} << 10;  ///< bytes

  UnblockedStderr();
  /// Waits up to two seconds for what is queued.
  ~UnblockedStderr();
  UnblockedStderr(const UnblockedStderr&) = delete;
  UnblockedStderr& operator=(const UnblockedStderr&) = delete;

  struct Queue;

 private:
  std::shared_ptr<Queue> queue_;  // the thread's, too: it may outlive this in a write that does not end
};

}  // namespace pliant
