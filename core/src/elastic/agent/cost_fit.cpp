// CostFit: normal equations with forgetting, and the best point of the quadrant a, b >= 0.
#include "elastic/agent/cost_fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pliant::elastic {

namespace {

constexpr double kLargestRate = 1099511627776.0;  // 2^40
/// Below it the two columns are the same up to a factor, as far as doubles can tell.
constexpr double kLeastDeterminant = 1e-12;

CostRates whole(double per_token, double per_square) {
  const double scale = kLargestRate / std::max(per_token, per_square);
  return {std::llround(per_token * scale), std::llround(per_square * scale)};
}

}  // namespace

void CostFit::add(const ShareTime& share) {
  const auto x = static_cast<double>(share.tokens);
  const double y = share.squares;
  const auto t = static_cast<double>(share.microseconds);
  if (x <= 0 || t <= 0 || !std::isfinite(y) || y <= 0) return;
  shares_ += 1;
  x_ += x;
  y_ += y;
  xx_ += x * x;
  xy_ += x * y;
  yy_ += y * y;
  xt_ += x * t;
  yt_ += y * t;
  tt_ += t * t;
}

bool CostFit::end_step() {
  bool changed = false;
  const Costs costs = solved();
  if (shares_ >= kFewestShares && costs.per_token + costs.per_square > 0 && uncertainty(costs) < kNoticed) {
    const double part = part_of_squares(costs.per_token, costs.per_square);
    const double before =
        part_of_squares(static_cast<double>(rates_.per_token), static_cast<double>(rates_.per_square));
    changed = std::abs(part - before) > kNoticed;
    if (changed) rates_ = whole(costs.per_token, costs.per_square);
  }
  for (double* sum : {&shares_, &x_, &y_, &xx_, &xy_, &yy_, &xt_, &yt_, &tt_}) *sum *= kKept;
  return changed;
}

CostFit::Costs CostFit::solved() const {
  const double determinant = xx_ * yy_ - xy_ * xy_;
  if (!(determinant > kLeastDeterminant * xx_ * yy_)) return {};
  const Costs free{(xt_ * yy_ - yt_ * xy_) / determinant, (yt_ * xx_ - xt_ * xy_) / determinant};
  // The sum of squares is convex: where the free minimum has a negative cost, the best allowed point has a 0 there.
  if (free.per_token < 0) return {0, yt_ / yy_};
  if (free.per_square < 0) return {xt_ / xx_, 0};
  return free;
}

double CostFit::uncertainty(const Costs& costs) const {
  const double determinant = xx_ * yy_ - xy_ * xy_;
  const double infinite = std::numeric_limits<double>::infinity();
  if (!(determinant > kLeastDeterminant * xx_ * yy_) || shares_ <= 2) return infinite;
  const double a = costs.per_token;
  const double b = costs.per_square;
  const double left = tt_ - 2 * (a * xt_ + b * yt_) + a * a * xx_ + 2 * a * b * xy_ + b * b * yy_;
  const double variance = std::max(left, 0.0) / (shares_ - 2);
  const double error_of_b = std::sqrt(variance * xx_ / determinant);
  const double time = a * x_ + b * y_;
  return time > 0 ? error_of_b * y_ / time : infinite;
}

double CostFit::part_of_squares(double per_token, double per_square) const {
  const double squares = per_square * y_;
  return squares / (per_token * x_ + squares);
}

}  // namespace pliant::elastic
