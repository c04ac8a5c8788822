// The software NCCL: a TEST DOUBLE of libnccl.so.2 on the software CUDA runtime. Ranks are threads or processes of this
// machine; what they exchange goes through the library of the accelerator `host`.
//
//   PLIANT_SOFT_NCCL_VERSION    22809
//   PLIANT_SOFT_NCCL_BUSY_POLLS how often a call that was begun is still in progress when it is asked for; 2
//   NCCL_MULTI_RANK_GPU_ENABLE  1: two ranks may share a device; else each of them fails, and the others wait
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "../../../accelerators/cuda/nccl_api.hpp"
#include "enqueue.hpp"
#include "file_limit.hpp"
#include "kernel/communicator.hpp"
#include "kernel/segment.hpp"

namespace {

using namespace pliant;
using namespace pliant::cuda;
using accelerator::Call;
using accelerator::CallKind;

constexpr uint64_t kChunkBytes = 64 * 1024;

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

/// Where rank 0 leaves the name of the shared memory, for those that have the id.
std::string meeting_place(const NcclId& id) {
  uint64_t key = 0;
  std::memcpy(&key, id.bytes, sizeof(key));
  return "/dev/shm/pliant-soft-nccl-" + std::to_string(key);
}

struct Operation {
  std::vector<Call> calls;
  std::vector<soft_cuda_range> uses;
  cudaStream_t stream = nullptr;
};

}  // namespace

namespace pliant::cuda {

/// One rank of a communicator.
struct NcclCommHandle : std::enable_shared_from_this<NcclCommHandle> {
  NcclCommHandle(const NcclId& id, int rank, int world_size, int device)
      : id_(id), rank_(rank), world_size_(world_size), device_(device), joiner_([this] { join(); }) {}
  ~NcclCommHandle() {
    end();
    joiner_.join();
  }
  NcclCommHandle(const NcclCommHandle&) = delete;
  NcclCommHandle& operator=(const NcclCommHandle&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world_size() const { return world_size_; }

  /// Ends all waits, and waits until nothing of this rank runs.
  void end() {
    std::unique_lock lock(mutex_);
    ended_ = true;
    if (communicator_) communicator_->abort();
    changed_.notify_all();
    changed_.wait(lock, [this] { return running_ == 0; });
  }
  /// Ends all that runs; what is left may shrink.
  void revoke() {
    end();
    const std::lock_guard lock(mutex_);
    revoked_ = true;
  }
  /// The id of the communicator without some ranks; the same on all that stay.
  [[nodiscard]] NcclId id_without(const int* leaving, int count) const {
    NcclId made = id_;
    uint64_t key = 0;
    std::memcpy(&key, made.bytes, sizeof(key));
    for (int i = 0; i < count; ++i) key = (key ^ static_cast<uint64_t>(leaving[i] + 1)) * 0x9e3779b97f4a7c15ULL;
    std::memcpy(made.bytes, &key, sizeof(key));
    return made;
  }

  /// The id of the next communicator that grows out of this one; the same on all its ranks.
  [[nodiscard]] NcclId id_grown() const {
    NcclId made = id_;
    uint64_t key = 0;
    std::memcpy(&key, made.bytes, sizeof(key));
    key = (key ^ 0x67726f77U) * 0x9e3779b97f4a7c15ULL;
    std::memcpy(made.bytes, &key, sizeof(key));
    return made;
  }
  /// Nothing runs, and it was not ended.
  [[nodiscard]] bool is_quiet() {
    const std::lock_guard lock(mutex_);
    return !ended_ && error_ == kNcclSuccess && turn_ == tickets_;
  }

  /// All that was enqueued has run.
  void leave() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    communicator_.reset();
    changed_.notify_all();
  }

