// ExactSum by expansions. Needs arithmetic as IEEE 754 has it: no -ffast-math here.
#include "elastic/exact_sum.hpp"

#include <cmath>
#include <utility>

namespace pliant::elastic {

void ExactSum::add(double value) {
  size_t kept = 0;
  for (size_t i = 0; i < parts_.size() && std::isfinite(value); ++i) {
    double part = parts_[i];
    if (std::abs(value) < std::abs(part)) std::swap(value, part);
    const double sum = value + part;
    const double rest = part - (sum - value);
    if (rest != 0 && std::isfinite(sum)) parts_[kept++] = rest;
    value = sum;
  }
  if (!std::isfinite(value)) {
    not_finite_ += value;
    return parts_.clear();
  }
  parts_.resize(kept);
  if (value != 0) parts_.push_back(value);
}

void ExactSum::add_product(double value, double factor) {
  const double product = value * factor;
  add(product);
  if (!std::isfinite(product)) return;
  const double rest = std::fma(value, factor, -product);
  if (rest != 0) add(rest);
}

void ExactSum::add(std::span<const double> parts) {
  for (const double part : parts) add(part);
}

std::vector<double> ExactSum::parts() const {
  if (not_finite_ != 0) return {not_finite_};
  std::vector<double> made;
  if (parts_.empty()) return made;
  double sum = parts_.back();
  for (size_t i = parts_.size() - 1; i > 0; --i) {  // each is larger than all below it together
    const double above = sum;
    const double part = parts_[i - 1];
    sum = above + part;
    const double rest = part - (sum - above);
    if (rest == 0) continue;
    made.push_back(sum);
    sum = rest;
  }
  made.push_back(sum);
  return made;
}

double ExactSum::value() const {
  if (not_finite_ != 0) return not_finite_;  // NaN is not 0 either
  if (parts_.empty()) return 0;
  size_t i = parts_.size() - 1;
  double sum = parts_[i];
  double rest = 0;
  while (i > 0) {
    const double above = sum;
    const double part = parts_[--i];
    sum = above + part;
    rest = part - (sum - above);
    if (rest != 0) break;
  }
  // A tie that the parts below break the other way.
  if (i > 0 && ((rest < 0 && parts_[i - 1] < 0) || (rest > 0 && parts_[i - 1] > 0))) {
    const double twice = rest * 2;
    const double other = sum + twice;
    if (twice == other - sum) sum = other;
  }
  return sum;
}

}  // namespace pliant::elastic
