// Begins communicators of fewer or more ranks out of one that there is.
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "membership.hpp"

namespace pliant::cuda {

using sdk::Failure;

namespace {
/// NCCL has nothing to wait on.
constexpr auto kPollQuiet = std::chrono::milliseconds(1);
}  // namespace

NcclResult Membership::shrink(std::vector<int> without, NcclComm* made, NcclConfig* config) {
  const std::unique_lock lock(calling_);
  if (handle_ == nullptr) {
    throw Failure(
        PLIANT_FAILED_PRECONDITION,
        "a communicator that not all ranks had joined cannot shrink; create a new one with the remaining ranks");
  }
  NcclResult state = kNcclInProgress;  // until all that ran has ended
  while (nccl_.async_error(handle_, &state) == kNcclSuccess && state == kNcclInProgress) {
    std::this_thread::sleep_for(kPollQuiet);
  }
  return nccl_.shrink(handle_, without.data(), static_cast<int>(without.size()), made, config, 0);
}

void Membership::retire() {
  const std::lock_guard lock(mutex_);
  if (failure_ || state_ != State::kReady) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  std::string("a communicator that ") + (failure_ ? "has failed" : "not all ranks have joined") +
                      " cannot grow; create a new one" + (failure_ ? ": " + std::string(failure_->what()) : ""));
  }
  retired_ = true;
}

NcclId Membership::make_grow_id() {
  const std::unique_lock lock(calling_);
  if (handle_ == nullptr || revoked_) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "a communicator that has failed cannot grow; create a new one");
  }
  NcclId made{};
  if (const NcclResult result = nccl_.grow_id(handle_, &made); result != kNcclSuccess) throw failure_of(result);
  grow_id_ = made;
  return made;
}

std::optional<NcclResult> Membership::grow(int32_t world_size, const NcclId& id, NcclComm* made, NcclConfig* config) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Failure(*failure_);
    forget_reached();
    if (!work_.empty() || turn_ != tickets_) return std::nullopt;
  }
  const std::unique_lock lock(calling_);
  NcclResult state = kNcclInternalError;
  if (handle_ == nullptr || nccl_.async_error(handle_, &state) != kNcclSuccess) return kNcclInvalidUsage;
  if (state == kNcclInProgress) return std::nullopt;
  if (state != kNcclSuccess) return state;
  const bool passes = grow_id_ && std::memcmp(grow_id_->bytes, id.bytes, sizeof(id.bytes)) == 0;
  return nccl_.grow(handle_, world_size, passes ? &id : nullptr, -1, made, config);
}

}  // namespace pliant::cuda
