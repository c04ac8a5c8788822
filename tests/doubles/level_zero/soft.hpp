// The software driver of Level Zero: a TEST DOUBLE. Devices are made of this machine's memory and threads; it is opened
// by the real loader through ZE_ENABLE_ALT_DRIVERS and is neither installed nor beside any plugin.
//
// Environment, read when a context is made (PLIANT_SOFT_ZE_DEVICES and PLIANT_SOFT_ZE_API_VERSION: at each question):
//   PLIANT_SOFT_ZE_DEVICES         GPUs that there are; 1
//   PLIANT_SOFT_ZE_API_VERSION     "1.4"
//   PLIANT_SOFT_ZE_MEMORY_BYTES    of each device; 1 GiB
//   PLIANT_SOFT_ZE_SEED            what delays and overtaking are drawn from; unset: none
//   PLIANT_SOFT_ZE_MAX_DELAY_US    each command starts late by up to that much; 0
//   PLIANT_SOFT_ZE_FAIL_ALLOC_AT   allocation that fails for want of memory, counted from 1 in each context
//   PLIANT_SOFT_ZE_LOSE_DEVICE_AT  command at which the device is lost, counted from 1 in each context
//   PLIANT_SOFT_ZE_BUSY            1: somebody else has the devices
//   PLIANT_SOFT_ZE_FAULTS_OF       these three, and delays, are for the first worker with this LOCAL_RANK alone
//   PLIANT_SOFT_ZE_SHARED_SYSTEM   1: copies take plain memory
//   PLIANT_SOFT_ZE_IPC             0: handles for other processes are refused
//   PLIANT_SOFT_ZE_DOUBLES         0: devices have no 64-bit floats
//   PLIANT_SOFT_ZE_FLUSHES         1: 32-bit floats have no subnormal numbers, or so the device says
//   PLIANT_SOFT_ZE_ROUNDS          0: 32-bit quotients and roots are not rounded once, or so the device says
//   PLIANT_SOFT_ZE_FAIL_MODULE     1: no module can be built
//   PLIANT_SOFT_ZE_FAIL_LAUNCH_AT  launch of a kernel that is refused, counted from 1 in the process
//   PLIANT_SOFT_ZE_EVENT_IPC       0: those of event pools are
//   PLIANT_SOFT_ZE_IMPORT          0: it pins no memory of the program
//   PLIANT_SOFT_ZE_FAIL_IMPORT_AT  pinning that fails for want of memory, counted from 1 in the process
//   PLIANT_SOFT_ZE_REPORT_TO       file to which a process that launched kernels appends when it ends, in a line: its
//                                  LOCAL_RANK, the device of the last one, how many took digests, violations of the
//                                  rules; unset: none
#pragma once

#include <level_zero/ze_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "../twice_mapped.hpp"
#include "report.h"

namespace soft_ze {

/// The value of an environment variable, `otherwise` when it is unset.
int64_t setting(const char* name, int64_t otherwise);
/// Of a fault that PLIANT_SOFT_ZE_FAULTS_OF may keep from this process; 0: none.
int64_t fault(const char* name);

/// Live objects and broken rules of the whole process.
struct Counts {
  std::atomic<int64_t> contexts{0}, allocations{0}, imports{0}, lists{0}, event_pools{0}, events{0};
  std::atomic<int64_t> modules{0}, kernels{0}, build_logs{0}, launched{0}, digests{0}, launched_on{-1};
  std::atomic<int64_t> appended{0}, pools_made{0}, events_made{0}, violations{0};
  std::atomic<int64_t> pinned{0}, pinned_ever{0};  ///< ranges of the program's memory
  std::atomic<int64_t> lost{0};                    ///< contexts whose device is lost
  std::mutex mutex;
  std::string first_violation;
};
Counts& counts();
void violation(const std::string& what);

struct Device {
  uint32_t index = 0;
};

struct Allocation : soft::TwiceMapped {
  Allocation() = default;
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  uint64_t bytes = 0;
  int ipc_fd = -1;    ///< in the handle for other processes, from the first question for one
  uint64_t file = 0;  ///< inode: which memory an import is of
  bool imported = false;
  uint64_t id = 0;
  ze_memory_type_t type = ZE_MEMORY_TYPE_UNKNOWN;
  Device* device = nullptr;
  std::atomic<int64_t> in_use{0};  ///< commands that have not run, of all contexts
};

struct Event;

class Engine;

struct Context {
  std::mutex mutex;  ///< of all below, and of events and lists in it
  std::condition_variable changed;
  std::map<uintptr_t, std::shared_ptr<Allocation>> allocations;
  uint64_t device_bytes_used = 0;
  int64_t allocations_made = 0;
  int64_t appended = 0;
  bool lost = false;

