// Joins, watches and leaves.
#include "membership.hpp"

#include <chrono>
#include <cstring>
#include <string>

#include "result.hpp"

namespace pliant::cuda {
namespace {

using sdk::Failure;
using namespace std::chrono_literals;

// NCCL tells of progress and errors only when it is asked.
constexpr auto kPollBusy = 1ms;
constexpr auto kPollIdle = 10ms;
constexpr auto kPollCall = 20us;
/// Whoever is in a call for so many polls is stuck in it.
constexpr int kTriesToCall = 100;
/// NCCL may notice a death, by a connection that is closed, before the process has ended.
constexpr auto kExplain = 200ms;
constexpr int kNcclUint8 = 1;
/// How long peers may take to leave before this rank leaves alone.
constexpr auto kLeaveTogether = 1s;

}  // namespace

Membership::Membership(const NcclApi& nccl, DevicePtr device, accelerator::ProcessWatch& watch, Make make, int32_t rank,
                       int32_t world_size)
    : nccl_(nccl),
      device_(std::move(device)),
      rank_(rank),
      world_size_(world_size),
      watch_(watch),
      peers_(std::make_shared<Peers>(rank)) {
  {
    const OnDevice here(device_->api, device_->index);
    check(device_->api, device_->api.cudaMalloc(&word_, sizeof(int64_t)), "cudaMalloc");
  }
  watcher_ = std::thread([this, making = std::move(make)]() mutable { join_and_watch(std::move(making)); });
}

Membership::~Membership() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
    changed_.notify_all();
  }
  if (watcher_.joinable()) watcher_.join();
  end_handle(true);
  const OnDevice here(device_->api, device_->index);
  if (introducing_ != nullptr) {
    static_cast<void>(device_->api.cudaStreamSynchronize(introducing_));
    static_cast<void>(device_->api.cudaStreamDestroy(introducing_));
  }
  if (names_ != nullptr) static_cast<void>(device_->api.cudaFreeHost(names_));
  if (device_->api.cudaFree(word_) != cudaSuccess) static_cast<void>(device_->api.cudaGetLastError());
}

Failure Membership::failure_of(NcclResult result) {
  const char* why = nccl_.last_error(handle_);
  const std::string text = std::string(nccl_.error_string(result)) + (why == nullptr || *why == '\0' ? "" : ": ") +
                           (why == nullptr ? "" : why);
  const std::string where = "the communicator of rank " + std::to_string(rank_) + " has failed: NCCL: " + text;
  if (result == kNcclRemoteError || result == kNcclSystemError) return {PLIANT_PEER_LOST, where};
  if (result == kNcclInvalidArgument || result == kNcclInvalidUsage) return {PLIANT_INVALID_ARGUMENT, where};
  return {PLIANT_INTERNAL, where + "; set NCCL_DEBUG=WARN to see more"};
}

bool Membership::is_in_progress(NcclResult result, std::unique_lock<std::mutex>& lock) {
  if (result == kNcclSuccess) return false;
  if (result == kNcclInProgress) return true;
  const Failure told = failure_of(result);
  lock.unlock();
  throw explained(told);
}

Failure Membership::explained(const Failure& told) const {
  const bool of_a_peer = told.status() == PLIANT_PEER_LOST;
  const auto end = std::chrono::steady_clock::now() + kExplain;
  while (true) {
    if (const std::optional<Failure> found = peers_->found(of_a_peer)) return *found;
    if (!of_a_peer || !peers_->has_any() || std::chrono::steady_clock::now() >= end) return told;
    std::this_thread::sleep_for(kPollBusy);  // a process that ends is nearly there
  }
}

NcclResult Membership::poll() {
  std::unique_lock lock(calling_);
  if (handle_ == nullptr) return kNcclInProgress;
  NcclResult state = kNcclInProgress;
  const NcclResult asked = nccl_.async_error(handle_, &state);
  return is_in_progress(asked == kNcclSuccess ? state : asked, lock) ? kNcclInProgress : kNcclSuccess;
}

bool Membership::begin(const Make& make) {
  NcclConfig config = nccl_.config();
  NcclComm made = nullptr;
  std::unique_lock lock(calling_);
  const std::optional<NcclResult> result = make(&made, &config);
  if (!result) return false;
  handle_ = made;
  static_cast<void>(is_in_progress(*result, lock));
  return true;
}

bool Membership::introduce() {
  if (world_size_ == 1) return true;
  const Api& api = device_->api;
  const auto ranks = static_cast<size_t>(world_size_);
  if (introducing_ == nullptr) {
    check(api, api.cudaHostAlloc(&names_, ranks * sizeof(PageName), cudaHostAllocPortable), "cudaHostAlloc");
    check(api, api.cudaStreamCreateWithPriority(&introducing_, cudaStreamNonBlocking, 0),
          "cudaStreamCreateWithPriority");
    PageName* const own = static_cast<PageName*>(names_) + rank_;
    *own = peers_->name();
    std::unique_lock lock(calling_);
    if (handle_ == nullptr) return false;
    static_cast<void>(
        is_in_progress(nccl_.all_gather(own, names_, sizeof(PageName), kNcclUint8, handle_, introducing_), lock));
    return false;
  }
  const cudaError_t state = api.cudaStreamQuery(introducing_);
  if (state == cudaErrorNotReady) return false;
  check(api, state, "cudaStreamQuery");
  peers_->meet({static_cast<const PageName*>(names_), ranks}, watch_);
  return true;
}

