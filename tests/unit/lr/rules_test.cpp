// The rules none, linear and sqrt, through the plugin host.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "pliant/abi/lr_rule.h"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

using namespace pliant;

namespace {

Result<double> scaled(const std::string& rule, double base_lr, double batch, double base_batch) {
  const auto file = std::filesystem::path(PLIANT_PLUGIN_DIR) / ("lr-" + rule + ".pliant.so");
  const auto opened = or_throw(plugin::Plugin::open(file, *plugin::kind_of("lr")));
  const auto made = or_throw(plugin::Instance::create(opened, plugin::OptionValues()));
  pliant_lr_input input{};
  input.struct_size = sizeof(input);
  input.base_lr = base_lr;
  input.base_batch = base_batch;
  input.batch = batch;
  pliant_lr_output output{};
  output.struct_size = sizeof(output);
  pliant_error error = plugin::fresh_error();
  const pliant_lr_output before{sizeof(before), 0, base_lr, base_lr, 1, 1, 1, 1, 1, 1, 1, 1, batch};
  input.previous = &before;
  const int32_t status = made.table<pliant_lr_rule>().scale(made.self(), &input, &output, &error);
  if (status != PLIANT_OK) return tl::unexpected<Error>(plugin::to_error(made.plugin(), status, error));
  return output.lr;
}

}  // namespace

TEST_CASE("none leaves the rate alone") {
  CHECK(*scaled("none", 0.1, 7, 3) == 0.1);
  CHECK(*scaled("none", 0.1, 7, 0) == 0.1);
}

TEST_CASE("linear multiplies before it divides, as the reference does") {
  CHECK(*scaled("linear", 0.1, 3, 7) == 0.1 * 3 / 7);
  CHECK(*scaled("linear", 0.25, 64, 32) == 0.5);
}

TEST_CASE("sqrt takes the root of the ratio") {
  CHECK(*scaled("sqrt", 0.5, 8, 2) == 1.0);
  CHECK(*scaled("sqrt", 0.001, 0, 4) == 0.0);
  CHECK(*scaled("sqrt", 0.1, 3, 7) == 0.1 * std::sqrt(3.0 / 7.0));
}

TEST_CASE("every rule that scales leaves base_lr as it is at base_batch") {
  for (const char* rule : {"linear", "sqrt"}) CHECK(*scaled(rule, 0.125, 48, 48) == 0.125);
}

TEST_CASE("a base batch of 0 is refused") {
  for (const char* rule : {"linear", "sqrt"}) {
    CAPTURE(rule);
    const auto answer = scaled(rule, 0.1, 4, 0);
    REQUIRE_FALSE(answer.has_value());
    CHECK(answer.error().status() == Status::kInvalidArgument);
    CHECK(answer.error().message().find("base_batch must not be 0") != std::string::npos);
  }
}

TEST_CASE("a negative ratio has no root") {
  CHECK(scaled("sqrt", 0.1, -4, 4).error().status() == Status::kInvalidArgument);
}

TEST_CASE("a rate that is not finite never leaves a rule") {
  const double infinite = std::numeric_limits<double>::infinity();
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  CHECK(scaled("linear", 1e308, 1e308, 1).error().status() == Status::kOutOfRange);
  CHECK_FALSE(scaled("none", infinite, 1, 1).has_value());
  CHECK_FALSE(scaled("linear", 1, nothing, 1).has_value());
  CHECK_FALSE(scaled("sqrt", 1, nothing, 1).has_value());
}
