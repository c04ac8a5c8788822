// Keeps the first failure.
#include "common/devices/failure_slot.hpp"

namespace pliant::devices {

using sdk::Failure;

void FailureSlot::put(const Failure& failure, uint64_t at) {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  failure_.emplace(failure);
  at_ = at;
}

void FailureSlot::tell(uint64_t last) {
  const std::lock_guard lock(mutex_);
  if (!failure_ || at_ > last) return;
  const Failure told = *failure_;
  failure_.reset();
  throw Failure(told);
}

bool FailureSlot::holds(uint64_t last) const {
  const std::lock_guard lock(mutex_);
  return failure_ && at_ <= last;
}

}  // namespace pliant::devices
