// ExactSum: a sum of doubles without rounding, until it is asked for.
#pragma once

#include <span>
#include <vector>

namespace pliant::elastic {

/// Shewchuk, "Adaptive Precision Floating-Point Arithmetic" (1997): the sum is kept as doubles that do not overlap, a
/// few of them for values of similar size.
class ExactSum {
 public:
  void add(double value);
  /// The product is exact, too, unless it is subnormal.
  void add_product(double value, double factor);
  /// All of another sum.
  void add(std::span<const double> parts);
  /// As add() takes it, descending: the sum, rounded, then what is missing, rounded, and so on; 42 at most. One that is
  /// not finite stands for all. Empty: nothing was added, or it is 0.
  [[nodiscard]] std::vector<double> parts() const;
  /// Rounded to nearest, ties to even.
  [[nodiscard]] double value() const;

 private:
  std::vector<double> parts_;  ///< ascending by magnitude
  double not_finite_ = 0;      ///< sum of what is not; infinite also where the sum went past all doubles
};

}  // namespace pliant::elastic
