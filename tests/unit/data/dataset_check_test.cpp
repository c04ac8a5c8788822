// Which data sets are refused.
#include <doctest/doctest.h>

#include "data/epoch_plan.hpp"

using namespace pliant;

namespace {

Error refused(const Dataset& dataset) {
  const auto checked = data::check_dataset(dataset);
  REQUIRE_FALSE(checked.has_value());
  CHECK(checked.error().origin() == Origin::kInput);
  return checked.error();
}

}  // namespace

TEST_CASE("an ordinary data set passes, with and without loss tokens") {
  CHECK(data::check_dataset({{1, 2, 3}, {}}).has_value());
  CHECK(data::check_dataset({{1, 2, 3}, {0, 2, 1}}).has_value());
}

TEST_CASE("an empty data set is refused") {
  CHECK(refused({}).message().find("empty") != std::string::npos);
}

TEST_CASE("a sequence without tokens is named") {
  CHECK(refused({{5, 0}, {}}).message().find("sequence 1 of 2 has a length of 0") != std::string::npos);
  CHECK(refused({{-7}, {}}).message().find("length of -7") != std::string::npos);
}

TEST_CASE("loss tokens must match in number and never exceed the length") {
  CHECK(refused({{5, 6}, {5}}).message().find("2 lengths but 1 loss token counts") != std::string::npos);
  CHECK(refused({{5, 6}, {5, 7}}).message().find("sequence 1 has 7 loss tokens") != std::string::npos);
  CHECK(refused({{5}, {-1}}).message().find("0 to 5") != std::string::npos);
}
