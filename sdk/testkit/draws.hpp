// Draws: what checks draw from the seed of the run, so that a number makes them draw it again.
#pragma once

#include <cstdint>

namespace pliant::testkit {

/// Numbers that depend on nothing but (seed, where) and how many were drawn before.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t where) : seed_(seed), where_(where) {}
  /// 0 .. limit - 1; 0 for a limit of 0.
  uint64_t below(uint64_t limit);
  /// low .. high.
  int64_t between(int64_t low, int64_t high);
  /// From 0 on, below 1.
  double unit();
  bool one_in(uint64_t n) { return below(n) == 0; }

 private:
  uint64_t seed_;
  uint64_t where_;
  uint64_t next_ = 0;
};

}  // namespace pliant::testkit
