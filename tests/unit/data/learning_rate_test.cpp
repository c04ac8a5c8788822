// LearningRate: units, base batch, refusals, state.
#include "pliant/learning_rate.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "pliant/error.hpp"
#include "scratch.hpp"

using namespace pliant;
using pliant::test::Scratch;

namespace {

constexpr BatchSize kMean{4, 8, 100, 50};

LearningRate rate(const std::string& toml, const BatchSize& mean = kMean) {
  const Scratch scratch;
  return {scratch.config(toml), mean};
}

Error refused(const std::string& toml, const BatchSize& mean) {
  try {
    (void)rate(toml, mean);
  } catch (const Error& error) {
    return error;
  }
  FAIL("nothing was thrown");
  return {Status::kOk, ""};
}

}  // namespace

TEST_CASE("each unit reads its own field of the batch, over the mean batch by default") {
  const BatchSize batch{8, 24, 400, 250};
  const auto of = [&](const std::string& unit) {
    return rate("[lr]\nuse = \"linear\"\nbase_lr = 0.5\nunit = \"" + unit + "\"\n").at(0, batch);
  };
  CHECK(of("rows") == 1.0);
  CHECK(of("sequences") == 1.5);
  CHECK(of("tokens") == 2.0);
  CHECK(of("loss_tokens") == 2.5);
}

TEST_CASE("base_batch replaces the mean batch") {
  CHECK(rate("[lr]\nuse = \"sqrt\"\nbase_lr = 0.5\nbase_batch = 25\nunit = \"tokens\"\n").at(0, kMean) == 1.0);
  CHECK(rate("[lr]\nuse = \"linear\"\nbase_lr = 0.5\nbase_batch = 12.5\nunit = \"tokens\"\n", {}).at(0, kMean) == 4.0);
}

TEST_CASE("a rate from a schedule replaces base_lr") {
  LearningRate linear = rate("[lr]\nuse = \"linear\"\nbase_lr = 0.5\n");
  CHECK(linear.at(0, kMean) == 0.5);
  CHECK(linear.at(9, kMean, 0.25) == 0.25);
}

TEST_CASE("a mean batch of nothing cannot be the base") {
  const Error error = refused("[lr]\nuse = \"linear\"\n", {4, 8, 100, 0});
  CHECK(error.status() == Status::kInvalidArgument);
  CHECK(error.origin() == Origin::kInput);
  CHECK(error.message().find("set base_batch") != std::string::npos);
}

TEST_CASE("steps before 0 and rates that are not finite are refused") {
  LearningRate linear = rate("[lr]\nuse = \"linear\"\nbase_lr = 0.5\n");
  CHECK_THROWS_AS((void)linear.at(-1, kMean), Error);
  CHECK_THROWS_AS((void)linear.at(0, kMean, std::numeric_limits<double>::infinity()), Error);
}

TEST_CASE("a rule that refuses what the config asks of it is a fault of the input and names itself") {
  LearningRate linear = rate("[lr]\nuse = \"linear\"\nbase_lr = 1000\nbase_batch = 1e-307\n");
  try {
    (void)linear.at(0, kMean);
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    CHECK(error.message().find("lr 'linear'") != std::string::npos);
  }
}

TEST_CASE("a rule's state goes through save and load, damage and another rule's do not") {
  LearningRate first = rate("[lr]\nuse = \"linear\"\n");
  LearningRate second = rate("[lr]\nuse = \"linear\"\n");
  second.load(first.save());
  CHECK(second.save() == first.save());
  CHECK_THROWS_AS(second.load(first.save() + "x"), Error);
  CHECK_THROWS_AS(second.load(""), Error);
  CHECK_THROWS_AS(rate("[lr]\nuse = \"sqrt\"\n").load(first.save()), Error);
}
