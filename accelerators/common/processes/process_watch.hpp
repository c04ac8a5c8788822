// ProcessWatch: a thread that notices, without polling, when other processes end.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "common/processes/process.hpp"

namespace pliant::accelerator {

/// All calls may come from any thread. The thread starts with the first process.
class ProcessWatch {
 public:
  class Concerned {
   public:
    virtual ~Concerned() = default;
    /// On the watch's thread, or in the call of watch(). Must not block.
    virtual void ended(const ProcessId& process) = 0;
  };

  ProcessWatch() = default;
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  /// Tells `concerned`, while there is somebody, when the process has ended; at once when it has. Throws
  /// PLIANT_RESOURCE_EXHAUSTED when it cannot be watched.
  void watch(const ProcessId& process, const std::weak_ptr<Concerned>& concerned);

 private:
  struct Watched {
    UniqueFd process;
    std::vector<std::weak_ptr<Concerned>> concerned;
    size_t sweep_at = 8;  ///< so many are concerned before those that are gone are looked for
  };
  void start();
  void loop();
  void knock() const;

  const pid_t owner_ = ::getpid();
  std::mutex mutex_;                     ///< of all but the thread
  std::map<uint64_t, Watched> watched_;  ///< by ProcessId::packed
  bool closing_ = false;
  UniqueFd knocks_;  ///< eventfd: there is another process, or the end
  std::thread thread_;
};

}  // namespace pliant::accelerator