void Membership::join_and_watch(Make make) {
  const OnDevice here(device_->api, device_->index);
  try {
    bool begun = false;
    bool joined = false;
    std::unique_lock lock(mutex_);
    while (!leaving_ && state_ != State::kFailed) {
      lock.unlock();
      if (!begun) begun = begin(make);
      const bool quiet = poll() == kNcclSuccess;
      if (quiet && !joined) {
        joined = introduce();
        if (joined) make = nullptr;  // and with it the share in an older communicator
      } else if (joined) {
        if (const std::optional<Failure> found = peers_->found(false)) throw Failure(*found);
      }
      lock.lock();
      if (joined && state_ == State::kJoining) {
        state_ = State::kReady;
        changed_.notify_all();
      }
      forget_reached();
      const bool busy = state_ == State::kJoining || !work_.empty() || turn_ != tickets_;
      changed_.wait_for(lock, busy ? kPollBusy : kPollIdle, [this] { return leaving_ || state_ == State::kFailed; });
    }
  } catch (const Failure& failure) {
    fail(failure);
  } catch (const std::exception& other) {
    fail(Failure(PLIANT_INTERNAL, other.what()));
  }
  const std::lock_guard lock(mutex_);
  if (state_ == State::kFailed) end_handle(false);  // what failed while NCCL was about to give the handle
}

void Membership::forget_reached() {
  work_.remove_if([](const Work& one) { return one.mark->query() != cudaErrorNotReady; });
}

void Membership::wait_ready(int32_t timeout_ms) {
  std::unique_lock lock(mutex_);
  const auto known = [this] { return state_ != State::kJoining; };
  if (timeout_ms < 0) {
    changed_.wait(lock, known);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), known)) {
    throw Failure(PLIANT_DEADLINE_EXCEEDED, "not all ranks have joined after " + std::to_string(timeout_ms) + " ms");
  }
  if (failure_) throw Failure(*failure_);
}

uint64_t Membership::take_ticket() {
  const std::lock_guard lock(mutex_);
  if (retired_) throw Failure(PLIANT_FAILED_PRECONDITION, "this communicator has grown to another one; use that");
  return tickets_++;
}

bool Membership::is_due(uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  return state_ != State::kJoining && turn_ == ticket;
}

void Membership::await_turn(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || (turn_ == ticket && state_ == State::kReady); });
  if (failure_) throw Failure(*failure_);
}

void Membership::end_turn() {
  const std::lock_guard lock(mutex_);
  ++turn_;
  changed_.notify_all();
}

void Membership::settle() {
  std::unique_lock lock(mutex_);
  while (!failure_) {
    lock.unlock();
    if (poll() == kNcclSuccess) return;
    lock.lock();
    changed_.wait_for(lock, kPollCall);
  }
  throw Failure(*failure_);
}

void Membership::keep(std::shared_ptr<const void> written) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(written));
}

void Membership::add(std::shared_ptr<devices::FailureSlot> failures, uint64_t number, std::shared_ptr<Mark> mark) {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Failure(*failure_);
  work_.push_back({std::move(failures), number, std::move(mark)});
}

void Membership::fail(const Failure& failure, accelerator::FailureCause::Kind own) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  peers_->tell(failure, own);
  // Told before NCCL lets go of the streams, so that nobody takes an end by abort for a result.
  for (const Work& one : work_) {
    if (one.mark->query() == cudaErrorNotReady) one.failures->put(failure, one.number);
  }
  work_.clear();
  failure_.emplace(failure);
  const bool joined = state_ == State::kReady;
  state_ = State::kFailed;
  changed_.notify_all();
  end_handle(!joined);
}

/// Ends what runs. Where NCCL can make a smaller communicator of one that failed, the handle stays until the end. NCCL
/// lets a communicator be aborted while another thread is in a call of it.
void Membership::end_handle(bool for_good) {
  std::unique_lock lock(calling_, std::try_to_lock);
  for (int tries = 0; !lock.owns_lock() && tries < kTriesToCall; ++tries) {
    std::this_thread::sleep_for(kPollBusy);
    static_cast<void>(lock.try_lock());
  }
  if (handle_ == nullptr) return;
  const OnDevice here(device_->api, device_->index);
  if (!for_good && nccl_.revoke != nullptr) {
    const NcclResult revoked = revoked_ ? kNcclSuccess : nccl_.revoke(handle_, 0);
    revoked_ = true;
    if (revoked == kNcclSuccess || revoked == kNcclInProgress) return;
  }
  static_cast<void>(nccl_.abort(handle_));
  handle_ = nullptr;
}

bool Membership::is_done() {
  const std::lock_guard lock(mutex_);
  return is_done_now();
}

bool Membership::is_done_now() {
  forget_reached();
  return state_ == State::kReady && work_.empty() && turn_ == tickets_;
}

void Membership::leave() {
  bool together = false;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    together = is_done_now();
    if (together) peers_->leave();
    // Who grows has a share until all have joined the new one.
    if (together && retired_) return;
    leaving_ = together;
    changed_.notify_all();
  }
  if (!together) {
    return fail({PLIANT_ABORTED, "rank " + std::to_string(rank_) + " destroyed its communicator while it was in use"},
                accelerator::FailureCause::kLeft);
  }
  watcher_.join();
  const std::unique_lock lock(calling_);
  if (handle_ == nullptr) return;
  const OnDevice here(device_->api, device_->index);
  NcclResult state = nccl_.finalize(handle_);
  const auto end = std::chrono::steady_clock::now() + kLeaveTogether;
  while (state == kNcclInProgress && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kPollBusy);  // NCCL has nothing to wait on
    if (nccl_.async_error(handle_, &state) != kNcclSuccess) break;
  }
  static_cast<void>(state == kNcclSuccess ? nccl_.destroy(handle_) : nccl_.abort(handle_));
  handle_ = nullptr;
}

}  // namespace pliant::cuda
