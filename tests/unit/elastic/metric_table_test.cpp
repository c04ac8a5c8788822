// Exact sums, and metrics of all ranks as one.
#include "elastic/metric_table.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "pliant/error.hpp"

namespace pliant::elastic {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

/// Doubles of every size, whose sum stays finite.
rc::Gen<std::vector<double>> any_values() {
  return rc::gen::container<std::vector<double>>(rc::gen::map(
      rc::gen::pair(rc::gen::inRange<int64_t>(-(int64_t{1} << 53), int64_t{1} << 53), rc::gen::inRange(-1074, 900)),
      [](const auto& one) { return std::ldexp(static_cast<double>(one.first), one.second); }));
}

}  // namespace

TEST_CASE("a sum of doubles is that of the numbers, rounded once") {
  CHECK(sum_of({1e100, 1, -1e100}).value() == 1);
  CHECK(sum_of(std::vector<double>(10, 0.1)).value() == 1);
  CHECK(sum_of({}).value() == 0);
  CHECK(sum_of({5, -5}).value() == 0);
  CHECK(sum_of({5, -5}).parts().empty());
  // A tie of 1 and 1 + 2^-52, which a third number breaks.
  CHECK(sum_of({1, 0x1p-53}).value() == 1);
  CHECK(sum_of({1, 0x1p-53, 0x1p-200}).value() == 1 + 0x1p-52);
  CHECK(sum_of({1, 0x1p-53, -0x1p-200}).value() == 1);
  CHECK(sum_of({1 + 0x1p-52, 0x1p-53, -0x1p-200}).value() == 1 + 0x1p-52);
}

TEST_CASE("neither the order of numbers nor the groups that they are added in change a bit of the sum") {
  const bool held = rc::check([] {
    std::vector<double> values = *any_values();
    const double whole = sum_of(values).value();
    const auto seed = *rc::gen::arbitrary<uint32_t>();
    std::shuffle(values.begin(), values.end(), std::mt19937(seed));
    const size_t cut = values.empty() ? 0 : *rc::gen::inRange<size_t>(0, values.size());
    ExactSum both = sum_of({values.begin() + static_cast<std::ptrdiff_t>(cut), values.end()});
    both.add(sum_of({values.begin(), values.begin() + static_cast<std::ptrdiff_t>(cut)}).parts());
    RC_ASSERT(std::bit_cast<uint64_t>(both.value()) == std::bit_cast<uint64_t>(whole));
    RC_ASSERT(both.parts().size() <= 42U);
  });
  CHECK(held);
}

TEST_CASE("what is not finite, or goes past all doubles, is what the sum is") {
  CHECK(sum_of({1, kInfinity, 2}).value() == kInfinity);
  CHECK(std::isnan(sum_of({kInfinity, 1, -kInfinity}).value()));
  CHECK(std::isnan(sum_of({std::nan(""), 1}).value()));
  CHECK(sum_of({1e308, 1e308, 1}).value() == kInfinity);
  CHECK(sum_of({1, -kInfinity}).parts() == std::vector<double>{-kInfinity});
}

TEST_CASE("a mean by weight has exact products: three equal values are that value") {
  MetricTable table;
  for (const double weight : {1.0, 3.0, 7.0}) table.add("accuracy", 0.1, weight, MetricRule::kMean);
  CHECK(table.values().at("accuracy") == 0.1);
}

TEST_CASE("values of all ranks become one by each rule, and a mean without weight is none") {
  MetricTable all;
  for (const double rank : {0.0, 1.0, 2.0}) {
    MetricTable own;
    own.add("mean", rank, rank + 1, MetricRule::kMean);
    own.add("sum", rank, 1, MetricRule::kSum);
    own.add("most", rank, 1, MetricRule::kMax);
    own.add("least", -rank, 1, MetricRule::kMin);
    own.add("nothing", kInfinity, 0, MetricRule::kMean);
    if (rank == 1) own.add("of_one", 42, 1, MetricRule::kMean);
    for (const MetricShare& share : own.shares()) CHECK(all.take(share));
  }
  const std::map<std::string, double> expected{
      {"mean", 8.0 / 6}, {"sum", 3}, {"most", 2}, {"least", -2}, {"of_one", 42}};
  CHECK(all.values() == expected);
}

TEST_CASE("a NaN is the largest and the smallest of what it is among") {
  for (const MetricRule rule : {MetricRule::kMax, MetricRule::kMin}) {
    for (const auto& values : {std::vector{1.0, std::nan(""), 2.0}, std::vector{std::nan(""), 1.0}}) {
      MetricTable table;
      for (const double value : values) table.add("x", value, 1, rule);
      CHECK(std::isnan(table.values().at("x")));
    }
  }
}

TEST_CASE("names that are none, another rule, bad weights and too many names are refused and change nothing") {
  MetricTable table;
  table.add("x", 1, 1, MetricRule::kMean);
  const auto refuses = [&table](std::string_view name, double weight, MetricRule rule) {
    try {
      table.add(name, 5, weight, rule);
      return false;
    } catch (const Error& error) {
      return error.status() == Status::kInvalidArgument;
    }
  };
  for (const char* const name : {"", "a b", "\n", "\xff", "x=1"}) CHECK(refuses(name, 1, MetricRule::kMean));
  CHECK(refuses(std::string(65, 'x'), 1, MetricRule::kMean));
  CHECK(refuses("x", 1, MetricRule::kSum));
  for (const double weight : {-1.0, kInfinity, std::nan("")}) CHECK(refuses("x", weight, MetricRule::kMean));
  for (size_t i = 1; i < kMostMetrics; ++i) table.add("m" + std::to_string(i), 1, 1, MetricRule::kMean);
  CHECK(refuses("one_more", 1, MetricRule::kMean));
  CHECK(table.values().size() == kMostMetrics);
  CHECK(table.values().at("x") == 1);
}

TEST_CASE("a name that ranks combine by different rules has no value") {
  MetricTable all;
  CHECK(all.take({"x", MetricRule::kSum, {1}, {}}));
  CHECK_FALSE(all.take({"x", MetricRule::kMax, {1}, {}}));
  CHECK(all.take({"y", MetricRule::kSum, {1}, {}}));
  CHECK(all.values().size() == 1);
}

}  // namespace pliant::elastic
