// CostFit: what a token and a squared length cost, from the times that ranks took for their shares.
#pragma once

#include <cstdint>
#include <optional>

#include "elastic/message.hpp"
#include "pliant/balancer.hpp"

namespace pliant::elastic {

/// Least squares of microseconds = a * tokens + b * squares with a, b >= 0 over the shares of about the last hundred
/// steps: older ones count less and less. Five sums, whatever the number of shares.
class CostFit {
 public:
  explicit CostFit(CostRates given) : rates_(given) {}

  /// One rank's share of the step in hand.
  void add(const ShareTime& share);

  /// Ends a step. True when rates() are others than before: squares take a part of the time of a mean share that
  /// differs by more than kNoticed from the part under the rates before, and the part is known that well.
  bool end_step();

  /// Whole numbers up to 2^40. Those that were given until there is enough to tell better.
  [[nodiscard]] CostRates rates() const { return rates_; }

  static constexpr double kNoticed = 0.05;     ///< of the time of a mean share
  static constexpr double kKept = 0.99;        ///< weight of a step after the next one
  static constexpr double kFewestShares = 32;  ///< weighted

 private:
  struct Costs {
    double per_token = 0;
    double per_square = 0;
  };
  [[nodiscard]] Costs solved() const;
  /// Standard error of the part of the time that squares take; infinite when the shares are too much alike to tell.
  [[nodiscard]] double uncertainty(const Costs& costs) const;
  [[nodiscard]] double part_of_squares(double per_token, double per_square) const;

  CostRates rates_;
  double shares_ = 0;  // weighted sums from here on: 1, x, y, xx, xy, yy, xt, yt, tt; x tokens, y squares, t time
  double x_ = 0;
  double y_ = 0;
  double xx_ = 0;
  double xy_ = 0;
  double yy_ = 0;
  double xt_ = 0;
  double yt_ = 0;
  double tt_ = 0;
};

}  // namespace pliant::elastic
