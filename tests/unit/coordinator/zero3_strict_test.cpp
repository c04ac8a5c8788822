// Each fault of DeepSpeed's schedule that strict = true mends: what happens without it, and with it.
#include <doctest/doctest.h>

#include <algorithm>

#include "pliant/error.hpp"
#include "program.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

size_t count_of(const Words& words, const std::string& prefix) {
  return static_cast<size_t>(
      std::count_if(words.begin(), words.end(), [&](const std::string& word) { return word.rfind(prefix, 0) == 0; }));
}

/// The most elements that are whole at once in a pass over `layers`.
uint64_t peak_of(Program& program, const std::vector<uint32_t>& layers, bool with_backward) {
  uint64_t peak = 0;
  const auto visit = [&](uint32_t module, bool backward) {
    program.enter(module, backward);
    peak = std::max(peak, program.live());
    program.leave(module, backward);
  };
  program.begin_pass(with_backward);
  program.enter(0);
  for (const uint32_t layer : layers) visit(layer, false);
  program.leave(0);
  if (with_backward) {
    program.enter(0, true);
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) visit(*layer, true);
    program.leave(0, true);
  }
  program.end_pass();
  return peak;
}

}  // namespace

TEST_CASE("strict: the count of whole elements is kept where it was zeroed while parameters stayed") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    nlohmann::json options = zero3_options(strict);
    options["max_reuse_distance"] = 1000;
    Program program("zero3", options, layered({{10}, {20}}));
    for (int i = 0; i < 3; ++i) program.pass({1, 2});
    program.pass({1, 2}, false);  // evaluation: both stay whole for the backward that does not come
    REQUIRE(program.live() == 30);
    program.begin_pass();
    CHECK(program.counts().whole == (strict ? 30 : 0));
    program.enter(1);
    program.leave(1);
    program.end_step();
    CHECK(program.live() == 0);
    CHECK(program.counts().whole == (strict ? 0 : -30));
  }
}

TEST_CASE("strict: a release is decided by the trace of today where an older one's decision was remembered") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    nlohmann::json options = zero3_options(strict);
    options["max_reuse_distance"] = 15;
    Program program("zero3", options, layered({{10}, {10}, {10}}));
    // In the first trace layer 1 is used again soon after step 1, in the second one it is not.
    for (int i = 0; i < 4; ++i) {
      program.begin_pass();
      for (const uint32_t layer : {1U, 1U, 2U, 3U}) {
        program.enter(layer);
        program.leave(layer);
      }
      program.end_pass();
    }
    Words left;
    for (int i = 0; i < 5; ++i) {
      program.begin_pass();
      for (const uint32_t layer : {1U, 3U, 2U, 2U}) {
        program.enter(layer);
        const Words words = program.leave(layer);
        if (layer == 1) left = words;
      }
      program.end_pass();
    }
    REQUIRE(program.counts().trace == PLIANT_TRACE_COMPLETE);
    CHECK(has(left, "release 0") == strict);
  }
}

TEST_CASE("strict: what is fetched ahead stays within the bucket and the limit, which were tested before adding") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    nlohmann::json options = zero3_options(strict);
    options["prefetch_bucket_size"] = 50;
    options["max_live_parameters"] = 90;
    Program program("zero3", options, layered({{49}, {49}, {49}, {49}}));
    for (int i = 0; i < 3; ++i) program.pass({1, 2, 3, 4});
    const uint64_t peak = peak_of(program, {1, 2, 3, 4}, true);
    CHECK((peak <= 90) == strict);
  }
}

TEST_CASE("strict: a gather that a visit needs releases what is kept for later, where the limit was not looked at") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    nlohmann::json options = zero3_options(strict);
    options["max_reuse_distance"] = 1000;
    options["max_live_parameters"] = 25;
    Program program("zero3", options, layered({{10}, {10}, {10}}));
    for (int i = 0; i < 3; ++i) program.pass({1, 2, 3});
    const uint64_t peak = peak_of(program, {1, 2, 3}, false);
    CHECK(peak == (strict ? 20 : 30));
    CHECK(program.broken_rules().empty());
  }
}

TEST_CASE("strict: one module above the limit is gathered all the same, alone") {
  nlohmann::json options = zero3_options(true);
  options["max_reuse_distance"] = 1000;
  options["prefetch_bucket_size"] = 1000;
  options["max_live_parameters"] = 25;
  Program program("zero3", options, layered({{10}, {40}, {10}}));
  for (int i = 0; i < 4; ++i) CHECK(peak_of(program, {1, 2, 3}, true) == 40);
  CHECK(program.broken_rules().empty());
}

TEST_CASE("strict: a persistent parameter stays whole while a pass is recorded, where it was released") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    sdk::Model model = layered({{10}, {20}});
    model.parameters[0].persistent = true;
    Program program("zero3", zero3_options(strict), model);
    program.pass({1, 2});
    CHECK(program.counts().trace == PLIANT_TRACE_RECORDING);
    CHECK(program.whole(0) == strict);
    CHECK_FALSE(program.whole(1));
  }
}

