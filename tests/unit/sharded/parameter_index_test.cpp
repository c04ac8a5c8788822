// Parameters of a snapshot by name: models in another order, and every way in which they can be others.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "sharded/shards/parameter_index.hpp"

namespace pliant::sharded {
namespace {

using Named = std::pair<std::string, std::vector<int64_t>>;

ModelTables model_of(const std::vector<Named>& parameters) {
  ModelTables model;
  for (const Named& one : parameters) {
    ParameterSpec spec;
    spec.name = one.first;
    spec.shape = one.second;
    spec.initialise = [](std::span<float>) {};
    model.add(std::move(spec));
  }
  return model;
}

const std::vector<Named> kParameters{{"up.weight", {4, 2}}, {"none", {0}}, {"scale", {}}, {"down.weight", {2, 4}}};

std::string refusal_of(const std::vector<Named>& other) {
  const auto placed = ParameterIndex::of(model_of(kParameters)).place(model_of(other));
  REQUIRE_FALSE(placed.has_value());
  CHECK(placed.error().status() == Status::kFailedPrecondition);
  return placed.error().message();
}

TEST_CASE("an index has a line for each parameter, and is read back as it was") {
  const ParameterIndex index = ParameterIndex::of(model_of(kParameters));
  const std::string text = "up.weight f32[4,2] 0\nnone f32[0] 8\nscale f32[] 8\ndown.weight f32[2,4] 9\n";
  CHECK(index.text() == text);
  const auto again = ParameterIndex::parse(text);
  REQUIRE(again.has_value());
  CHECK(again->text() == text);
  CHECK(again->elements() == 17);
  REQUIRE(again->parameters().size() == 4);
  CHECK(again->parameters()[3].first == 9);
  CHECK(again->parameters()[3].count == 8);
}

TEST_CASE("text that is no index is refused") {
  for (const char* const text :
       {"\n", "up.weight\n", "up.weight f32[4]\n", "up.weight f32[4] x\n", "up.weight bf16[4] 0\n", "a f32[4 0\n",
        "a f32[-4] 0\n", "a f32[4] 1\n", "a f32[4] 0\nb f32[4] 3\n", "a f32[4] 0\nb f32[4] 5\n",
        "a f32[4] 0\na f32[4] 4\n", " f32[4] 0\n", "a f32[4] -0\n", "a f32[4,] 0 1\n",
        "a f32[9223372036854775807,9223372036854775807] 0\n",
        "a f32[1125899906842624] 0\nb f32[1] 1125899906842624\n"}) {
    CAPTURE(text);
    const auto parsed = ParameterIndex::parse(text);
    REQUIRE_FALSE(parsed.has_value());
    CHECK(parsed.error().status() == Status::kDataLoss);
  }
}

TEST_CASE("a model in the order of the index is one run, and in another order each parameter is found by its name") {
  const ParameterIndex index = ParameterIndex::of(model_of(kParameters));
  const auto same = index.place(model_of(kParameters));
  REQUIRE(same.has_value());
  REQUIRE(same->size() == 1);
  CHECK(same->front().count == 17);
  const auto other = index.place(model_of({kParameters[3], kParameters[1], kParameters[0], kParameters[2]}));
  REQUIRE(other.has_value());
  REQUIRE(other->size() == 2);  // the last two are neighbours in both
  CHECK((*other)[0].first == 0);
  CHECK((*other)[0].count == 8);
  CHECK((*other)[0].in_index == 9);
  CHECK((*other)[1].first == 8);
  CHECK((*other)[1].count == 9);
  CHECK((*other)[1].in_index == 0);
}

TEST_CASE("what is missing, is more or has another shape is named") {
  const std::vector<Named>& all = kParameters;
  CHECK(refusal_of({all[0], all[1], all[2]}) == "its down.weight does not exist in this model");
  CHECK(refusal_of({all[0], all[1], all[2], all[3], {"bias", {4}}}) == "it lacks bias");
  CHECK(refusal_of({{"up.weight", {2, 4}}, all[1], all[2], all[3]}) == "its up.weight is f32[4,2] instead of f32[2,4]");
  CHECK(refusal_of({{"a", {1}}, {"b", {1}}, {"c", {1}}}) ==
        "it lacks a, it lacks b, it lacks c, its up.weight does not exist in this model, its none does not exist in "
        "this model, and 2 more");
}

}  // namespace
}  // namespace pliant::sharded
