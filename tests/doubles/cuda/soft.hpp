// The software CUDA runtime: a TEST DOUBLE of libcudart. Devices are made of this machine's memory and threads; it lies
// in a folder of its own, which tests put on LD_LIBRARY_PATH, and is neither installed nor beside any plugin.
//
// Environment, read when cudaGetDeviceCount is called and nothing lives; then a lost device is whole again, too:
//   PLIANT_SOFT_CUDA_DEVICES         GPUs that there are; 1
//   PLIANT_SOFT_CUDA_DRIVER_VERSION  13000; 0: there is no driver
//   PLIANT_SOFT_CUDA_MEMORY_BYTES    of each device; 1 GiB
//   PLIANT_SOFT_CUDA_SEED            what delays are drawn from; unset: none
//   PLIANT_SOFT_CUDA_MAX_DELAY_US    each command starts late by up to that much; 0
//   PLIANT_SOFT_CUDA_FAIL_ALLOC_AT   allocation that fails for want of memory, counted from 1
//   PLIANT_SOFT_CUDA_LOSE_DEVICE_AT  command at which the device is lost, counted from 1
//   PLIANT_SOFT_CUDA_BUSY            1: other processes have the devices, in exclusive mode
//   PLIANT_SOFT_CUDA_FAULTS_OF       these three, and delays, are for the first worker of a job with this LOCAL_RANK
//                                    alone
//   PLIANT_SOFT_CUDA_NO_KERNELS      1: kernels cannot be loaded
//   PLIANT_SOFT_CUDA_NO_BATCHES      1: the driver knows no batches of copies
//   PLIANT_SOFT_CUDA_NO_IPC          1: no memory passes between processes
//   PLIANT_SOFT_CUDA_NO_PEERS        1: no device reaches memory of another
//   PLIANT_SOFT_CUDA_NO_REGISTER     1: no device reaches memory of the program at its addresses
//   PLIANT_SOFT_CUDA_FAIL_REGISTER_AT
//                                    registration of such memory that fails for want of it, counted from 1
//   PLIANT_SOFT_CUDA_REPORT_TO       file to which a process that launched kernels appends when it ends, in a line: its
//                                    LOCAL_RANK, the device of the last one, how many took digests, violations of the
//                                    rules; unset: none
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../twice_mapped.hpp"
#include "report.h"

namespace soft_cuda {

constexpr uint64_t kPage = 4096;

struct Settings {
  int devices = 1;
  int driver_version = 13000;
  uint64_t memory_bytes = uint64_t{1} << 30;
  int64_t seed = -1;
  int64_t max_delay_us = 0;
  int64_t fail_alloc_at = 0;
  int64_t fail_register_at = 0;
  int64_t lose_device_at = 0;
  bool busy = false;
  bool has_kernels = true;
  bool has_batches = true;
  bool has_ipc = true;
  bool has_peers = true;
  bool registers = true;
  static Settings read();
};

struct Pool;

/// At the end of the file of an allocation: who has it mapped.
struct Trailer {
  static constexpr size_t kImporters = 64;
  uint64_t nonce;
  std::atomic<int32_t> importers[kImporters];  ///< pids; 0: free
};

struct Allocation : soft::TwiceMapped {
  uint64_t bytes = 0;
  cudaMemoryType type = cudaMemoryTypeDevice;
  int device = 0;
  Pool* pool = nullptr;  ///< NULL unless it came in stream order
  bool doomed = false;   ///< cudaFreeAsync was called
  int64_t in_use = 0;    ///< commands that have not run
  int64_t opened = 0;    ///< another process's, opened so often; 0: this one's
  int opener = 0;        ///< the device that was the current one then
  [[nodiscard]] Trailer& trailer() const { return *reinterpret_cast<Trailer*>(inside + mapped - kPage); }
};
using AllocationPtr = std::shared_ptr<Allocation>;

struct Pool {
  int device = 0;
  uint64_t threshold = 0;
  uint64_t kept = 0;
};

/// One recording of an event.
struct Recording {
  bool done = false;
  double seconds = 0;
};

struct Event {
  int device = 0;
  bool timed = true;
  std::shared_ptr<Recording> last;  ///< NULL: never recorded
};

struct Command {
  std::function<void()> work;          ///< outside the mutex
  std::shared_ptr<Recording> wait;     ///< for this one
  std::shared_ptr<Recording> records;  ///< done after it
  std::vector<AllocationPtr> uses;
  AllocationPtr frees;
};

/// A queue with a thread of its own.
struct Stream {
  Stream(int on_device, uint64_t number);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void loop();

  const int device;
  std::mt19937_64 random;
  std::deque<Command> queue;
  std::condition_variable has_work;  ///< or is closing
  uint64_t pushed = 0;
  uint64_t finished = 0;
  bool closing = false;
  std::thread thread;
};

/// All of the process. Never destroyed: threads may outlive main.
struct State {
  std::mutex mutex;                 ///< of all below, and of what it leads to
  std::condition_variable changed;  ///< something is finished, or the device is lost
  Settings settings;
  bool begun = false;
  pid_t owner = 0;
  bool lost = false;
  std::map<uintptr_t, AllocationPtr> allocations;
  std::map<int, uint64_t> used;  ///< bytes of each device, those that pools keep included
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Pool*> pools;
  int64_t libraries = 0;
  uint64_t streams_made = 0;
  int64_t allocations_made = 0;
  int64_t registrations_made = 0;
  int64_t enqueued = 0;  ///< since it was begun
  int64_t enqueued_ever = 0;
  int64_t launches = 0;
  int64_t digests = 0;   ///< kernels among them that took some
  int launched_on = -1;  ///< the device of the last one
  int64_t batches = 0;
  int64_t violations = 0;
  std::string first_violation;

  void violation(const std::string& what);
  /// The allocation that holds the address; NULL for plain memory.
  AllocationPtr find(const void* pointer);
  /// cudaErrorInvalidValue when the range leaves its allocation, or that was given back. `out` is NULL for plain
  /// memory.
  cudaError_t find_range(const void* pointer, uint64_t bytes, AllocationPtr& out);
  /// Where the runtime finds what the user's pointer names.
  static void* inside(const AllocationPtr& allocation, const void* pointer);
  cudaError_t push(Stream& stream, Command command);
  void finish(Stream& stream, Command& command);
  /// Waits until the stream has run all there is now; how it went.
  cudaError_t drain(std::unique_lock<std::mutex>& lock, Stream& stream);
  void trim(Pool& pool, uint64_t keep);
};
State& state();

/// Remembers the error for cudaGetLastError.
cudaError_t told(cudaError_t result);
/// What every call finds first: the device is lost, or the process was forked.
cudaError_t usable();
int current_device();

/// A kernel by its name, called with the arguments of a launch; how it went is known at once, and work for the stream
/// is added to `command`. cudaErrorInvalidDeviceFunction for an unknown one.
bool kernel_exists(const std::string& name);
cudaError_t launch(const std::string& name, void** arguments, Command& command);

constexpr cudaError_t kLoss = cudaErrorLaunchFailure;
uint64_t drawn();
/// Some process that has the allocation open is still there.
bool is_imported(const Allocation& allocation);

}  // namespace soft_cuda
