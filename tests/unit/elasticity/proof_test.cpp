// Over 10^5 random configs against brute force; scripts/prove-plans checks as many as one likes.
#include <doctest/doctest.h>

#include "proof.hpp"

namespace {

constexpr uint64_t kSlice = 10'000;  // a test case is done in time under every sanitizer

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

TEST_CASE("v0.1 plans what brute force plans: configs from 0") {
  prove("v0.1", 0, kSlice);
}
TEST_CASE("v0.1 plans what brute force plans: configs from 10000") {
  prove("v0.1", 10'000, kSlice);
}
TEST_CASE("v0.1 plans what brute force plans: configs from 20000") {
  prove("v0.1", 20'000, kSlice);
}
TEST_CASE("v0.1 plans what brute force plans: configs from 30000") {
  prove("v0.1", 30'000, kSlice);
}
TEST_CASE("v0.2 plans what brute force plans: configs from 0") {
  prove("v0.2", 0, kSlice);
}
TEST_CASE("v0.2 plans what brute force plans: configs from 10000") {
  prove("v0.2", 10'000, kSlice);
}
TEST_CASE("v0.2 plans what brute force plans: configs from 20000") {
  prove("v0.2", 20'000, kSlice);
}
TEST_CASE("v0.2 plans what brute force plans: configs from 30000") {
  prove("v0.2", 30'000, kSlice);
}
TEST_CASE("exact plans what brute force plans: configs from 0") {
  prove("exact", 0, kSlice);
}
TEST_CASE("exact plans what brute force plans: configs from 10000") {
  prove("exact", 10'000, kSlice);
}
TEST_CASE("exact plans what brute force plans: configs from 20000") {
  prove("exact", 20'000, kSlice);
}
TEST_CASE("numbers up to 2^63 - 1 are planned within the limits or refused") {
  prove("extreme", 0, 300);
}
