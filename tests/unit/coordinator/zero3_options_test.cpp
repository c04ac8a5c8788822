// What zero3 refuses, and what its thresholds keep whole.
#include <doctest/doctest.h>

#include <algorithm>

#include "pliant/error.hpp"
#include "program.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

Error refusal(const nlohmann::json& options, const sdk::Model& model = layered({{1}})) {
  try {
    const Program program("zero3", options, model);
  } catch (const Error& error) {
    return error;
  }
  return {Status::kOk, "nothing was thrown"};
}

bool says(const Error& error, const std::string& text) {
  return error.message().find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("zero3 refuses limits below zero and versions that it does not know, by the option's name") {
  for (const char* key :
       {"prefetch_bucket_size", "max_live_parameters", "max_reuse_distance", "model_persistence_threshold"}) {
    CAPTURE(key);
    CHECK(says(refusal({{key, -1}}), key));
  }
  CHECK(says(refusal({{"param_persistence_threshold", -2}}), "param_persistence_threshold"));
  CHECK(says(refusal({{"reduce_bucket_size", 0}}), "reduce_bucket_size"));
  CHECK(says(refusal({{"version", "tail"}}), "version"));
  CHECK(says(refusal({{"stage3_max_live", 1}}), "stage3_max_live"));
}

TEST_CASE("zero3 refuses a module with two parents, a root with one, and too many elements") {
  sdk::Model two = layered({{1}, {1}});
  two.modules[1].children = {2};
  CHECK(says(refusal(nlohmann::json::object(), two), "module 2 has two parents"));
  sdk::Model root = layered({{1}});
  root.modules[1].children = {0};
  CHECK(says(refusal(nlohmann::json::object(), root), "the root"));
  CHECK(says(refusal(nlohmann::json::object(), layered({{uint64_t{1} << 47, uint64_t{1} << 47}})), "2^48"));
}

TEST_CASE("version seed refuses leaf modules, which it would not gather") {
  sdk::Model model = layered({{1}});
  model.modules[1].leaf = true;
  CHECK(says(refusal(zero3_options(false, "seed"), model), "leaf"));
  CHECK(refusal(zero3_options(false, "head"), model).status() == Status::kOk);
}

TEST_CASE("small parameters stay whole in the order of the model until the model's threshold is reached") {
  nlohmann::json options = zero3_options(false);
  options["param_persistence_threshold"] = 10;
  options["model_persistence_threshold"] = 14;
  Program program("zero3", options, layered({{10, 11}, {5}, {4}}));
  for (int i = 0; i < 3; ++i) program.pass({1, 2, 3});
  CHECK(program.whole(0));
  CHECK_FALSE(program.whole(1));
  CHECK_FALSE(program.whole(2));  // 10 + 5 would pass 14
  CHECK(program.whole(3));
  program.end_step();
  CHECK_FALSE(program.whole(0));
}

TEST_CASE("a module that the model does not have is refused, and one without parameters needs nothing") {
  Program program("zero3", zero3_options(false), layered({{}, {3}}));
  program.begin_pass();
  CHECK(program.enter(1).empty());
  CHECK(program.leave(1).empty());
  CHECK_THROWS_AS(program.enter(7), Error);
  CHECK(has(program.enter(2), "gather 0"));
}

TEST_CASE("after its trace was dropped a version begins as at first: seed records at once, head waits for the pass") {
  for (const char* const version : {"head", "seed"}) {
    CAPTURE(version);
    Program program("zero3", zero3_options(false, version), layered({{10}, {20}}));
    const auto traces = [&program] {
      std::vector<int32_t> seen{program.counts().trace};
      for (int pass = 0; pass < 3; ++pass) {
        program.pass({1, 2});
        seen.push_back(program.counts().trace);
      }
      return seen;
    };
    const std::vector<int32_t> first = traces();
    CHECK(first.back() == PLIANT_TRACE_COMPLETE);
    program.end_step();
    program.drop_trace();
    CHECK(traces() == first);
  }
}