  NcclResult state() {
    const std::lock_guard lock(mutex_);
    if (revoked_) return kNcclSuccess;
    if (error_ != kNcclSuccess) return error_;
    if (!communicator_ || !has_own_device_) return kNcclInProgress;
    try {
      communicator_->wait_ready(0);
    } catch (const sdk::Failure& failure) {
      if (failure.status() == PLIANT_DEADLINE_EXCEEDED) return kNcclInProgress;
      note(failure);
      return error_;
    }
    if (busy_polls_ > 0) {
      --busy_polls_;
      return kNcclInProgress;
    }
    return kNcclSuccess;
  }
  const char* last_error() {
    const std::lock_guard lock(mutex_);
    return words_.c_str();
  }

  NcclResult enqueue(Operation operation) {
    uint64_t ticket = 0;
    {
      const std::lock_guard lock(mutex_);
      if (error_ != kNcclSuccess) return error_;
      if (ended_) return kNcclInvalidUsage;
      ticket = tickets_++;
      busy_polls_ = setting("PLIANT_SOFT_NCCL_BUSY_POLLS", 2);
    }
    auto calls = std::make_shared<std::vector<Call>>(std::move(operation.calls));
    const cudaError_t result =
        soft_cuda_enqueue(operation.stream, std::move(operation.uses),
                          [self = shared_from_this(), calls, ticket] { self->run(*calls, ticket); });
    if (result != cudaSuccess) return kNcclUnhandledCudaError;
    return setting("PLIANT_SOFT_NCCL_BUSY_POLLS", 2) > 0 ? kNcclInProgress : kNcclSuccess;
  }

