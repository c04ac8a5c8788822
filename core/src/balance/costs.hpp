// Shape: what the cost of rows is computed from, in integers that cannot overflow.
#pragma once

#include <cstdint>
#include <vector>

#include "data/pieces.hpp"
#include "pliant/balancer.hpp"

namespace pliant::balance {

__extension__ typedef unsigned __int128 Wide;

/// Sums over sequences, or over pieces, which attend to themselves only. They stop at bounds that no rate can carry
/// past 128 bits: 2^62 tokens, 2^86 squares.
struct Shape {
  Wide tokens = 0;
  Wide squares = 0;
  void add(int64_t length);
};

Shape shape_of(const data::Entries& entries, const Dataset& dataset);

/// `rates` as check_rates wants them.
Wide cost_of(const Shape& shape, CostRates rates);
/// Throws kInvalidArgument for rates outside 0..2^40, and for two zeros.
void check_rates(CostRates rates);
/// The same ratios in 64 bits: divided by one power of two, so that the sum is below 2^62.
std::vector<int64_t> fitting(const std::vector<Wide>& costs);

}  // namespace pliant::balance
