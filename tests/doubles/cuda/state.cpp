// The threads of the software runtime and its bookkeeping.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "soft.hpp"

namespace soft_cuda {
namespace {

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

thread_local cudaError_t last_error = cudaSuccess;

void report_to_file() {
  const char* const file = std::getenv("PLIANT_SOFT_CUDA_REPORT_TO");
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (file == nullptr || all.owner != ::getpid() || all.launches == 0) return;
  const std::string line = std::to_string(setting("LOCAL_RANK", -1)) + " " + std::to_string(all.launched_on) + " " +
                           std::to_string(all.digests) + " " + all.first_violation + "\n";
  std::ofstream(file, std::ios::app) << line;
}

}  // namespace

Settings Settings::read() {
  Settings made;
  made.devices = static_cast<int>(setting("PLIANT_SOFT_CUDA_DEVICES", 1));
  made.driver_version = static_cast<int>(setting("PLIANT_SOFT_CUDA_DRIVER_VERSION", 13000));
  made.memory_bytes = static_cast<uint64_t>(setting("PLIANT_SOFT_CUDA_MEMORY_BYTES", int64_t{1} << 30));
  made.seed = setting("PLIANT_SOFT_CUDA_SEED", -1);
  made.max_delay_us = setting("PLIANT_SOFT_CUDA_MAX_DELAY_US", 0);
  made.fail_alloc_at = setting("PLIANT_SOFT_CUDA_FAIL_ALLOC_AT", 0);
  made.fail_register_at = setting("PLIANT_SOFT_CUDA_FAIL_REGISTER_AT", 0);
  made.registers = setting("PLIANT_SOFT_CUDA_NO_REGISTER", 0) == 0;
  made.lose_device_at = setting("PLIANT_SOFT_CUDA_LOSE_DEVICE_AT", 0);
  made.busy = setting("PLIANT_SOFT_CUDA_BUSY", 0) != 0;
  const int64_t faulty = setting("PLIANT_SOFT_CUDA_FAULTS_OF", -1);
  const bool is_another = setting("LOCAL_RANK", -1) != faulty || setting("TORCHELASTIC_RESTART_COUNT", 0) != 0;
  if (faulty >= 0 && is_another) made.fail_alloc_at = made.lose_device_at = made.max_delay_us = 0, made.busy = false;
  made.has_batches = setting("PLIANT_SOFT_CUDA_NO_BATCHES", 0) == 0;
  made.has_ipc = setting("PLIANT_SOFT_CUDA_NO_IPC", 0) == 0;
  made.has_peers = setting("PLIANT_SOFT_CUDA_NO_PEERS", 0) == 0;
  made.has_kernels = setting("PLIANT_SOFT_CUDA_NO_KERNELS", 0) == 0;
  return made;
}

State& state() {
  static auto* const kState = [] {
    std::atexit(&report_to_file);
    return new State;
  }();
  return *kState;
}

void State::violation(const std::string& what) {
  if (violations++ == 0) first_violation = what;
}

AllocationPtr State::find(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return nullptr;
  --found;
  return address - found->first < found->second->mapped ? found->second : nullptr;
}

cudaError_t State::find_range(const void* pointer, uint64_t bytes, AllocationPtr& out) {
  out = find(pointer);
  if (!out) return cudaSuccess;
  const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - out->address);
  if (out->doomed || offset > out->bytes || bytes > out->bytes - offset) {
    violation(out->doomed ? "memory was used after it was given back" : "a range leaves its allocation");
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

void* State::inside(const AllocationPtr& allocation, const void* pointer) {
  if (!allocation) return const_cast<void*>(pointer);
  return allocation->inside + (static_cast<const std::byte*>(pointer) - allocation->address);
}

cudaError_t State::push(Stream& stream, Command command) {
  if (streams.count(&stream) == 0) {
    violation("a stream was used that is not there");
    return cudaErrorInvalidResourceHandle;
  }
  ++enqueued_ever;
  if (++enqueued == settings.lose_device_at) {
    command.work = [this] {
      const std::lock_guard lock(mutex);
      lost = true;
      changed.notify_all();
    };
  }
  for (const auto& one : command.uses) ++one->in_use;
  stream.queue.push_back(std::move(command));
  ++stream.pushed;
  stream.has_work.notify_one();
  return cudaSuccess;
}

void State::finish(Stream& stream, Command& command) {
  for (const auto& one : command.uses) --one->in_use;
  if (command.frees) {
    command.frees->pool->kept += command.frees->bytes;
    allocations.erase(reinterpret_cast<uintptr_t>(command.frees->address));
  }
  if (command.records && !lost) {
    command.records->done = true;
    command.records->seconds = now();
  }
  ++stream.finished;
  changed.notify_all();
}

cudaError_t State::drain(std::unique_lock<std::mutex>& lock, Stream& stream) {
  const uint64_t last = stream.pushed;
  changed.wait(lock, [&] { return stream.finished >= last; });
  for (Pool* pool : pools) {
    if (pool->kept > pool->threshold) trim(*pool, pool->threshold);
  }
  return lost ? kLoss : cudaSuccess;
}

void State::trim(Pool& pool, uint64_t keep) {
  if (pool.kept <= keep) return;
  used[pool.device] -= pool.kept - keep;
  pool.kept = keep;
}

Stream::Stream(int on_device, uint64_t number)
    : device(on_device),
      random(static_cast<uint64_t>(state().settings.seed) * 1000003 + number),
      thread([this] { loop(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard lock(state().mutex);
    closing = true;
    has_work.notify_one();
  }
  thread.join();
}

void Stream::loop() {
  State& all = state();
  std::unique_lock lock(all.mutex);
  for (;;) {
    has_work.wait(lock, [this] { return closing || !queue.empty(); });
    if (queue.empty()) return;
    if (all.settings.seed >= 0 && all.settings.max_delay_us > 0) {
      const uint64_t delay = random() % static_cast<uint64_t>(all.settings.max_delay_us + 1);
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(delay));  // the delay that the double was told to make
      lock.lock();
    }
    Command command = std::move(queue.front());
    queue.pop_front();
    all.changed.wait(lock, [&] { return all.lost || !command.wait || command.wait->done; });
    if (!all.lost && command.work) {
      lock.unlock();
      command.work();
      lock.lock();
    }
    all.finish(*this, command);
  }
}

cudaError_t told(cudaError_t result) {
  if (result != cudaSuccess) last_error = result;
  return result;
}

cudaError_t usable() {
  if (state().owner != 0 && state().owner != ::getpid()) return cudaErrorInitializationError;
  return state().lost ? kLoss : cudaSuccess;
}

}  // namespace soft_cuda

using soft_cuda::state;

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t last = soft_cuda::last_error;
  soft_cuda::last_error = cudaSuccess;
  return last;
}

__attribute__((visibility("default"))) void pliant_soft_cuda_report(pliant_soft_cuda_counts* counts) {
  auto& all = state();
  const std::lock_guard lock(all.mutex);
  *counts = {};
  counts->allocations = static_cast<int64_t>(all.allocations.size());
  counts->streams = static_cast<int64_t>(all.streams.size());
  counts->events = static_cast<int64_t>(all.events.size());
  counts->pools = static_cast<int64_t>(all.pools.size());
  counts->libraries = all.libraries;
  counts->enqueued = all.enqueued_ever;
  counts->launches = all.launches;
  counts->batches = all.batches;
  for (const auto* pool : all.pools) counts->pool_kept_bytes += static_cast<int64_t>(pool->kept);
  counts->violations = all.violations;
  std::strncpy(counts->first_violation, all.first_violation.c_str(), sizeof(counts->first_violation) - 1);
}

}  // extern "C"
