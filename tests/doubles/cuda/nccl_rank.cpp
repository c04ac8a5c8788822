// One rank: joins through a file that rank 0 leaves, and runs on the threads of streams.
#include "nccl_rank.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/exchange/segment.hpp"
#include "file_limit.hpp"

namespace soft_nccl {

int64_t setting(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

}  // namespace soft_nccl

namespace pliant::cuda {

using accelerator::Call;
using accelerator::CallKind;
using soft_nccl::Operation;
using soft_nccl::setting;

namespace {

constexpr uint64_t kChunkBytes = 64 * 1024;

uint64_t key_of(const NcclId& id) {
  uint64_t key = 0;
  std::memcpy(&key, id.bytes, sizeof(key));
  return key;
}
NcclId with_key(NcclId id, uint64_t key) {
  std::memcpy(id.bytes, &key, sizeof(key));
  return id;
}

/// Where rank 0 leaves the name of the shared memory, for those that have the id.
std::string meeting_place(const NcclId& id) {
  return "/dev/shm/pliant-soft-nccl-" + std::to_string(key_of(id));
}

std::string draft_of(const std::string& place) {
  return place + ".draft";
}

/// What rank 0 leaves there goes with it, whatever happens meanwhile.
struct MeetingPlace {
  explicit MeetingPlace(std::string at) : place(std::move(at)) {}
  ~MeetingPlace() {
    ::unlink(draft_of(place).c_str());
    ::unlink(place.c_str());
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  std::string place;
};

bool read(const std::string& place, pliant_comm_id& made) {
  const int fd = ::open(place.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool whole = ::read(fd, made.bytes, sizeof(made.bytes)) == sizeof(made.bytes);
  ::close(fd);
  return whole;
}

}  // namespace

NcclCommHandle::~NcclCommHandle() {
  end();
  for (std::thread& one : registrars_) one.join();
  joiner_.join();
}

void NcclCommHandle::end() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  if (communicator_) communicator_->abort();
  changed_.notify_all();
  changed_.wait(lock, [this] { return running_ == 0; });
}

void NcclCommHandle::revoke() {
  end();
  const std::lock_guard lock(mutex_);
  revoked_ = true;
}

NcclId NcclCommHandle::id_without(const int* leaving, int count) const {
  uint64_t key = key_of(id_);
  for (int i = 0; i < count; ++i) key = (key ^ static_cast<uint64_t>(leaving[i] + 1)) * 0x9e3779b97f4a7c15ULL;
  return with_key(id_, key);
}

NcclId NcclCommHandle::id_grown() const {
  return with_key(id_, (key_of(id_) ^ 0x67726f77U) * 0x9e3779b97f4a7c15ULL);
}

bool NcclCommHandle::is_quiet() {
  const std::lock_guard lock(mutex_);
  return !ended_ && error_ == kNcclSuccess && turn_ == tickets_;
}

void NcclCommHandle::leave() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  communicator_.reset();
  changed_.notify_all();
}

NcclResult NcclCommHandle::state() {
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
  return registering_ == 0 ? kNcclSuccess : kNcclInProgress;
}

const char* NcclCommHandle::last_error() {
  const std::lock_guard lock(mutex_);
  return words_.c_str();
}

NcclResult NcclCommHandle::enqueue(Operation operation) {
  uint64_t ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    if (error_ != kNcclSuccess) return error_;
    if (ended_) return kNcclInvalidUsage;
    ticket = tickets_++;
    busy_polls_ = setting("PLIANT_SOFT_NCCL_BUSY_POLLS", 2);
  }
  std::vector<soft_cuda_range> uses = std::move(operation.uses);
  auto shared = std::make_shared<const Operation>(std::move(operation));
  const cudaError_t result = soft_cuda_enqueue(
      shared->stream, std::move(uses), [self = shared_from_this(), shared, ticket] { self->run(*shared, ticket); });
  if (result != cudaSuccess) return kNcclUnhandledCudaError;
  return setting("PLIANT_SOFT_NCCL_BUSY_POLLS", 2) > 0 ? kNcclInProgress : kNcclSuccess;
}

NcclResult NcclCommHandle::register_window(const void* memory, uint64_t bytes, NcclWindow* out) {
  if (setting("PLIANT_SOFT_NCCL_WINDOWS", 1) == 0) return kNcclSuccess;
  const std::lock_guard lock(mutex_);
  if (error_ != kNcclSuccess) return error_;
  if (ended_) return kNcclInvalidUsage;
  ++registering_;
  registrars_.emplace_back([this, memory, bytes, out, ticket = tickets_++] {
    Operation meeting;
    meeting.calls = {{.kind = CallKind::kWindow, .elements = {bytes, sdk::DType::kU8}}};
    meeting.offsets = {-1};
    run(meeting, ticket);
    const std::lock_guard done(mutex_);
    if (error_ == kNcclSuccess && !ended_) {
      windows_.push_back({static_cast<const std::byte*>(memory), bytes});
      *out = reinterpret_cast<NcclWindow>(this);
    }
    --registering_;
    changed_.notify_all();
  });
  return kNcclInProgress;
}

int64_t NcclCommHandle::window_offset(const void* buffer) {
  const auto* const at = static_cast<const std::byte*>(buffer);
  const std::lock_guard lock(mutex_);
  for (const Window& one : windows_) {
    if (at >= one.memory && at < one.memory + one.bytes) return at - one.memory;
  }
  return -1;
}

void NcclCommHandle::compare_offsets(const std::vector<int64_t>& own) {
  {
    const std::lock_guard lock(mutex_);
    if (windows_.empty() || own.empty()) return;
  }
  std::vector<int64_t> all(own.size() * static_cast<size_t>(world_size_));
  communicator_->enqueue({.kind = CallKind::kAllGather,
                          .send = own.data(),
                          .recv = all.data(),
                          .elements = {own.size(), sdk::DType::kI64}},
                         stream_);
  stream_.synchronize();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == own[i % own.size()]) continue;
    throw sdk::Failure(PLIANT_INVALID_ARGUMENT, "the buffers of the ranks begin at different offsets of the window");
  }
}

