// Waits with one condition for all of it.
#include "collectives/peers/turns.hpp"

#include <algorithm>

namespace pliant::collectives {

using sdk::Failure;

void Turns::await(uint64_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || turn_ == step; });
  if (failure_) throw Failure(*failure_);
}

void Turns::end(uint64_t step) {
  const std::lock_guard lock(mutex_);
  turn_ = std::max(turn_, step + 1);
  changed_.notify_all();
}

bool Turns::fail(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  failure_ = failure;
  changed_.notify_all();
  return true;
}

std::optional<Failure> Turns::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Turns::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw Failure(*failure_);
}

bool Turns::set_agreed() {
  const std::lock_guard lock(mutex_);
  has_agreed_ = true;
  changed_.notify_all();
  return !failure_;
}

void Turns::await_agreement(std::optional<std::chrono::steady_clock::time_point> end) {
  const auto known = [this] { return failure_ || has_agreed_; };
  std::unique_lock lock(mutex_);
  if (!end) changed_.wait(lock, known);
  if (end && !changed_.wait_until(lock, *end, known)) {
    throw Failure(PLIANT_DEADLINE_EXCEEDED, "not all ranks have said how they exchange before the time was over");
  }
  if (failure_) throw Failure(*failure_);
}

}  // namespace pliant::collectives
