// Draws over the one function that every number comes from.
#include "testkit/draws.hpp"

#include "testkit/values.hpp"

namespace pliant::testkit {

uint64_t Draws::below(uint64_t limit) {
  return limit == 0 ? 0 : drawn(seed_, where_, next_++) % limit;
}

int64_t Draws::between(int64_t low, int64_t high) {
  const uint64_t width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  const uint64_t above = width == UINT64_MAX ? drawn(seed_, where_, next_++) : below(width + 1);
  return static_cast<int64_t>(static_cast<uint64_t>(low) + above);
}

double Draws::unit() {
  constexpr uint64_t kGrid = uint64_t{1} << 53U;
  return static_cast<double>(below(kGrid)) / static_cast<double>(kGrid);
}

}  // namespace pliant::testkit
