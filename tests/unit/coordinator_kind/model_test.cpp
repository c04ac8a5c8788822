// What a module uses, as the SDK says it to authors of coordinators.
#include <doctest/doctest.h>

#include "pliant/sdk/coordinator.hpp"

using pliant::sdk::Failure;
using pliant::sdk::Model;
using Numbers = std::vector<uint32_t>;

namespace {

/// A root with a module that has one below it.
Model three_deep() {
  Model model;
  model.parameters.resize(5);
  model.modules = {{{4}, {}, {1}, false, ""}, {{2, 1}, {3}, {2}, false, ""}, {{0, 3}, {1}, {}, false, ""}};
  return model;
}

}  // namespace

TEST_CASE("tables that name a parameter or a module that there is not are refused by name") {
  const uint32_t five = 5;
  const pliant_parameter_row parameters[5] = {};
  pliant_module_row module{0, 1, 0, 0, &five, nullptr, nullptr, nullptr};
  const pliant_model model{
      sizeof(pliant_model), 0, 5, sizeof(parameters[0]), parameters, 1, sizeof(module), &module, 0, 1, 0, 0};
  CHECK_THROWS_WITH_AS(static_cast<void>(pliant::sdk::detail::model_of(&model)), "the model has no parameter 5",
                       const Failure&);
  module = {0, 0, 0, 1, nullptr, nullptr, &five, nullptr};
  CHECK_THROWS_WITH_AS(static_cast<void>(pliant::sdk::detail::model_of(&model)), "the model has no module 5",
                       const Failure&);
}

TEST_CASE("a module uses its own and external parameters, each once and ascending") {
  const Model model = three_deep();
  CHECK(model.used_by(0) == Numbers{4});
  CHECK(model.used_by(1) == Numbers{1, 2, 3});
  CHECK(model.used_by(2) == Numbers{0, 1, 3});
}

TEST_CASE("a leaf uses what all modules below it use") {
  Model model = three_deep();
  model.modules[1].leaf = true;
  CHECK(model.used_by(1) == Numbers{0, 1, 2, 3});
  model.modules[0].leaf = true;
  CHECK(model.used_by(0) == Numbers{0, 1, 2, 3, 4});
}

TEST_CASE("a leaf in a table whose modules form a ring ends") {
  Model model = three_deep();
  model.modules[1].leaf = true;
  model.modules[2].children = {1};
  CHECK(model.used_by(1) == Numbers{0, 1, 2, 3});
}
