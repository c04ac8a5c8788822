// The option min_time, which every policy has: the least time between two resizes that nothing forces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pliant/sdk/elasticity_policy.hpp"

namespace pliant::elasticity {

template <class Policy, class Member>
void add_min_time_option(sdk::Options<Policy>& table, Member member) {
  table
      .add("min_time", member,
           "Least time between two voluntary changes of the world size, such as the return of a lost worker. The death "
           "of a worker is handled at once.")
      .at_least(0)
      .unit("minutes");
}

/// At most what 63 bits hold.
inline int64_t seconds_of(int64_t minutes) {
  return std::min(minutes, INT64_MAX / 60) * 60;
}

}  // namespace pliant::elasticity