 private:
  void join() {
    try {
      pliant_comm_id made{};
      std::shared_ptr<accelerator::UniqueFd> memory;
      const std::string place = meeting_place(id_);
      if (rank_ == 0) {
        memory = std::make_shared<accelerator::UniqueFd>(accelerator::Segment::reserve(world_size_, kChunkBytes, made));
        const std::string draft = place + ".draft";
        if (!soft_cuda::may_write(sizeof(made.bytes))) throw std::runtime_error("no file may be that large");
        const int fd = ::open(draft.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        const bool written = fd >= 0 && ::write(fd, made.bytes, sizeof(made.bytes)) == sizeof(made.bytes);
        if (fd >= 0) ::close(fd);
        if (!written || ::rename(draft.c_str(), place.c_str()) != 0) throw std::runtime_error("no place to meet");
      } else {
        while (!read(place, made)) {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::milliseconds(1), [this] { return ended_; })) return;
        }
      }
      {
        const std::lock_guard lock(mutex_);
        if (!ended_)
          communicator_ = std::make_unique<accelerator::Communicator>(made, rank_, world_size_, memory,
                                                                      accelerator::NetworkSettings{}, nullptr);
      }
      compare_devices();
      if (rank_ == 0) {
        while (state() == kNcclInProgress) {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::milliseconds(1), [this] { return ended_; })) break;
        }
        ::unlink(place.c_str());
      }
    } catch (const sdk::Failure& failure) {
      const std::lock_guard lock(mutex_);
      note(failure);
    } catch (const std::exception& other) {
      const std::lock_guard lock(mutex_);
      note({PLIANT_INTERNAL, other.what()});
    }
  }
  /// As NCCL, which lets only those ranks fail that share a device.
  void compare_devices() {
    std::vector<int64_t> devices(static_cast<size_t>(world_size_), device_);
    if (setting("NCCL_MULTI_RANK_GPU_ENABLE", 0) == 0) {
      accelerator::Communicator* joined = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (ended_ || !communicator_) return;
        joined = communicator_.get();
        ++running_;
      }
      std::optional<sdk::Failure> failure;
      try {
        const int64_t own = device_;
        joined->wait_ready(-1);
        joined->enqueue(
            {.kind = CallKind::kAllGather, .send = &own, .recv = devices.data(), .elements = {1, sdk::DType::kI64}},
            stream_);
        stream_.synchronize();
      } catch (const sdk::Failure& thrown) {
        failure.emplace(thrown);
      }
      const std::lock_guard lock(mutex_);
      --running_;
      changed_.notify_all();
      if (failure) return note(*failure);
      for (size_t r = 0; r < devices.size(); ++r) {
        if (static_cast<int>(r) == rank_ || devices[r] != device_) continue;
        return note({PLIANT_INVALID_ARGUMENT, "Duplicate GPU detected : rank " + std::to_string(rank_) + " and rank " +
                                                  std::to_string(r) + " both on CUDA device"});
      }
      std::sort(devices.begin(), devices.end());
      if (std::adjacent_find(devices.begin(), devices.end()) != devices.end()) return;
      has_own_device_ = true;
      return;
    }
    const std::lock_guard lock(mutex_);
    has_own_device_ = true;
  }
  static bool read(const std::string& place, pliant_comm_id& made) {
    const int fd = ::open(place.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const bool whole = ::read(fd, made.bytes, sizeof(made.bytes)) == sizeof(made.bytes);
    ::close(fd);
    return whole;
  }

  /// Under the mutex.
  void note(const sdk::Failure& failure) {
    if (error_ != kNcclSuccess) return;
    words_ = failure.what();
    error_ = failure.status() == PLIANT_INVALID_ARGUMENT ? kNcclInvalidUsage
             : failure.status() == PLIANT_INTERNAL       ? kNcclInternalError
                                                         : kNcclRemoteError;
    changed_.notify_all();
  }

  /// On a stream's thread, in the order of the calls.
  void run(const std::vector<Call>& calls, uint64_t ticket) {
    std::unique_lock lock(mutex_);
    ++running_;
    changed_.wait(lock, [&] { return turn_ == ticket || ended_ || error_ != kNcclSuccess; });
    if (!ended_ && error_ == kNcclSuccess) {
      accelerator::Communicator& communicator = *communicator_;
      lock.unlock();
      std::optional<sdk::Failure> failure;
      try {
        communicator.begin_group();
        for (const Call& call : calls) {
          if (call.kind == CallKind::kBroadcast && call.send != nullptr && call.elements.count != 0) {
            std::memmove(call.recv, call.send, call.elements.bytes());
          }
          communicator.enqueue(call, stream_);
        }
        communicator.end_group();
        stream_.synchronize();
      } catch (const sdk::Failure& thrown) {
        failure.emplace(thrown);
      }
      lock.lock();
      if (failure) note(*failure);
    }
    // As a kernel of NCCL that waits for a peer: until the abort.
    changed_.wait(lock, [this] { return ended_ || error_ == kNcclSuccess; });
    --running_;
    ++turn_;
    changed_.notify_all();
  }

  const NcclId id_;
  const int rank_;
  const int world_size_;
  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<accelerator::Communicator> communicator_;
  accelerator::Stream stream_{nullptr, 0};
  NcclResult error_ = kNcclSuccess;
  std::string words_;
  bool has_own_device_ = false;
  bool ended_ = false;
  bool revoked_ = false;
  int running_ = 0;
  int64_t busy_polls_ = 0;
  uint64_t tickets_ = 0;
  uint64_t turn_ = 0;
  std::thread joiner_;
};

}  // namespace pliant::cuda

