// The thread of a stream, and events.
#include "common/cpu/stream.hpp"

#include <sched.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

namespace pliant::accelerator {

using sdk::Failure;

namespace {

/// After so many collectives that somebody waited for soon, the stream's thread does not begin the next one: changing
/// to it and back takes longer than a small collective. It looks by itself instead, after Patience::grace, as long as
/// more come.
constexpr int32_t kHabit = 4;
constexpr int32_t kStrongHabit = 2 * kHabit;  ///< one that a single late wait does not end

/// How often a thread leaves its processor to the others before it sleeps: about 60 us if no other wants it, as long as
/// it takes to wake a thread whose processor has halted.
constexpr int kYieldsBeforeSleep = 200;

/// Waits a little, unlocked, for what `has_come` reads without the lock. Nobody finds the lock taken by this before
/// that has come.
template <typename HasCome>
void stay_awake(std::unique_lock<std::mutex>& lock, const HasCome& has_come) {
  if (has_come()) return;
  lock.unlock();
  for (int i = 0; i < kYieldsBeforeSleep; ++i) {
    if (has_come() && lock.try_lock()) return;
    ::sched_yield();
  }
  lock.lock();
}

}  // namespace

void FailureSlot::put(const Failure& failure) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::make_shared<const Failure>(failure);
}

std::shared_ptr<const Failure> FailureSlot::peek() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void FailureSlot::forget(const std::shared_ptr<const Failure>& told) {
  const std::lock_guard lock(mutex_);
  if (failure_ == told) failure_.reset();
}

void Mark::reach() {
  const std::lock_guard lock(mutex_);
  failure_ = failures_->peek();
  time_ = std::chrono::steady_clock::now();
  reached_.store(true);
  reached_cv_->notify_all();
}

bool Mark::reached() const {
  return reached_.load();
}

std::chrono::steady_clock::time_point Mark::time() const {
  const std::lock_guard lock(mutex_);
  if (!reached_) throw Failure(PLIANT_FAILED_PRECONDITION, "the event has not been reached yet; synchronize first");
  return time_;
}

void Mark::wait() const {
  std::unique_lock lock(mutex_);
  stay_awake(lock, [this] { return reached(); });
  reached_cv_->wait(lock, [this] { return reached(); });
}

void Mark::throw_failure() const {
  std::shared_ptr<const Failure> failure;
  {
    const std::lock_guard lock(mutex_);
    failure = failure_;
  }
  if (!failure) return;
  failures_->forget(failure);
  throw Failure(*failure);
}

bool Mark::has_failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

Stream::Stream(std::shared_ptr<Faults> faults, uint64_t index, sdk::StreamRole role, Patience patience)
    : faults_(std::move(faults)), index_(index), patience_(patience), owner_(this_process()) {
  if (faults_) faults_->opened(index, role);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot create a thread for a stream: ") + refused.what());
  }
}

Stream::~Stream() {
  if (this_process() != owner_) {  // a forked child has no such thread
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    enqueued_cv_->notify_all();
  }
  thread_.join();
}

std::shared_ptr<Moment> Stream::enqueue(std::function<void()> work, Piece piece, bool can_lie) {
  require_own(owner_, "stream");
  std::unique_lock lock(mutex_);
  const WorkKind kind = piece.kind;
  std::shared_ptr<Moment> moment;
  if (faults_) moment = faults_->enqueued(index_, enqueued_, std::move(piece));
  const bool collective = kind == WorkKind::kCollective;
  queue_.push_back({std::move(work), kind, moment, collective ? Clock::now() : Clock::time_point{}});
  last_moment_ = moment;
  ++enqueued_;
  bool wakes = false;
  if (collective && habit_ >= kHabit) {
    wakes = expect();
  } else if (!can_lie || faults_ || hurried_) {
    wakes = hurry();
  }
  lock.unlock();  // whoever is woken begins with the lock
  if (wakes) enqueued_cv_->notify_all();
  return moment;
}

