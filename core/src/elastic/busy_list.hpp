// BusyList: what a worker's program does that is no step, and who hears of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "elastic/message.hpp"

namespace pliant::elastic {

/// Thread-safe: a Busy may end on another thread, and after its session.
class BusyList {
 public:
  explicit BusyList(std::function<void(const BusyWith&)> tell) : tell_(std::move(tell)) {}

  /// A number for end(). What began last counts until it ends; then the one before it goes on with the time that it has
  /// left.
  int64_t begin(std::string what, double at_most_s);
  void end(int64_t number);
  /// Nobody hears of anything any more.
  void close();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    int64_t number;
    std::string what;
    Clock::time_point until;
  };
  void tell_of_last() const;

  std::mutex mutex_;
  std::function<void(const BusyWith&)> tell_;
  std::vector<Entry> entries_;  ///< in the order of their begins
  int64_t next_ = 0;
};

}  // namespace pliant::elastic
