// Draws and carries out faults.
#include "injection.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "pliant/sdk/failure.hpp"
#include "turnstile.hpp"

namespace pliant::accelerator {

uint64_t draw(uint64_t seed, Purpose purpose, uint64_t where, uint64_t when) {
  uint64_t state = 0;
  for (const uint64_t word : {seed, static_cast<uint64_t>(purpose), where, when}) {
    state += word + 0x9e3779b97f4a7c15ULL;  // splitmix64
    state = (state ^ (state >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    state = (state ^ (state >> 27U)) * 0x94d049bb133111ebULL;
    state ^= state >> 31U;
  }
  return state;
}

Injection::Injection(InjectionPlan plan)
    : plan_(std::move(plan)), turnstile_(plan_.reorder ? std::make_unique<Turnstile>(plan_.seed) : nullptr) {}

Injection::~Injection() = default;

int64_t Injection::delay_us(uint64_t stream, uint64_t index) const {
  const auto choices = static_cast<uint64_t>(plan_.max_delay_us) + 1;
  return static_cast<int64_t>(draw(plan_.seed, Purpose::kDelay, stream, index) % choices);
}

void Injection::before_alloc(uint64_t bytes) {
  const uint64_t number = ++allocations_;
  const bool named =
      std::count(plan_.fail_alloc_at.begin(), plan_.fail_alloc_at.end(), static_cast<int64_t>(number)) != 0;
  const double drawn = static_cast<double>(draw(plan_.seed, Purpose::kAllocation, 0, number) >> 11U) * 0x1p-53;
  if (!named && drawn >= plan_.fail_alloc_probability) return;
  throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "out of device memory: allocation " + std::to_string(number) + ", of " +
                                                    std::to_string(bytes) +
                                                    " bytes, fails because the simulator was told so");
}

void Injection::enqueued(uint64_t stream, uint64_t index, WorkKind kind, std::function<bool()> passable) {
  if (turnstile_) turnstile_->enqueued(stream, index, kind, std::move(passable));
}

void Injection::before_work(uint64_t stream, uint64_t index) {
  if (plan_.max_delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us(stream, index)));
  if (turnstile_) turnstile_->enter(stream);
}

void Injection::after_work(uint64_t stream, uint64_t) {
  if (turnstile_) turnstile_->leave(stream);
}

bool Injection::loses(int32_t rank, uint64_t collective) {
  return rank == plan_.lost_rank && collective == static_cast<uint64_t>(plan_.lost_at);
}

}  // namespace pliant::accelerator