TEST_CASE("strict: a parameter that was released before its own wait may be gathered again, where it was an error") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    // Layer 1 is entered twice and left once, so it counts as left while its parameter is fetched ahead together with
    // that of layer 2; the wait for that one makes both available, and the second leave releases it.
    nlohmann::json options = zero3_options(strict);
    options["prefetch_bucket_size"] = 1000;
    Program program("zero3", options, layered({{10}, {10}, {10}}));
    const auto pass = [&] {
      program.begin_pass();
      program.enter(1);
      program.enter(1);
      program.leave(1);
      program.enter(3);
      program.leave(3);
      program.enter(2);
      program.leave(2);
      program.leave(1);
      program.enter(1);
      program.leave(1);
      program.end_pass();
    };
    pass();
    pass();
    if (strict) {
      pass();
      CHECK(program.broken_rules().empty());
    } else {
      CHECK_FALSE(program.broken_rules().empty());
    }
  }
}

TEST_CASE("strict: a pass with fewer modules than recorded throws the trace away, where nobody noticed") {
  for (const char* version : {"head", "seed"}) {
    for (const bool strict : {false, true}) {
      CAPTURE(version);
      CAPTURE(strict);
      Program program("zero3", zero3_options(strict, version), layered({{10}, {20}}));
      for (int i = 0; i < 3; ++i) program.pass({1, 2});
      program.begin_pass();
      program.enter(0);
      program.enter(1);
      program.leave(1);
      program.leave(0);
      CHECK(has(program.end_pass(), "drop") == strict);
      program.begin_pass();
      CHECK(program.counts().trace == (strict ? PLIANT_TRACE_RECORDING : PLIANT_TRACE_COMPLETE));
    }
  }
}

TEST_CASE("strict: an evaluation, which is shorter by design, keeps the trace") {
  Program program("zero3", zero3_options(true), layered({{10}, {20}}));
  for (int i = 0; i < 3; ++i) program.pass({1, 2});
  program.pass({1, 2}, false);
  program.begin_pass();
  CHECK(program.counts().trace == PLIANT_TRACE_COMPLETE);
}

TEST_CASE("strict: a parameter without elements is gathered alone, where head stopped") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    Program program("zero3", zero3_options(strict), layered({{0}}));
    program.begin_pass();
    if (strict) {
      CHECK(has(program.enter(1), "gather 0"));
    } else {
      CHECK_THROWS_AS(program.enter(1), Error);
    }
  }
}

TEST_CASE("strict: what is on its way when a pass ends is waited for, where seed stopped") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    nlohmann::json options = zero3_options(strict, "seed");
    options["prefetch_bucket_size"] = 1000;
    Program program("zero3", options, layered({{10}, {20}, {30}}));
    for (int i = 0; i < 3; ++i) program.pass({1, 2, 3});
    program.begin_pass();
    program.enter(0);
    if (strict) {
      CHECK(count_of(program.end_pass(), "release") == 3);
      CHECK(program.broken_rules().empty());
    } else {
      CHECK_THROWS_AS(program.end_pass(), Error);
    }
  }
}

TEST_CASE("strict: a module that is entered again before it is left keeps its parameters until it is left as often") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    Program program("zero3", zero3_options(strict), layered({{10}}));
    program.begin_pass();
    program.enter(1, true);
    program.enter(1, false, true);
    program.leave(1, false, true);
    CHECK(program.whole(0) == strict);
    program.leave(1, true);
    CHECK_FALSE(program.whole(0));
  }
}

TEST_CASE("strict: other parameters of a module throw the trace away, where the next visit was an error") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    Program program("zero3", zero3_options(strict), layered({{10}, {20}}));
    for (int i = 0; i < 3; ++i) program.pass({1, 2});
    program.set_parameters(1, {1}, {});
    const Words begun = program.begin_pass();
    CHECK(has(begun, "drop") == strict);
    if (strict) {
      program.enter(1);
      CHECK(program.broken_rules().empty());
    } else {
      program.enter(0);
      CHECK_THROWS_AS(program.enter(1), Error);
    }
  }
}

TEST_CASE("strict: modules that are never left release at the end of the pass, in forward, too") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    Program program("zero3", zero3_options(strict), layered({{10}, {20}}));
    program.begin_pass();
    program.enter(1);
    program.end_pass();
    CHECK(program.whole(0) != strict);
  }
}

TEST_CASE("strict: a leaf gathers the external parameters of the modules below it, which were left out") {
  for (const bool strict : {false, true}) {
    CAPTURE(strict);
    sdk::Model model = layered({{10}, {20}, {30}});
    model.modules[0].children = {1, 3};
    model.modules[1].leaf = true;
    model.modules[1].children = {2};
    model.modules[2].external = {2};
    Program program("zero3", zero3_options(strict), model);
    program.begin_pass();
    const Words words = program.enter(1);
    CHECK(count_of(words, "gather") == (strict ? 3 : 2));
    CHECK(program.broken_rules().empty() == strict);
  }
}
