// Joins, waits and fails.
#include "common/exchange/group.hpp"

#include <sched.h>

#include <chrono>
#include <string>

#include "common/processes/futex.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

/// About two microseconds: a peer on another processor is often that close, and to leave one's own takes no less.
constexpr int kSpins = 60;

/// Turns that a waiting rank leaves to whoever else wants its processor before it sleeps. Peers there come to what is
/// waited for in one turn each, without a system call that wakes anyone. Where nobody wants it this takes some 15 us.
/// Not over a network, which takes longer than that and whose threads must not lose turns to ranks that only look.
constexpr int kYields = 50;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The processor of the caller, counted from 1; 0 when the system does not say.
int32_t this_processor() {
  return ::sched_getcpu() + 1;
}

/// Processors that this process may use; a great many when the system does not say.
int32_t processors() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : INT32_MAX;
}

}  // namespace

Group::Group(const Transport& transport, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made)
    : segment_(transport.segment()),
      rank_(rank),
      world_size_(world_size),
      yields_(transport.is_local() ? kYields : 0),
      crowded_(transport.is_local() && world_size > processors()),
      made_(std::move(made)) {
  uint64_t taken_by = 0;
  if (!own().claim.compare_exchange_strong(taken_by, ProcessId::self_for_others().packed())) {
    throw Failure(PLIANT_INVALID_ARGUMENT, "rank " + std::to_string(rank) + " has joined already (pid " +
                                               std::to_string(ProcessId::unpack(taken_by).pid) +
                                               "); every rank joins once, and an id is used once")
        .about_rank(rank);
  }
  if (world_size == 1) return;
  link_ = transport.make_link(*this, made_);
  try {
    link_->start();
  } catch (...) {
    leave();
    throw;
  }
}

Group::~Group() {
  leave();
  if (link_) link_->stop();
}

bool Group::all_joined() const {
  for (int32_t r = 0; r < world_size_; ++r) {
    if (segment_.rank(r).claim.load() == 0) return false;
  }
  return true;
}

void Group::wait(const std::function<bool()>& holds, int32_t timeout_ms) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    const uint32_t bell = own().doorbell.load();
    check();
    if (holds()) return;
    int64_t left_ns = -1;
    if (timeout_ms >= 0) {
      left_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(deadline - Clock::now()).count();
      if (left_ns <= 0) throw Failure(PLIANT_DEADLINE_EXCEEDED, "not yet after " + std::to_string(timeout_ms) + " ms");
    }
    futex_wait(own().doorbell, bell, left_ns);
  }
}

void Group::wait_ready(int32_t timeout_ms) {
  if (complete_.load()) return check();
  const auto joined = [this] {
    if (!all_joined()) return false;
    complete_.store(true);
    return true;
  };
  try {
    wait(joined, timeout_ms);
  } catch (const Failure& failure) {
    if (failure.status() != PLIANT_DEADLINE_EXCEEDED) throw;
    std::string missing;
    int32_t count = 0;
    int32_t first = -1;
    for (int32_t r = 0; r < world_size_; ++r) {
      if (segment_.rank(r).claim.load() != 0) continue;
      if (count == 0) first = r;
      if (++count <= 16) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    }
    if (count == 0) return;
    throw Failure(PLIANT_DEADLINE_EXCEEDED, std::to_string(count) + " of " + std::to_string(world_size_) +
                                                " ranks have not joined the communicator after " +
                                                std::to_string(timeout_ms) + " ms: " + missing +
                                                (count > 16 ? ", ..." : ""))
        .about_rank(first);
  }
}

void Group::wake() {
  ring(own().doorbell);
}

uint64_t Group::encode(Stage stage, int32_t rank, uint64_t ticks) {
  return (static_cast<uint64_t>(stage) + 1) << 62U | static_cast<uint64_t>(rank) << 42U |
         (ticks & ((uint64_t{1} << 42U) - 1));
}

