// What plugin code refuses, and what a refusal costs where nothing is refused.
#include <doctest/doctest.h>

#include <string>

#include "pliant/sdk/failure.hpp"

using pliant::sdk::Failure;
using pliant::sdk::require;

TEST_CASE("a check throws its message, given as text or as a function, when it does not hold") {
  CHECK_THROWS_WITH_AS(require(false, "rank 4 is outside 0..3"), "rank 4 is outside 0..3", Failure);
  CHECK_THROWS_WITH_AS(require(false, std::string("rank 5 is outside 0..3")), "rank 5 is outside 0..3", Failure);
  CHECK_THROWS_WITH_AS(require(false, [] { return std::string("rank 6 is outside 0..3"); }), "rank 6 is outside 0..3",
                       Failure);
}

TEST_CASE("a check that holds does not make its message") {
  int made = 0;
  const auto message = [&] {
    ++made;
    return std::string("never read");
  };
  require(true, message);
  CHECK(made == 0);
  CHECK_THROWS_AS(require(false, message), Failure);
  CHECK(made == 1);
}
