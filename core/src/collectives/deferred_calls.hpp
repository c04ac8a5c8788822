// DeferredCalls: calls that a thread of the communicator carries out, one after the other, on a stream of its own.
//
// Where the device has memory that other processes map, what a call does is decided after it was made: the ranks agree,
// on that thread, whether all of them can. The call returns at once, and waits in its stream until the thread has
// carried it out. The same where the accelerator has collectives of its own that take part only if no two ranks share a
// device; once that is agreed, calls go to them directly.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/peers/called.hpp"

namespace pliant::collectives {

/// Lives until is_idle().
class DeferredCalls {
 public:
  /// Enqueues what a call does on the stream that it is given.
  using Body = std::function<void(pliant_stream* on)>;

  /// What the communicator does on the thread. What throws does so as sdk::Failure or std::exception.
  class Work {
   public:
    virtual ~Work() = default;
    /// First of all.
    virtual void begin() = 0;
    /// Before a call is carried out. May throw: then it is not.
    virtual void before_call() = 0;
    /// A body has thrown; what it enqueued ends with the communicator.
    virtual void refused(const sdk::Failure& failure) = 0;
    /// What a call enqueued has run. May throw: then the call has failed.
    virtual void after_call() = 0;
    /// A call that was made on `stream` has failed.
    virtual void failed(const sdk::Failure& failure, pliant_stream* stream) = 0;
    /// There are peers to watch while the thread has nothing else to do.
    [[nodiscard]] virtual bool has_watch() const = 0;
    /// Every PeerWatch::kLookEvery. False: not any more.
    virtual bool watch() = 0;
  };

  /// Both outlive this.
  DeferredCalls(const Called& device, int32_t device_index, Work& work)
      : device_(device), device_index_(device_index), work_(work) {}
  ~DeferredCalls() { stop(); }
  DeferredCalls(const DeferredCalls&) = delete;
  DeferredCalls& operator=(const DeferredCalls&) = delete;

  /// Starts the thread unless it runs. One thread at a time, as add().
  void start();
  /// A call on `stream`, which goes on when the call has been carried out.
  void add(Body body, pliant_stream* stream);
  /// No call is left that the thread carries out.
  [[nodiscard]] bool is_empty() const;
  /// No stream waits for one.
  [[nodiscard]] bool is_idle() const { return waiting_.load() == 0; }
  [[nodiscard]] bool is_own(pliant_stream* stream) const { return stream == stream_; }
  /// Once idle for good: ends the thread.
  void stop();

 private:
  struct Job;
  struct Awaited;
  static void await(void* context);
  void run();
  /// The next call that the thread carries out; NULL: it is to end.
  std::shared_ptr<Job> next();
  void carry_out(const Job& job);
  void await_stream();

  const Called& device_;
  const int32_t device_index_;
  Work& work_;
  sdk::OwnedStream stream_;
  std::atomic<uint64_t> waiting_{0};  ///< streams that wait for a call
  mutable std::mutex mutex_;          ///< of all below but the thread
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool is_open_ = false;
  bool is_carrying_ = false;  ///< a job is not done
  std::thread thread_;
};

}  // namespace pliant::collectives
