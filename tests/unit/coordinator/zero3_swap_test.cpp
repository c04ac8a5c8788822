// Shards on a tier: what is loaded ahead, and where fetching ahead stops. Rows by hand, from the rules of DeepSpeed's
// __prefetch_nvme_param_partitions (twice the elements on their way, as many shards as there are free buffers), of the
// loop before it, and of the end of __all_gather_params_.
#include <doctest/doctest.h>

#include <utility>

#include "pliant/error.hpp"
#include "program.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

Program on_nvme(int64_t buffers, int64_t bucket, sdk::Model model, bool strict = false) {
  nlohmann::json options = zero3_options(strict);
  options["prefetch_bucket_size"] = bucket;
  options["offload_param_device"] = "nvme";
  options["offload_param_buffer_count"] = buffers;
  model.tiers = 1;
  return {"zero3", options, std::move(model)};
}

}  // namespace

TEST_CASE("without a tier nothing is loaded") {
  nlohmann::json options = zero3_options(false);
  options["prefetch_bucket_size"] = 100;
  Program program("zero3", options, layered({{10}, {10}}));
  program.pass({1, 2});
  program.begin_pass();
  CHECK(program.enter(0) == Words{"prefetch 0", "prefetch 1"});
}

TEST_CASE("a host without a tier is told so before any visit, by the option that wants one") {
  nlohmann::json options = zero3_options(false);
  options["offload_param_device"] = "nvme";
  try {
    const Program program("zero3", options, layered({{10}, {10}}));
    FAIL("it takes a model whose shards lie nowhere");
  } catch (const Error& error) {
    CHECK(error.status() == Status::kUnimplemented);
    CHECK(error.options() == "offload_param_device");
    CHECK(error.message().find("offload_param_device = \"nvme\"") != std::string::npos);
  }
}

TEST_CASE("a shard on the tier is loaded before the gather that a visit needs") {
  Program program = on_nvme(5, 100, layered({{10}, {10}}));
  program.begin_pass();
  CHECK(program.enter(1) == Words{"load 0", "gather 0", "wait 0"});
}

TEST_CASE("fetching ahead stops at the first shard on the tier, which alone is loaded while nothing is on its way") {
  Program program = on_nvme(5, 100, layered({{10}, {10}, {10}, {10}}));
  program.pass({1, 2, 3, 4});
  program.begin_pass();
  CHECK(program.enter(0) == Words{"load 0"});
  CHECK(program.counts().ahead == 8);
}

TEST_CASE("as many shards are loaded as there are free buffers, and a release frees one") {
  Program program = on_nvme(2, 100, layered({{10}, {10}, {10}, {10}, {10}}));
  program.pass({1, 2, 3, 4, 5});
  program.begin_pass();
  CHECK(program.enter(0) == Words{"load 0"});
  program.leave(0);
  // Layer 1 was loaded: it is gathered without a load, and fetching ahead stops at layer 2, whose shard is away.
  CHECK(program.enter(1) == Words{"gather 0", "wait 0", "load 1"});
  CHECK(program.leave(1) == Words{"release 0"});
}

TEST_CASE("a shard that is loaded is fetched ahead, and one without elements does not count") {
  Program program = on_nvme(9, 10, layered({{10}, {0}, {10}, {10}, {10}}), true);
  program.pass({1, 2, 3, 4, 5});
  program.begin_pass();
  program.enter(0);
  program.leave(0);
  CHECK(program.enter(1) == Words{"gather 0", "wait 0", "load 1", "load 2"});
  program.leave(1);
  CHECK(program.enter(2) == Words{"gather 1", "wait 1", "prefetch 2", "load 3", "load 4"});
}

TEST_CASE("shards are loaded until more than twice the elements on their way were looked at") {
  // Layer 1 has no parameters: at its visit parameter 0, 10 elements, is on its way.
  const auto loaded = [](uint64_t second) {
    Program program = on_nvme(9, 100, layered({{}, {10}, {10}, {second}, {1}, {1}}));
    program.pass({1, 2, 3, 4, 5, 6});
    program.begin_pass();
    CHECK(program.enter(0) == Words{"load 0"});
    return program.enter(1);
  };
  CHECK(loaded(9) == Words{"prefetch 0", "load 1", "load 2", "load 3", "load 4"});
  CHECK(loaded(10) == Words{"prefetch 0", "load 1", "load 2", "load 3"});
  CHECK(loaded(11) == Words{"prefetch 0", "load 1", "load 2"});
}

TEST_CASE("fetching ahead stops at a parameter that stays whole and whose shard is away, and strict goes on") {
  sdk::Model model = layered({{10}, {10}, {10}});
  model.parameters[1].persistent = true;
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    Program program = on_nvme(5, 100, model, strict);
    program.pass({1, 2, 3});
    program.end_step();
    program.begin_pass();
    CHECK(program.enter(0) == Words{"load 0"});
    program.enter(1);
    program.leave(1);
    CHECK(program.enter(2) == Words{"gather 1", "wait 1", "load 2"});
    CHECK(program.leave(2).empty());
    // Of the backward come parameters 2, which is whole, 1, which is too, and 0. DeepSpeed gave the shard of 1 up when
    // it was gathered, and loads it once more.
    CHECK(program.enter(3) == Words{"gather 2", "wait 2", strict ? "load 0" : "load 1"});
    CHECK(program.counts().ahead == (strict ? 1 : 2));
    program.leave(3);
    program.leave(0);
    CHECK(program.enter(0, true) == (strict ? Words{"prefetch 0"} : Words{"load 0"}));
    CHECK(program.enter(3, true) == (strict ? Words{} : Words{"prefetch 0"}));
    program.leave(3, true);
    CHECK(program.enter(2, true).empty());
    program.leave(2, true);
    CHECK(program.enter(1, true) == Words{"wait 0"});
    program.leave(1, true);
    program.leave(0, true);
    program.end_pass();
    CHECK(program.end_step() == Words{"release 1"});
    CHECK(program.broken_rules().empty());
  }
}

TEST_CASE(
    "a parameter that stays whole frees its buffer once it is gathered, ahead or not, but in strict at its release") {
  for (const bool ahead : {false, true}) {
    // Ahead: at the visit of layer 1, which has no parameters.
    sdk::Model model = ahead ? layered({{}, {10}, {10}}) : layered({{10}, {10}, {10}});
    model.parameters[0].persistent = true;
    for (const bool strict : {false, true}) {
      CAPTURE(ahead);
      CAPTURE(strict);
      Program program = on_nvme(1, 100, model, strict);
      program.pass({1, 2, 3});
      program.end_step();
      program.begin_pass();
      CHECK(program.enter(0) == Words{"load 0"});
      Words expected = ahead ? Words{"prefetch 0"} : Words{"gather 0", "wait 0"};
      if (!strict) expected.emplace_back("load 1");
      CHECK(program.enter(1) == expected);
    }
  }
}
