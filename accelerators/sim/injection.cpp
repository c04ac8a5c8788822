// Draws and carries out faults.
#include "injection.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "pliant/sdk/failure.hpp"
#include "turnstile.hpp"

namespace pliant::accelerator {

namespace {

using Clock = std::chrono::steady_clock;

bool computes(WorkKind kind) {
  return kind == WorkKind::kLocal || kind == WorkKind::kSpend || kind == WorkKind::kCopy;
}

}  // namespace

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

/// What this thread runs.
struct Injection::Running {
  WorkKind kind = WorkKind::kLocal;
  Moment* moment = nullptr;
  Clock::time_point begin;
};

Injection::Running& Injection::running() {
  thread_local Running here;
  return here;
}

Moment& Injection::here() {
  Moment* const moment = running().moment;
  if (moment == nullptr) throw sdk::Failure(PLIANT_INTERNAL, "a virtual time was requested outside a piece of work");
  return *moment;
}

Injection::Injection(InjectionPlan plan)
    : plan_(std::move(plan)),
      clock_(plan_.virtual_clock ? std::make_unique<VirtualClock>(*plan_.virtual_clock) : nullptr),
      turnstile_(plan_.reorder ? std::make_unique<Turnstile>(plan_.seed) : nullptr) {}

Injection::~Injection() = default;

int64_t Injection::delay_us(uint64_t stream, uint64_t index) const {
  const auto choices = static_cast<uint64_t>(plan_.max_delay_us) + 1;
  return static_cast<int64_t>(draw(plan_.seed, Purpose::kDelay, stream, index) % choices);
}

sdk::Failure Injection::loss() const {
  return sdk::Failure(PLIANT_FAILED_PRECONDITION,
                      "the device is lost since its piece of work " + std::to_string(plan_.lose_device_at) +
                          ", as injected by the simulator; only freeing and destroying is possible, end this process")
      .about_device(0);  // it has no other
}

void Injection::before_call() {
  if (is_lost_) throw loss();
}

void Injection::before_alloc(uint64_t bytes) {
  const uint64_t number = ++allocations_;
  const bool named =
      std::count(plan_.fail_alloc_at.begin(), plan_.fail_alloc_at.end(), static_cast<int64_t>(number)) != 0;
  const double drawn = static_cast<double>(draw(plan_.seed, Purpose::kAllocation, 0, number) >> 11U) * 0x1p-53;
  if (!named && drawn >= plan_.fail_alloc_probability) return;
  throw sdk::Failure(PLIANT_RESOURCE_EXHAUSTED, "out of device memory: allocation " + std::to_string(number) + ", of " +
                                                    std::to_string(bytes) +
                                                    " bytes, fails as injected by the simulator");
}

void Injection::opened(uint64_t stream, sdk::StreamRole role) {
  if (clock_) clock_->opened(stream, role);
}

std::shared_ptr<Moment> Injection::enqueued(uint64_t stream, uint64_t index, Piece piece) {
  before_call();
  const bool counts = computes(piece.kind) || piece.kind == WorkKind::kCollective;
  if (counts && ++pieces_ == static_cast<uint64_t>(plan_.lose_device_at)) {
    const std::lock_guard lock(mutex_);
    last_piece_ = {stream, index};
  }
  std::shared_ptr<Moment> moment;
  if (clock_) {
    const bool may_be_late = computes(piece.kind) || piece.kind == WorkKind::kAllocation;
    const uint64_t late_ns = may_be_late ? static_cast<uint64_t>(delay_us(stream, index)) * 1000 : 0;
    moment = clock_->enqueued(stream, piece, is_slow_ ? plan_.slow_factor : 1, late_ns);
  }
  if (turnstile_) turnstile_->enqueued(stream, index, piece.kind, std::move(piece.passable));
  return moment;
}

bool Injection::before_work(uint64_t stream, uint64_t index, WorkKind kind, Moment* moment) {
  if (plan_.max_delay_us > 0 && !clock_) {
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(stream, index)));
  }
  if (turnstile_) turnstile_->enter(stream);
  running() = {kind, moment, Clock::now()};
  if (plan_.lose_device_at > 0) {
    const std::lock_guard lock(mutex_);
    if (last_piece_ == std::pair{stream, index}) is_lost_ = true;
  }
  return !is_lost_ || !computes(kind);
}

void Injection::after_work(uint64_t stream, uint64_t) {
  if (turnstile_) turnstile_->leave(stream);
  const Running ran = running();
  if (ran.kind == WorkKind::kCollective && clock_) clock_->ended(*ran.moment);
  if (is_slow_ && !clock_ && computes(ran.kind)) {
    std::this_thread::sleep_for((Clock::now() - ran.begin) * (plan_.slow_factor - 1));
  }
}

void Injection::joined(int32_t rank) {
  if (rank == plan_.slow_rank) is_slow_ = true;
}

bool Injection::loses(int32_t rank, uint64_t collective) {
  before_call();
  if (plan_.killed.hits(rank, collective)) ::kill(::getpid(), SIGKILL);
  if (plan_.stopped.hits(rank, collective)) ::kill(::getpid(), SIGSTOP);
  return plan_.lost.hits(rank, collective);
}

uint64_t Injection::ready_ns() {
  return clock_->ready_ns(here());
}

uint64_t Injection::transferred(uint64_t begin_ns, uint64_t bytes) {
  return clock_->transferred(here(), begin_ns, bytes);
}

}  // namespace pliant::accelerator
