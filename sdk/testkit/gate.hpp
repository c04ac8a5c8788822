// Gate: a host function that holds a stream until the check lets it go.
#pragma once

#include <condition_variable>
#include <mutex>

#include "testkit/accelerator.hpp"

namespace pliant::testkit {

/// Declare it after the streams: it opens when it ends, and they wait for their work.
class Gate {
 public:
  Gate() = default;
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  /// Work enqueued on the stream from now on waits for open(). Returns when the stream stands at the gate, so that all
  /// work before it has run.
  void hold(const Accelerator& accelerator, const Stream& stream);
  void open();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool reached = false;
    bool open = false;
  };
  static void stand(void* context);
  /// Lives as long as the process: a plugin may call a host function late, or twice.
  static State& lasting_state();
  State& state_ = lasting_state();
};

}  // namespace pliant::testkit