void NcclCommHandle::join() {
  try {
    pliant_comm_id made{};
    std::shared_ptr<accelerator::UniqueFd> memory;
    const std::string place = meeting_place(id_);
    std::optional<MeetingPlace> left;
    if (rank_ == 0) {
      left.emplace(place);
      memory = std::make_shared<accelerator::UniqueFd>(accelerator::Segment::reserve(world_size_, kChunkBytes, made));
      const std::string draft = draft_of(place);
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
    }
  } catch (const sdk::Failure& failure) {
    const std::lock_guard lock(mutex_);
    note(failure);
  } catch (const std::exception& other) {
    const std::lock_guard lock(mutex_);
    note({PLIANT_INTERNAL, other.what()});
  }
}

void NcclCommHandle::compare_devices() {
  if (setting("NCCL_MULTI_RANK_GPU_ENABLE", 0) != 0) {
    const std::lock_guard lock(mutex_);
    has_own_device_ = true;
    return;
  }
  accelerator::Communicator* joined = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || !communicator_) return;
    joined = communicator_.get();
    ++running_;
  }
  std::vector<int64_t> devices(static_cast<size_t>(world_size_), device_);
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
}

void NcclCommHandle::note(const sdk::Failure& failure) {
  if (error_ != kNcclSuccess) return;
  const bool is_of_a_peer = failure.status() == PLIANT_PEER_LOST || failure.status() == PLIANT_ABORTED;
  if (is_of_a_peer && setting("PLIANT_SOFT_NCCL_DEAF", 0) != 0) return;
  words_ = failure.what();
  error_ = failure.status() == PLIANT_INVALID_ARGUMENT ? kNcclInvalidUsage
           : failure.status() == PLIANT_INTERNAL       ? kNcclInternalError
                                                       : kNcclRemoteError;
  changed_.notify_all();
}

void NcclCommHandle::run(const Operation& operation, uint64_t ticket) {
  std::unique_lock lock(mutex_);
  ++running_;
  changed_.wait(lock, [&] { return turn_ == ticket || ended_ || error_ != kNcclSuccess; });
  bool has_run = false;
  if (!ended_ && error_ == kNcclSuccess) {
    accelerator::Communicator& communicator = *communicator_;
    lock.unlock();
    std::optional<sdk::Failure> failure;
    try {
      compare_offsets(operation.offsets);
      communicator.begin_group();
      for (const Call& call : operation.calls) {
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
    has_run = !failure;
  }
  // As a kernel of NCCL that waits for a peer: until the abort.
  changed_.wait(lock, [&] { return ended_ || has_run; });
  --running_;
  ++turn_;
  changed_.notify_all();
}

}  // namespace pliant::cuda