  const int64_t memory_bytes = setting("PLIANT_SOFT_ZE_MEMORY_BYTES", int64_t{1} << 30);
  const int64_t seed = setting("PLIANT_SOFT_ZE_SEED", -1);
  const int64_t max_delay_us = fault("PLIANT_SOFT_ZE_MAX_DELAY_US");
  const int64_t fail_alloc_at = fault("PLIANT_SOFT_ZE_FAIL_ALLOC_AT");
  const int64_t lose_device_at = fault("PLIANT_SOFT_ZE_LOSE_DEVICE_AT");
  const bool busy = fault("PLIANT_SOFT_ZE_BUSY") != 0;
  const bool shared_system = setting("PLIANT_SOFT_ZE_SHARED_SYSTEM", 0) != 0;

  /// By device, queue group and queue. Made when first used; last, so that their threads end before all else goes.
  std::map<std::tuple<const Device*, uint32_t, uint32_t>, std::unique_ptr<Engine>> engines;

  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  /// The allocation that holds all of the range; NULL when there is none. Under the mutex.
  std::shared_ptr<Allocation> find(const void* pointer, uint64_t bytes);
};

/// What processes that have a pool in common see of an event of it.
struct SharedState {
  std::atomic<uint32_t> signalled;
  uint32_t reserved;
};

/// The file of a pool that other processes may have, too, and a thread that tells the threads of this process when
/// another has signalled one of its events.
class SharedPool {
 public:
  /// A new file when `fd` is -1; it stays the caller's otherwise. NULL when it is none of this.
  static std::unique_ptr<SharedPool> make(Context& context, int fd, uint32_t count);
  ~SharedPool();
  SharedPool(const SharedPool&) = delete;
  SharedPool& operator=(const SharedPool&) = delete;

  [[nodiscard]] SharedState& state(uint32_t index) const { return states_[index]; }
  void ring() const;
  /// Of the maker; for the handle.
  [[nodiscard]] int fd() const { return fd_; }

 private:
  SharedPool(Context& context, int fd, void* mapped, uint64_t bytes);
  void listen();
  Context& context_;
  const int fd_;
  void* const mapped_;
  const uint64_t bytes_;
  std::atomic<uint32_t>& bell_;
  SharedState* const states_;
  std::atomic<bool> closing_{false};
  std::thread thread_;
};

struct EventPool {
  Context* context = nullptr;
  ze_event_pool_flags_t flags = 0;
  std::vector<bool> taken;  ///< which indices are events now
  std::unique_ptr<SharedPool> shared;
  bool imported = false;
};

/// All but the pool and the index is under the context's mutex.
struct Event {
  EventPool* pool = nullptr;
  uint32_t index = 0;
  bool signalled_here = false;
  bool by_device = false;  ///< then it has times
  uint64_t start_ticks = 0;
  uint64_t end_ticks = 0;
  int64_t in_use = 0;  ///< commands that wait for it or will signal it

  [[nodiscard]] bool is_signalled() const {
    return pool->shared ? pool->shared->state(index).signalled != 0 : signalled_here;
  }
  void set_signalled(bool signalled);
};

/// Ticks of the devices' clock; it starts near its end, so that it wraps around.
constexpr uint64_t kTicksPerSecond = 19200000;
constexpr uint32_t kTickBits = 36;
uint64_t ticks_now();

class List;

struct Command {
  List* list = nullptr;
  std::function<void()> work;  ///< may be empty
  std::vector<Event*> waits;
  Event* signal = nullptr;
  std::vector<std::shared_ptr<Allocation>> uses;
  bool is_barrier = false;
};

/// One queue of a device: a thread that runs the commands of all lists on it in the order in which they came, so that
/// one that waits holds up all. Where a seed is given, commands of a list overtake each other between its barriers.
class Engine {
 public:
  Engine(Context& context, uint64_t number);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Under the context's mutex.
  void push(Command command);

 private:
  void loop();
  [[nodiscard]] size_t choose();
  void finish(const Command& command);

  Context& context_;
  std::mt19937_64 random_;
  std::deque<Command> queue_;
  bool closing_ = false;
  std::thread thread_;
};

/// An immediate command list.
class List {
 public:
  List(Context& context, Engine& engine, const Device& device, bool computes);
  ~List();
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  /// What zeCommandListAppend... returns.
  ze_result_t append(Command command);
  [[nodiscard]] Context& context() const { return context_; }
  [[nodiscard]] const Device& device() const { return device_; }
  /// Its queue takes kernels, too.
  [[nodiscard]] bool computes() const { return computes_; }

 private:
  friend class Engine;
  Context& context_;
  const Device& device_;
  const bool computes_;
  Engine& engine_;
  int64_t pending_ = 0;
};

}  // namespace soft_ze