bool Group::fulfils(int32_t peer, uint64_t awaits, int32_t publisher, Stage stage, uint64_t ticks) const {
  // Same stage, same rank, and a tick that is now behind it: the order of these numbers is that of the ticks.
  if (awaits >= encode(stage, publisher, 0) && awaits <= encode(stage, publisher, ticks)) return true;
  if (awaits < encode(stage, kEveryone, 0) || awaits > encode(stage, kEveryone, ticks)) return false;
  // The last one to come rings. Progress is stored before it is compared here, so whoever is last sees all the others.
  const uint64_t wanted = awaits - encode(stage, kEveryone, 0);
  for (int32_t r = 0; r < world_size_; ++r) {
    if (r != peer && r != publisher && progress(r, stage) < wanted) return false;
  }
  return true;
}

void Group::ring_if_awaited(int32_t peer, int32_t publisher, Stage stage, uint64_t ticks) const {
  RankBlock& block = segment_.rank(peer);
  uint64_t awaits = block.awaits.load();
  if (awaits == 0 || !fulfils(peer, awaits, publisher, stage, ticks)) return;
  // Whoever takes the wish away rings; those who publish before the peer has woken up need not.
  if (block.awaits.compare_exchange_strong(awaits, 0)) ring(block.doorbell);
}

void Group::ring_if_listening(int32_t peer) const {
  RankBlock& block = segment_.rank(peer);
  if (block.listens.load() != 0) ring(block.doorbell);
}

void Group::publish(Stage stage, uint64_t ticks, const Parcels* parcels) {
  own().processor.store(this_processor(), std::memory_order_relaxed);
  own().progress[static_cast<uint32_t>(stage)].store(ticks);
  link_->published(stage, ticks, parcels);
}

int32_t Group::laggard(Stage stage, uint64_t ticks) const {
  for (int32_t i = 1; i < world_size_; ++i) {
    const int32_t r = (rank_ + i) % world_size_;
    if (progress(r, stage) < ticks) return r;
  }
  return -1;
}

int32_t Group::awaited(int32_t rank, Stage stage, uint64_t ticks) const {
  if (rank == kEveryone) return laggard(stage, ticks);
  return progress(rank, stage) < ticks ? rank : -1;
}

bool Group::needs_this_processor(int32_t rank, Stage stage, uint64_t ticks) const {
  const int32_t here = this_processor();
  const auto needs = [&](int32_t r) {
    return progress(r, stage) < ticks && segment_.rank(r).processor.load(std::memory_order_relaxed) == here;
  };
  if (rank != kEveryone) return needs(rank);
  for (int32_t r = 0; r < world_size_; ++r) {
    if (r != rank_ && needs(r)) return true;
  }
  return false;
}

bool Group::comes_soon(int32_t rank, Stage stage, uint64_t ticks, int most_spins) const {
  int yields = 0;
  for (int spins = 0; !failed();) {
    const int32_t missing = awaited(rank, stage, ticks);
    if (missing < 0) return true;
    if (left(missing)) return false;
    if (spins < most_spins && !needs_this_processor(rank, stage, ticks)) {
      ++spins;
      relax();
    } else if (yields++ < yields_) {
      ::sched_yield();
    } else {
      return false;
    }
  }
  return false;
}

void Group::await(int32_t rank, Stage stage, uint64_t ticks, bool soon) {
  if (comes_soon(rank, stage, ticks, soon || !crowded_ ? kSpins : 1)) return;
  struct Asleep {
    explicit Asleep(std::atomic<uint64_t>& where) : word(where) {}
    ~Asleep() { word.store(0); }
    std::atomic<uint64_t>& word;
  } const asleep(own().awaits);
  for (;;) {
    asleep.word.store(encode(stage, rank, ticks));  // again each time: who rings takes it away
    const uint32_t bell = own().doorbell.load();
    const int32_t missing = awaited(rank, stage, ticks);
    if (missing < 0) return;
    check();
    // A rank that left in good order has finished all it took part in, so what is missing will never come.
    if (const int32_t gone = missing_for_good(rank, stage, ticks); gone >= 0) {
      fail_here({FailureCause::kLeft, gone, 0});
      check();
    }
    futex_wait(own().doorbell, bell);
  }
}

