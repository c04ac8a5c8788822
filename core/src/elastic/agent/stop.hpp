// How a job is told to end from outside: signals, while the job has them, and the calls of a JobStop.
#pragma once

#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "pliant/job.hpp"

namespace pliant {

struct JobStop::State {
  FileDescriptor calls;  ///< an eventfd that counts them
};

namespace elastic {

/// SIGINT, SIGTERM and SIGHUP as events of a loop, from take() until the end of this object, when the handlers that the
/// program had are put back. They are the whole process's, so only a program that asks for it gets this.
class StopSignals {
 public:
  explicit StopSignals(boost::asio::io_context& loop) : signals_(loop) {}
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// SIGHUP stays ignored where it is, as under nohup. `heard` gets the number of each signal.
  void take(std::function<void(int)> heard);

 private:
  void wait();

  boost::asio::signal_set signals_;
  std::function<void(int)> heard_;
  std::vector<std::pair<int, struct sigaction>> before_;
};

/// The calls of a JobStop as events of a loop.
class StopCalls {
 public:
  explicit StopCalls(boost::asio::io_context& loop) : end_(loop) {}

  /// `heard` is called once for each call of stop.request(). kResourceExhausted without a descriptor.
  Result<> listen(const JobStop& stop, std::function<void()> heard);

 private:
  void wait();

  boost::asio::posix::stream_descriptor end_;
  std::function<void()> heard_;
};

}  // namespace elastic
}  // namespace pliant
