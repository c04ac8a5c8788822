// A call waits in its stream by a host function.
#include "collectives/deferred_calls.hpp"

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "collectives/peers/peer_watch.hpp"

namespace pliant::collectives {

using sdk::Failure;

namespace {

/// How soon the end of a call is noticed by a thread that also watches.
constexpr std::chrono::microseconds kAskStreamEvery{200};

}  // namespace

/// One call, until its stream has gone on.
struct DeferredCalls::Job {
  Job(const Called& on, int32_t device_index, Body what, pliant_stream* caller)
      : body(std::move(what)), stream(caller), begin(sdk::make_event(on.slots, device_index)) {}

  const Body body;
  pliant_stream* const stream;
  /// Behind what the stream had before the call. Ends on no thread of the plugin's: what a stream runs must not call
  /// it.
  sdk::OwnedEvent begin;
  bool is_done = false;  ///< under mutex_
};

/// What the stream of a call waits with.
struct DeferredCalls::Awaited {
  DeferredCalls& calls;
  std::shared_ptr<Job> job;
};

void DeferredCalls::await(void* context) {
  DeferredCalls* calls = nullptr;
  {
    const std::unique_ptr<Awaited> awaited(static_cast<Awaited*>(context));
    calls = &awaited->calls;
    std::unique_lock lock(calls->mutex_);
    calls->changed_.wait(lock, [&] { return awaited->job->is_done; });
  }
  --calls->waiting_;  // from here on it may be gone
}

void DeferredCalls::start() {
  if (thread_.joinable()) return;
  stream_ = sdk::make_stream(device_.slots, device_index_, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_HIGH);
  is_open_ = true;
  thread_ = std::thread([this] { run(); });
}

void DeferredCalls::add(Body body, pliant_stream* stream) {
  start();
  auto job = std::make_shared<Job>(device_, device_index_, std::move(body), stream);
  device_.slots.must(&pliant_accelerator::event_record, job->begin, stream);
  auto awaited = std::make_unique<Awaited>(Awaited{*this, job});
  ++waiting_;
  try {
    device_.slots.must(&pliant_accelerator::host_function, &DeferredCalls::await, static_cast<void*>(awaited.get()),
                       stream);
  } catch (...) {
    --waiting_;
    throw;
  }
  static_cast<void>(awaited.release());  // await() deletes it
  const std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

bool DeferredCalls::is_empty() const {
  const std::lock_guard lock(mutex_);
  return jobs_.empty() && !is_carrying_;
}

void DeferredCalls::run() {
  work_.begin();
  while (const std::shared_ptr<Job> job = next()) {
    try {
      carry_out(*job);
    } catch (const Failure& failure) {
      work_.failed(failure, job->stream);
    } catch (const std::exception& failure) {
      work_.failed(Failure(PLIANT_INTERNAL, std::string("a collective failed: ") + failure.what()), job->stream);
    }
    job->begin.reset();
    const std::lock_guard lock(mutex_);
    job->is_done = true;
    is_carrying_ = false;
    changed_.notify_all();
  }
}

std::shared_ptr<DeferredCalls::Job> DeferredCalls::next() {
  const auto has_come = [&] { return !jobs_.empty() || !is_open_; };
  bool watches = true;
  std::unique_lock lock(mutex_);
  while (work_.has_watch() && watches && !changed_.wait_for(lock, PeerWatch::kLookEvery, has_come)) {
    lock.unlock();
    watches = work_.watch();
    lock.lock();
  }
  changed_.wait(lock, has_come);
  if (jobs_.empty()) return nullptr;
  std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  is_carrying_ = true;
  return job;
}

void DeferredCalls::carry_out(const Job& job) {
  work_.before_call();
  device_.slots.must(&pliant_accelerator::stream_wait_event, stream_, job.begin);
  try {
    job.body(stream_);
  } catch (const Failure& failure) {
    work_.refused(failure);
    static_cast<void>(device_.slots.ask(&pliant_accelerator::stream_synchronize, stream_));
    throw;
  }
  await_stream();
  work_.after_call();
}

/// Watches meanwhile where that is called for; then at the cost of some delay, of the first calls only.
void DeferredCalls::await_stream() {
  bool watches = work_.has_watch();
  int32_t is_idle = 0;
  for (int looks = 1; watches; ++looks) {
    device_.slots.must(&pliant_accelerator::stream_query, stream_, &is_idle);
    if (is_idle != 0) break;
    std::this_thread::sleep_for(kAskStreamEvery);  // a stream cannot be waited for with a limit
    if (looks % (PeerWatch::kLookEvery / kAskStreamEvery) == 0) watches = work_.watch();
  }
  device_.slots.must(&pliant_accelerator::stream_synchronize, stream_);
}

void DeferredCalls::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_open_ = false;
    changed_.notify_all();
  }
  thread_.join();
  stream_.reset();
}

}  // namespace pliant::collectives