int32_t Group::missing_for_good(int32_t rank, Stage stage, uint64_t ticks) const {
  const auto is_gone = [&](int32_t r) { return left(r) && progress(r, stage) < ticks; };
  if (rank != kEveryone) return is_gone(rank) ? rank : -1;
  for (int32_t r = 0; r < world_size_; ++r) {
    if (r != rank_ && is_gone(r)) return r;
  }
  return -1;
}

bool Group::failed() const {
  return aborted_.load() || local_cause_.load() != 0 || segment_.cause().load() != 0;
}

void Group::check() const {
  if (!failed()) return;
  const auto meeting = [&] { return link_ ? link_->meeting() : ""; };
  const auto shared = FailureCause::unpack(segment_.cause().load());
  if (aborted_.load()) {
    if (shared.kind == FailureCause::kNone || shared.kind == FailureCause::kAborted) {
      throw FailureCause{FailureCause::kAborted, rank_, 0}.to_failure(rank_);
    }
    const Failure before = shared.to_failure(rank_, meeting());
    throw Failure(PLIANT_ABORTED, std::string("this rank aborted the communicator, after: ") + before.what())
        .about_rank(before.rank());
  }
  const FailureCause cause = shared.kind != FailureCause::kNone ? shared : FailureCause::unpack(local_cause_.load());
  if (cause.kind == FailureCause::kMismatch && cause.rank == rank_) {
    const std::lock_guard lock(mismatch_mutex_);
    throw Failure(*mismatch_);
  }
  throw cause.to_failure(rank_, meeting());
}

void Group::fail_for_mismatch(int32_t other, const std::string& words) {
  const Failure seen = Failure(PLIANT_INVALID_ARGUMENT, words).about_rank(other);
  {
    const std::lock_guard lock(mismatch_mutex_);  // before anybody can hear of it
    if (!mismatch_) mismatch_.emplace(seen);
  }
  fail({FailureCause::kMismatch, rank_, 0});
  throw Failure(seen);
}

void Group::check_all_there() {
  read_all_.store(true);  // orders what was read before against the looks that follow
  for (int32_t r = 0; r < world_size_; ++r) {
    if (r != rank_ && left(r)) fail({FailureCause::kLeft, r, 0});
  }
  check();
}

void Group::give_up() {
  FailureCause cause = FailureCause::unpack(local_cause_.load());
  if (cause.kind == FailureCause::kDestroyed) {
    cause = {FailureCause::kLeft, rank_, 0};
  } else if (cause.kind != FailureCause::kLeft) {
    cause = {FailureCause::kAborted, rank_, 0};
  }
  fail(cause);
}

void Group::abort() {
  fail({FailureCause::kAborted, rank_, 0});  // before this rank goes on: others may be reading its memory
  aborted_.store(true);
  wake();
}

void Group::fail(FailureCause cause) {
  learn(cause);
  if (link_) link_->failed(cause);
}

void Group::learn(FailureCause cause) {
  uint64_t none = 0;
  segment_.cause().compare_exchange_strong(none, cause.packed());
  wake();
}

void Group::fail_here(FailureCause cause) {
  uint64_t none = 0;
  local_cause_.compare_exchange_strong(none, cause.packed());
  wake();
}

void Group::leave() {
  if (own().state.exchange(kHasLeft) == kHasLeft) return;
  if (!all_joined()) fail({FailureCause::kLeft, rank_, 0});  // those who come would wait for more than there will be
  wake();
  if (link_) link_->left();
}

}  // namespace pliant::accelerator
