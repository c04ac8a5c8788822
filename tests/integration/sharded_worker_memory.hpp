// Memory of a device as the worker of sharded jobs reads and writes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/session.hpp"

namespace pliant::test {

/// Floats of the device as the CPU sees them: where they lie, where it reaches them, else a copy.
class Seen {
 public:
  Seen(Session& session, const float* there, uint64_t count) : stream_(session.stream()) {
    if (session.accelerator().properties(session.device()).host_visible) {
      values_ = {const_cast<float*>(there), count};
      return;
    }
    copy_.resize(count);
    values_ = copy_;
    if (count > 0) stream_.copy(copy_.data(), there, count * sizeof(float));
    stream_.synchronize();
  }
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;
  float& operator[](size_t i) const { return values_[i]; }
  [[nodiscard]] std::span<float> values() const { return values_; }
  /// What was changed here is there.
  void store(float* there) const {
    if (copy_.empty()) return;
    stream_.copy(there, copy_.data(), copy_.size() * sizeof(float));
    stream_.synchronize();
  }

 private:
  Stream& stream_;
  std::vector<float> copy_;
  std::span<float> values_;
};

}  // namespace pliant::test
