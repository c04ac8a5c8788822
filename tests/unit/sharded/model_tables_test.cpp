// ModelTables: a model of more elements than can be is refused where it grows too large, and nothing of it is kept.
#include "sharded/shards/model_tables.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pliant/error.hpp"
#include "sharded/shards/layout.hpp"
#include "unit/sharded/says.hpp"

namespace pliant::sharded {
namespace {

/// What adding a parameter of that shape is refused with; empty: it was added.
std::string refusal(ModelTables& model, const std::string& name, std::vector<int64_t> shape) {
  ParameterSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.initialise = [](std::span<float>) {};
  try {
    model.add(std::move(spec));
    return {};
  } catch (const Error& error) {
    CHECK(error.status() == Status::kInvalidArgument);
    return error.message();
  }
}

constexpr int64_t power(int exponent) {
  return int64_t{1} << exponent;
}

TEST_CASE("a parameter whose elements no 64 bits count, or whose bytes, is refused by name and dimension") {
  ModelTables model;
  const std::vector<std::vector<int64_t>> shapes{{power(61)},
                                                 {power(32), power(32)},
                                                 {power(21), power(21), power(21), 2},
                                                 {power(62), 4},
                                                 {3, power(61)},
                                                 {power(31), power(31)},
                                                 {-1}};
  for (const std::vector<int64_t>& shape : shapes) {
    CAPTURE(shape.size());
    for (int time = 0; time < 2; ++time) {
      CHECK(says(refusal(model, "vast", shape), "the parameter vast has a dimension of "));
    }
  }
  CHECK(
      says(refusal(model, "vast", {7, power(61)}), "a dimension of 2305843009213693952; dimensions must be 0 or more"));
  CHECK(model.parameters().empty());
  CHECK(refusal(model, "vast", {0, power(62)}).empty());  // of no elements
  CHECK(model.elements() == 0);
}

TEST_CASE("parameters that together have more elements than a model may have are refused, and those before stay") {
  ModelTables model;
  // Sixteen of them would be none, in 64 bits.
  for (int time = 0; time < 17; ++time) {
    CHECK(says(refusal(model, "vast", {power(30), power(30)}),
               "with the 1152921504606846976 elements of vast the model exceeds the limit of 1125899906842624"));
  }
  CHECK(model.parameters().empty());
  CHECK(refusal(model, "half", {power(49)}).empty());
  CHECK(says(refusal(model, "more", {power(49) + 1}),
             "elements of more the model exceeds the limit of 1125899906842624"));
  CHECK(refusal(model, "other", {power(49)}).empty());
  CHECK(says(refusal(model, "last", {1}), "with the 1 elements of last the model exceeds the limit of"));
  CHECK(refusal(model, "none", {0}).empty());
  CHECK(model.elements() == static_cast<uint64_t>(FlatLayout::kMostElements));
  CHECK(model.parameters().size() == 3);
  CHECK(model.parameter(1).offset == static_cast<uint64_t>(power(49)));
  CHECK(FlatLayout::create(static_cast<int64_t>(model.elements())).has_value());
}

}  // namespace
}  // namespace pliant::sharded