std::shared_ptr<const Moment> Stream::last_moment() const {
  const std::lock_guard lock(mutex_);
  return last_moment_;
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    await_work(lock);
    idle_ = false;
    if (queue_.empty()) return;
    run_first(lock);
  }
}

void Stream::await_work(std::unique_lock<std::mutex>& lock) {
  stay_awake(lock, [this] { return hurried_ || closing_; });
  while (running_ || !(closing_ || (hurried_ && !queue_.empty()))) {
    idle_ = true;
    if (!watching_) {
      enqueued_cv_->wait(lock);
      continue;
    }
    const uint64_t seen = enqueued_;
    if (enqueued_cv_->wait_for(lock, patience_.grace) == std::cv_status::no_timeout) continue;
    if (finished_ < seen && !running_) {  // nobody came for what was there when the thread last looked
      hurried_ = true;
      habit_ = 0;
    }
    watching_ = enqueued_ != seen;
  }
  watching_ = false;
}

bool Stream::hurry() {
  hurried_ = true;
  return std::exchange(idle_, false);
}

bool Stream::expect() {
  if (hurried_ || std::exchange(watching_, true)) return false;
  return std::exchange(idle_, false);
}

void Stream::learn(Clock::time_point enqueued) {
  if (enqueued == Clock::time_point{}) return;
  habit_ = Clock::now() - enqueued <= patience_.soon ? std::min(habit_ + 1, kStrongHabit) : habit_ / 2;
}

