// The two sums that gradient noise is measured with, averaged over steps.
//
// The mean gradient of a batch of size B has E|g|^2 = G2 + S / B: G2 is the squared norm of the true gradient, S the
// trace of the covariance of the gradient of one unit. Two sizes give unbiased estimates of both (McCandlish et al.
// 2018, arXiv 1812.06162, appendix A.1, eq. A.1 and A.2):
//   G2 = (Bb gb - Bs gs) / (Bb - Bs),   S = (gs - gb) / (1/Bs - 1/Bb).
#pragma once

#include <algorithm>
#include <cmath>

#include "pliant/sdk/lr_rule.hpp"
#include "saved.hpp"

namespace pliant::lr {

/// Exponential averages of both, each divided by the weight that it has gathered so far, so that the first steps are
/// not pulled to 0.
class NoiseAverage {
 public:
  [[nodiscard]] bool empty() const { return weight_ <= 0; }
  /// At least 0: single estimates may be below, their averages are noise then.
  [[nodiscard]] double g2() const { return empty() ? 0 : std::max(0.0, g2_ / weight_); }
  [[nodiscard]] double s() const { return empty() ? 0 : std::max(0.0, s_ / weight_); }
  /// S / G2, the batch at which noise and signal are equal (B_simple, eq. 2.9). The largest finite number when no
  /// signal is left.
  [[nodiscard]] double noise_batch(double largest) const {
    const double signal = g2();
    if (s() <= 0) return 0;
    return signal > 0 ? std::min(largest, s() / signal) : largest;
  }

  /// `memory` in [0, 1): what is kept of the past. A step without norms changes nothing. Throws for norms that are not
  /// finite.
  void add(const sdk::LrCommitted& step, double memory) {
    if (!step.has_norms()) return;
    const double g2 =
        (step.big_batch * step.big_norm - step.small_batch * step.small_norm) / (step.big_batch - step.small_batch);
    const double s = (step.small_norm - step.big_norm) / (1 / step.small_batch - 1 / step.big_batch);
    NoiseAverage next = *this;
    next.g2_ = memory * g2_ + (1 - memory) * g2;
    next.s_ = memory * s_ + (1 - memory) * s;
    next.weight_ = memory * weight_ + (1 - memory);
    if (!std::isfinite(next.g2_) || !std::isfinite(next.s_)) {
      throw sdk::Failure(PLIANT_OUT_OF_RANGE, "the squared gradient norms " + std::to_string(step.small_norm) +
                                                  " and " + std::to_string(step.big_norm) + " are not finite");
    }
    *this = next;
  }

  void save(const sdk::Writer& out) const {
    out.value(g2_);
    out.value(s_);
    out.value(weight_);
  }
  [[nodiscard]] static NoiseAverage read(const sdk::Reader& in) {
    constexpr double kLowest = -1.7976931348623157e308;
    NoiseAverage read;
    read.g2_ = read_number(in, kLowest);
    read.s_ = read_number(in, kLowest);
    read.weight_ = read_number(in);
    return read;
  }

 private:
  double g2_ = 0;
  double s_ = 0;
  double weight_ = 0;
};

/// What a rule is saved as that keeps averages and nothing else. `Rule` has kMagic and kVersion.
template <class Rule>
struct KeepsNoise {
  NoiseAverage noise;

  void save(const sdk::Writer& out) const {
    write_frame(out, Rule::kMagic, Rule::kVersion);
    noise.save(out);
  }
  void load(const sdk::Reader& in) {
    read_frame(in, Rule::kMagic, Rule::kVersion);
    const NoiseAverage read = NoiseAverage::read(in);
    in.expect_end();
    noise = read;
  }
};

}  // namespace pliant::lr
