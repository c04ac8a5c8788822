// Watcher: two threads of a communicator that notice, without polling, who joins and whose process ends.
#pragma once

#include <atomic>
#include <map>
#include <thread>

#include "common/processes/process.hpp"

namespace pliant::accelerator {

class Group;

class Watcher {
 public:
  /// Starts watching the id's maker and every rank that joins. Throws PLIANT_RESOURCE_EXHAUSTED.
  explicit Watcher(Group& group);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  void announce_joins();
  void watch();
  void adopt_joined();
  void adopt(const ProcessId& process);
  void ended(const ProcessId& process);
  void knock();

  Group& group_;
  std::atomic<bool> stop_{false};
  UniqueFd knocks_;                       ///< eventfd: look for new ranks, or stop
  std::map<uint64_t, UniqueFd> watched_;  ///< by ProcessId::packed; an empty descriptor = not to be watched (any more)
  std::thread watching_;
  std::thread joining_;
};

}  // namespace pliant::accelerator