void Stream::run_first(std::unique_lock<std::mutex>& lock) {
  std::function<void()> work = std::move(queue_.front().work);
  const std::shared_ptr<Moment> moment = std::move(queue_.front().moment);
  const WorkKind kind = queue_.front().kind;
  running_from_ = queue_.front().enqueued;
  queue_.pop_front();
  const uint64_t number = finished_;
  running_ = true;
  lock.unlock();
  try {
    if (faults_ && !faults_->before_work(index_, number, kind, moment.get())) throw faults_->loss();
    work();
  } catch (const Failure& failure) {
    failures_->put(failure);
  } catch (const std::bad_alloc&) {
    failures_->put(Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory in enqueued work"));
  } catch (const std::exception& other) {
    failures_->put(Failure(PLIANT_INTERNAL, other.what()));
  }
  work = nullptr;  // what it holds must not outlive its turn
  if (faults_) faults_->after_work(index_, number);
  lock.lock();
  running_ = false;
  ++finished_;
  if (queue_.empty()) hurried_ = false;
  if (finished_ < wake_at_) return;
  wake_at_ = UINT64_MAX;
  finished_cv_->notify_all();
}

bool Stream::may_help() const {
  if (faults_ || running_ || queue_.empty()) return false;
  const WorkKind kind = queue_.front().kind;
  return kind == WorkKind::kCollective || kind == WorkKind::kEventWait || kind == WorkKind::kRecord;
}

void Stream::synchronize() {
  require_own(owner_, "stream");
  {
    std::unique_lock lock(mutex_);
    const uint64_t target = enqueued_;
    bool helped = false;
    if (finished_ < target && !faults_) learn(running_ ? running_from_ : queue_.front().enqueued);
    while (finished_ < target) {
      if (may_help()) {
        run_first(lock);
        helped = true;
        continue;
      }
      if (!running_ && hurry()) enqueued_cv_->notify_all();  // what is next is not for us
      stay_awake(lock, [this, target] { return finished_ >= target; });
      if (finished_ >= target) break;
      wake_at_ = std::min(wake_at_, target);
      finished_cv_->wait(lock);
    }
    if (helped && (closing_ || !queue_.empty()) && hurry()) enqueued_cv_->notify_all();
  }
  const auto failure = failures_->peek();
  if (!failure) return;
  failures_->forget(failure);
  throw Failure(*failure);
}

bool Stream::query() {
  require_own(owner_, "stream");
  const std::lock_guard lock(mutex_);
  if (!hurried_ && !queue_.empty() && hurry()) enqueued_cv_->notify_all();
  return finished_ == enqueued_;
}

std::shared_ptr<Mark> Stream::mark(std::function<void(const Mark&)> then) {
  auto made = std::make_shared<Mark>(failures_);
  if (is_idle()) {
    made->reach();
    if (then) then(*made);
    return made;
  }
  made->set_moment(enqueue(
      [made, then = std::move(then)] {
        made->reach();
        if (then) then(*made);
      },
      {.kind = WorkKind::kRecord}));
  return made;
}

bool Stream::is_idle() const {
  require_own(owner_, "stream");
  const std::lock_guard lock(mutex_);
  return !faults_ && !running_ && queue_.empty();
}

void Stream::wait_for(const std::shared_ptr<Mark>& mark) {
  if (!faults_ && mark->reached()) return require_own(owner_, "stream");
  enqueue([mark] { mark->wait(); },
          {.kind = WorkKind::kEventWait, .passable = [mark] { return mark->reached(); }, .after = mark->moment()},
          true);
}

Event::~Event() {
  if (shared_ && shared_->is_own()) shared_->retire();
}

Event::Latest Event::latest() const {
  const std::lock_guard lock(mutex_);
  if (!shared_) return {mark_, {}};
  const SharedEvent::Recording last = shared_->latest();
  if (last.number == number_) return {mark_, {}};
  return {nullptr, last};
}

std::chrono::steady_clock::time_point Event::time(const char* which) const {
  const auto mark = latest().mark;
  if (!timing_ || !mark) {
    throw Failure(PLIANT_FAILED_PRECONDITION, std::string("the ") + which + " event " +
                                                  (timing_ ? "was never recorded" : "was made without timing"));
  }
  return mark->time();
}

double Event::elapsed(const Event& begin, const Event& end) {
  return std::chrono::duration<double>(end.time("last") - begin.time("first")).count();
}

void Event::record(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (!shared_) {
    mark_ = stream.mark();
    return;
  }
  const SharedEvent::Recording recording = shared_->record();
  const auto tell = [shared = shared_, recording](bool failed) {
    shared->set(recording, failed ? SharedEvent::State::kFailed : SharedEvent::State::kReached);
  };
  try {
    mark_ = stream.mark([tell](const Mark& mark) { tell(mark.has_failed()); });
  } catch (...) {
    tell(true);
    throw;
  }
  number_ = recording.number;
}

bool Event::query() const {
  const Latest last = latest();
  if (last.foreign.number == 0) {
    if (!last.mark || last.mark->reached()) return true;
    require_own(owner_, "event");
    return false;
  }
  shared_->watch_recorder(last.foreign);
  return SharedEvent::is_over(shared_->state(last.foreign));
}

void Event::synchronize() const {
  const Latest last = latest();
  if (last.foreign.number != 0) SharedEvent::require_reached(last.foreign, shared_->wait(last.foreign, true));
  if (!last.mark) return;
  if (!last.mark->reached()) require_own(owner_, "event");
  last.mark->wait();
  last.mark->throw_failure();
}

std::shared_ptr<const Moment> Event::moment() const {
  const auto mark = latest().mark;
  return mark ? mark->moment() : nullptr;
}

void Event::make_wait(Stream& stream) const {
  const Latest last = latest();
  if (last.mark) stream.wait_for(last.mark);
  if (last.foreign.number == 0) return;
  const auto over = [shared = shared_, recording = last.foreign] {
    return SharedEvent::is_over(shared->state(recording));
  };
  stream.enqueue([shared = shared_,
                  recording = last.foreign] { SharedEvent::require_reached(recording, shared->wait(recording, true)); },
                 {.kind = WorkKind::kEventWait, .passable = over});
}

}  // namespace pliant::accelerator
