// GatherCosts: what gathering each parameter takes on this rank, by the device's clock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pliant/accelerator.hpp"

namespace pliant::sharded {

/// Measures the gathers of one step. One thread at a time.
class GatherCosts {
 public:
  GatherCosts(const Accelerator& accelerator, int32_t device) : accelerator_(accelerator), device_(device) {}

  /// Forgets what was measured; the gathers that follow are measured or not.
  void begin_step(bool measures);
  [[nodiscard]] bool measures() const { return measures_; }
  void begin_gather(Stream& stream);
  void end_gather(Stream& stream, const std::vector<uint32_t>& parameters);
  /// Nanoseconds by parameter, the least of those measured and at least 1: what is more was spent waiting for other
  /// ranks. The parameters of one gather share its time by `bytes`. 0 for one that was not gathered. The stream was
  /// synchronized.
  [[nodiscard]] std::vector<uint64_t> nanoseconds(const std::vector<uint64_t>& bytes) const;

 private:
  struct Measured {
    Event began;
    Event ended;
    std::vector<uint32_t> parameters;
  };
  const Accelerator accelerator_;
  const int32_t device_;
  bool measures_ = false;
  std::vector<Measured> gathers_;
};

}  // namespace pliant::sharded
