// ShareClock: how long a rank computed its share of a step, and what the share was.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "balance/costs.hpp"
#include "elastic/message.hpp"

namespace pliant::elastic {

class ShareClock {
 public:
  using Microseconds = std::chrono::microseconds;
  /// `now`: time since any moment, monotonic.
  explicit ShareClock(std::function<Microseconds()> now = steady) : now_(std::move(now)) {}

  /// The step that starts next says nothing of costs.
  void skip_next() { skip_ = true; }
  void start() {
    skipped_ = std::exchange(skip_, false);
    shape_ = {};
    began_ = ended_ = now_();
  }
  void computed(const balance::Shape& shape) {
    shape_.tokens += shape.tokens;
    shape_.squares += shape.squares;
  }
  void stop() { ended_ = now_(); }
  [[nodiscard]] ShareTime time() const {
    if (skipped_) return {};
    return {static_cast<int64_t>(shape_.tokens), static_cast<double>(shape_.squares), (ended_ - began_).count()};
  }

 private:
  static Microseconds steady() {
    return std::chrono::duration_cast<Microseconds>(std::chrono::steady_clock::now().time_since_epoch());
  }

  std::function<Microseconds()> now_;
  bool skip_ = false;
  bool skipped_ = false;
  balance::Shape shape_;
  Microseconds began_{0};
  Microseconds ended_{0};
};

}  // namespace pliant::elastic
