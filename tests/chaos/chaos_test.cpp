// Jobs that are disturbed from outside lose nothing that they need not lose. ctest plays a few; scripts/soak many.
// PLIANT_SOAK_JOBS, PLIANT_SOAK_SEED, PLIANT_SOAK_ONLY (kinds, with commas between): which jobs. PLIANT_SOAK_REPLAY:
// one.
#include <doctest/doctest.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "chaos/soak.hpp"

using namespace pliant::test;

namespace {

std::string setting(const char* name, const char* otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : text;
}

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

TEST_CASE("whatever is done to a job from outside, it loses nothing that it need not lose") {
  if (const std::string one = setting("PLIANT_SOAK_REPLAY", ""); !one.empty()) {
    CHECK(replay(one));
    return;
  }
  SoakOrder order;
  order.jobs = std::stoll(setting("PLIANT_SOAK_JOBS", "8"));
  order.first_seed = static_cast<uint32_t>(std::stoul(setting("PLIANT_SOAK_SEED", "1")));
  order.only = parts_of(setting("PLIANT_SOAK_ONLY", ""));
  const std::vector<Tally> tallies = soak(order);
  std::cout << table_of(tallies);
  int64_t blows = 0;
  for (const Tally& row : tallies) {
    CHECK_MESSAGE(row.failed == 0, row.kind);
    blows += row.blows;
  }
  CHECK(blows > 0);
}