namespace {

std::mutex handles_mutex;
std::map<NcclComm, std::shared_ptr<NcclCommHandle>>& handles() {
  static auto* const kAll = new std::map<NcclComm, std::shared_ptr<NcclCommHandle>>;
  return *kAll;
}
std::shared_ptr<NcclCommHandle> of(NcclComm comm) {
  const std::lock_guard lock(handles_mutex);
  const auto found = handles().find(comm);
  return found == handles().end() ? nullptr : found->second;
}
std::shared_ptr<NcclCommHandle> take(NcclComm comm) {
  const std::lock_guard lock(handles_mutex);
  const auto found = handles().find(comm);
  if (found == handles().end()) return nullptr;
  auto taken = found->second;
  handles().erase(found);
  return taken;
}

std::atomic<int64_t> renewals{0};

thread_local int group_depth = 0;
thread_local std::map<NcclComm, Operation> grouped;

sdk::DType type_of(int type) {
  switch (type) {
    case 2:
      return sdk::DType::kI32;
    case 4:
      return sdk::DType::kI64;
    case 6:
      return sdk::DType::kF16;
    case 7:
      return sdk::DType::kF32;
    case 8:
      return sdk::DType::kF64;
    case 9:
      return sdk::DType::kBF16;
    default:
      return sdk::DType::kU8;
  }
}
sdk::ReduceOp op_of(int op) {
  return op == 0 ? sdk::ReduceOp::kSum : op == 2 ? sdk::ReduceOp::kMax : sdk::ReduceOp::kMin;
}

uint64_t ranks_of(NcclComm comm) {
  const auto rank = of(comm);
  return rank ? static_cast<uint64_t>(rank->world_size()) : 0;
}

NcclResult flush(NcclComm comm, Operation operation) {
  const auto rank = of(comm);
  return rank ? rank->enqueue(std::move(operation)) : kNcclInvalidArgument;
}

/// `send_bytes` and `recv_bytes` are those of the buffers.
NcclResult add(NcclComm comm, cudaStream_t stream, Call call, uint64_t send_bytes, uint64_t recv_bytes) {
  Operation one;
  Operation& operation = group_depth > 0 ? grouped[comm] : one;
  operation.stream = stream;
  for (const bool sends : {true, false}) {
    const void* pointer = sends ? call.send : call.recv;
    if (pointer == nullptr) continue;
    soft_cuda_range range;
    if (soft_cuda_reach(pointer, sends ? send_bytes : recv_bytes, range) != cudaSuccess) return kNcclInvalidArgument;
    if (sends) {
      call.send = range.inside;
    } else {
      call.recv = range.inside;
    }
    operation.uses.push_back(std::move(range));
  }
  operation.calls.push_back(std::move(call));
  return group_depth > 0 ? kNcclSuccess : flush(comm, std::move(one));
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

/// Ranks that have made a communicator of an older one, ever: asked by tests.
int64_t pliant_soft_nccl_renewals() {
  return renewals;
}

NcclResult ncclGetVersion(int* version) {
  *version = static_cast<int>(setting("PLIANT_SOFT_NCCL_VERSION", 22809));
  return kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "remote process exited or there was a network error" : "an error";
}
const char* ncclGetLastError(NcclComm comm) {
  const auto rank = of(comm);
  thread_local std::string words;
  words = rank ? rank->last_error() : "";
  return words.c_str();
}
NcclResult ncclGetUniqueId(NcclId* id) {
  *id = {};
  return ::getrandom(id->bytes, sizeof(uint64_t), 0) == sizeof(uint64_t) ? kNcclSuccess : kNcclSystemError;
}
NcclResult ncclCommInitRankConfig(NcclComm* out, int ranks, NcclId id, int rank, NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kNcclInvalidArgument;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return kNcclUnhandledCudaError;
  const auto made = std::make_shared<NcclCommHandle>(id, rank, ranks, device);
  const std::lock_guard lock(handles_mutex);
  handles().emplace(made.get(), made);
  *out = made.get();
  return kNcclInProgress;
}
NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* result) {
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  *result = rank->state();
  return kNcclSuccess;
}
NcclResult ncclCommFinalize(NcclComm comm) {
  return of(comm) ? kNcclSuccess : kNcclInvalidArgument;
}
NcclResult ncclCommDestroy(NcclComm comm) {
  const auto rank = take(comm);
  if (!rank) return kNcclInvalidArgument;
  rank->leave();
  return kNcclSuccess;
}
NcclResult ncclCommAbort(NcclComm comm) {
  const auto rank = take(comm);
  if (!rank) return kNcclInvalidArgument;
  rank->end();
  return kNcclSuccess;
}

#ifndef PLIANT_SOFT_NCCL_WITHOUT_SHRINK
NcclResult ncclCommRevoke(NcclComm comm, int flags) {
  const auto rank = of(comm);
  if (!rank || flags != 0) return kNcclInvalidArgument;
  rank->revoke();
  return kNcclSuccess;
}
NcclResult ncclCommShrink(NcclComm comm, int* without, int count, NcclComm* out, NcclConfig* config, int) {
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  ++renewals;
  int lower = 0;
  for (int i = 0; i < count; ++i) lower += without[i] < rank->rank() ? 1 : 0;
  return ncclCommInitRankConfig(out, rank->world_size() - count, rank->id_without(without, count), rank->rank() - lower,
                                config);
}
#endif

#ifndef PLIANT_SOFT_NCCL_WITHOUT_GROW
NcclResult ncclCommGetUniqueId(NcclComm comm, NcclId* id) {
  const auto rank = of(comm);
  if (!rank || !rank->is_quiet()) return kNcclInvalidUsage;
  *id = rank->id_grown();
  return kNcclSuccess;
}
NcclResult ncclCommGrow(NcclComm comm, int ranks, const NcclId* id, int rank, NcclComm* out, NcclConfig* config) {
  if (comm == nullptr) {
    if (id == nullptr || rank < 0) return kNcclInvalidArgument;
    return ncclCommInitRankConfig(out, ranks, *id, rank, config);
  }
  const auto old = of(comm);
  if (!old || rank != -1 || ranks <= old->world_size()) return kNcclInvalidArgument;
  const NcclId grown = old->id_grown();
  if (id != nullptr && std::memcmp(id->bytes, grown.bytes, sizeof(grown.bytes)) != 0) return kNcclInvalidArgument;
  if (!old->is_quiet()) return kNcclInvalidUsage;
  ++renewals;
  return ncclCommInitRankConfig(out, ranks, grown, old->rank(), config);
}
#endif

NcclResult ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, NcclComm comm,
                         cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream,
             {.kind = CallKind::kAllReduce, .send = send, .recv = recv, .elements = elements, .op = op_of(op)},
             elements.bytes(), elements.bytes());
}
NcclResult ncclAllGather(const void* send, void* recv, size_t count, int type, NcclComm comm, cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream, {.kind = CallKind::kAllGather, .send = send, .recv = recv, .elements = elements},
             elements.bytes(), elements.bytes() * ranks_of(comm));
}
NcclResult ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, NcclComm comm,
                         cudaStream_t stream) {
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  const sdk::Elements elements{count, type_of(type)};
  const void* from = rank->rank() == root ? send : nullptr;
  return add(comm, stream,
             {.kind = CallKind::kBroadcast, .send = from, .recv = recv, .elements = elements, .rank = root},
             elements.bytes(), elements.bytes());
}
NcclResult ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, NcclComm comm,
                             cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream,
             {.kind = CallKind::kReduceScatter, .send = send, .recv = recv, .elements = elements, .op = op_of(op)},
             elements.bytes() * ranks_of(comm), elements.bytes());
}
NcclResult ncclSend(const void* buffer, size_t count, int type, int peer, NcclComm comm, cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream, {.kind = CallKind::kSend, .send = buffer, .elements = elements, .rank = peer},
             elements.bytes(), 0);
}
NcclResult ncclRecv(void* buffer, size_t count, int type, int peer, NcclComm comm, cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream, {.kind = CallKind::kRecv, .recv = buffer, .elements = elements, .rank = peer}, 0,
             elements.bytes());
}
NcclResult ncclGroupStart() {
  ++group_depth;
  return kNcclSuccess;
}
NcclResult ncclGroupEnd() {
  if (group_depth == 0) return kNcclInvalidUsage;
  if (--group_depth > 0) return kNcclSuccess;
  NcclResult result = kNcclSuccess;
  std::map<NcclComm, Operation> ended;
  std::swap(ended, grouped);
  for (auto& [comm, operation] : ended) {
    const NcclResult one = flush(comm, std::move(operation));
    if (result == kNcclSuccess || (result == kNcclInProgress && one != kNcclSuccess)) result = one;
  }
  return result;
}

#pragma GCC visibility pop
}  // extern "C"
