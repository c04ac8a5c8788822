// Over 10^5 random configs against brute force; scripts/prove-plans checks as many as one likes.
#include <doctest/doctest.h>

#include "proof.hpp"

namespace {

void prove(const std::string& subject, uint64_t first, uint64_t count) {
  uint64_t planned = 0;
  for (uint64_t number = first; number < first + count; ++number) {
    const proof::Outcome outcome = proof::check(subject, number);
    if (!outcome.counterexample.empty()) FAIL(outcome.counterexample);
    planned += outcome.planned ? 1 : 0;
  }
  CHECK(planned > count / 4);  // the others are refused, as they must be
}

}  // namespace

TEST_CASE("v0.1 plans what brute force plans: configs 0 to 20000") {
  prove("v0.1", 0, 20'000);
}
TEST_CASE("v0.1 plans what brute force plans: configs 20000 to 40000") {
  prove("v0.1", 20'000, 20'000);
}
TEST_CASE("v0.2 plans what brute force plans: configs 0 to 20000") {
  prove("v0.2", 0, 20'000);
}
TEST_CASE("v0.2 plans what brute force plans: configs 20000 to 40000") {
  prove("v0.2", 20'000, 20'000);
}
TEST_CASE("exact plans what brute force plans: configs 0 to 15000") {
  prove("exact", 0, 15'000);
}
TEST_CASE("exact plans what brute force plans: configs 15000 to 30000") {
  prove("exact", 15'000, 15'000);
}
TEST_CASE("numbers up to 2^63 - 1 are planned within the limits or refused: configs 0 to 300") {
  prove("extreme", 0, 300);
}
