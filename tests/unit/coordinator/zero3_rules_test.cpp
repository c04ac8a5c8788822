// What holds for every model and every order of visits with strict = true: the host refuses nothing, the count of whole
// elements is right, and no more is whole than the limit allows.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "program.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

/// Layers of a few parameters, some shared, persistent, external to the owner, frozen or empty.
sdk::Model any_model() {
  const auto layers = *rc::gen::inRange<size_t>(1, 7);
  std::vector<std::vector<uint64_t>> sizes;
  for (size_t i = 0; i < layers; ++i) {
    sizes.push_back(*rc::gen::resize(4, rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(0, 40))));
  }
  if (*rc::gen::inRange(0, 4) == 0) sizes[0].assign(*rc::gen::inRange<size_t>(60, 140), 1);
  sdk::Model model = layered(sizes);
  const auto count = static_cast<uint32_t>(model.parameters.size());
  for (sdk::Parameter& parameter : model.parameters) {
    const auto kind = *rc::gen::inRange(0, 12);
    parameter.persistent = kind == 0;
    parameter.external = kind == 1;
    parameter.frozen = kind == 2 || kind == 3;
  }
  for (sdk::Module& module : model.modules) {
    if (count > 0 && *rc::gen::inRange(0, 4) == 0) module.external = {*rc::gen::inRange<uint32_t>(0, count)};
  }
  return model;
}

struct Order {
  std::vector<uint32_t> layers;
  bool backward = true;
  bool nested = false;      ///< each layer is entered inside the one before
  bool recompute = false;   ///< each layer's forward once more in its backward
  bool unfinished = false;  ///< the last layer is never left
};

Order any_order(uint32_t modules) {
  Order made;
  made.layers = *rc::gen::resize(8, rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(1, modules)));
  made.backward = *rc::gen::inRange(0, 4) != 0;
  made.nested = *rc::gen::inRange(0, 4) == 0;
  made.recompute = *rc::gen::inRange(0, 3) == 0;
  made.unfinished = *rc::gen::inRange(0, 6) == 0;
  return made;
}

void check_books(const Program& program, uint64_t limit) {
  RC_ASSERT(program.broken_rules() == std::vector<std::string>{});
  RC_ASSERT(program.counts().whole == static_cast<int64_t>(program.live()));
  RC_ASSERT(program.live() <= std::max(limit, program.bound()));
}

void go(Program& program, const Order& order, uint64_t limit) {
  const auto enter = [&](uint32_t module, bool backward, bool recompute) {
    program.enter(module, backward, recompute);
    check_books(program, limit);
  };
  const auto leave = [&](uint32_t module, bool backward, bool recompute) {
    program.leave(module, backward, recompute);
    check_books(program, limit);
  };
  program.begin_pass(order.backward);
  enter(0, false, false);
  for (const uint32_t layer : order.layers) {
    enter(layer, false, false);
    if (!order.nested) leave(layer, false, false);
  }
  if (order.nested) {
    for (auto layer = order.layers.rbegin(); layer != order.layers.rend(); ++layer) leave(*layer, false, false);
  }
  leave(0, false, false);
  if (order.backward) {
    enter(0, true, false);
    for (auto layer = order.layers.rbegin(); layer != order.layers.rend(); ++layer) {
      enter(*layer, true, false);
      if (order.recompute) {
        enter(*layer, false, true);
        leave(*layer, false, true);
      }
      if (!order.unfinished || layer + 1 != order.layers.rend()) leave(*layer, true, false);
    }
    leave(0, true, false);
  }
  program.end_pass();
  check_books(program, limit);
}

}  // namespace

TEST_CASE("strict: whatever the model and the visits, no rule of the host is broken and no limit is passed") {
  const bool held = rc::check([] {
    const sdk::Model model = any_model();
    nlohmann::json options = zero3_options(true, *rc::gen::element<std::string>("head", "seed"));
    const auto limit = *rc::gen::element<uint64_t>(0, 20, 60, 200, 100000);
    options["max_live_parameters"] = limit;
    options["prefetch_bucket_size"] = *rc::gen::element<int64_t>(0, 10, 50, 100000);
    options["max_reuse_distance"] = *rc::gen::element<int64_t>(0, 30, 100000);
    Program program("zero3", options, model);
    const auto modules = static_cast<uint32_t>(model.modules.size());
    Order order = any_order(modules);
    for (int pass = 0; pass < 8; ++pass) {
      if (*rc::gen::inRange(0, 3) == 0) order = any_order(modules);
      go(program, order, limit);
      if (*rc::gen::inRange(0, 3) == 0) program.end_step();
      if (*rc::gen::inRange(0, 12) == 0) program.drop_trace();
      check_books(program, limit);
    }
    program.end_step();
    RC_ASSERT(program.live() == 0U);
    RC_ASSERT(program.broken_rules() == std::vector<std::string>{});
  });
  CHECK(held);
}

TEST_CASE("the same visits get the same actions from two instances") {
  const bool held = rc::check([] {
    const sdk::Model model = any_model();
    nlohmann::json options = zero3_options(*rc::gen::arbitrary<bool>());
    options["strict"] = true;
    options["prefetch_bucket_size"] = 50;
    options["max_reuse_distance"] = 50;
    Program one("zero3", options, model);
    Program other("zero3", options, model);
    for (int pass = 0; pass < 4; ++pass) {
      const Order order = any_order(static_cast<uint32_t>(model.modules.size()));
      RC_ASSERT(one.begin_pass() == other.begin_pass());
      for (const uint32_t layer : order.layers) {
        RC_ASSERT(one.enter(layer) == other.enter(layer));
        RC_ASSERT(one.leave(layer) == other.leave(layer));
      }
      RC_ASSERT(one.end_pass() == other.end_pass());
    }
  });
  CHECK(held);
}

TEST_CASE("a module of more parameters than a word has bits is gathered, waited for and released in their order") {
  const std::vector<uint64_t> wide(130, 1);
  nlohmann::json options = zero3_options(false);
  options["prefetch_bucket_size"] = 130;
  Program program("zero3", options, layered({{1}, wide, {1}, wide}));
  for (int pass = 0; pass < 3; ++pass) program.pass({1, 2, 3, 4});
  program.begin_pass();
  program.enter(1);
  program.leave(1);
  Words waits;
  Words releases;
  for (uint32_t parameter = 1; parameter <= 130; ++parameter) {
    waits.push_back("wait " + std::to_string(parameter));
    releases.push_back("release " + std::to_string(parameter));
  }
  Words entered = program.enter(2);
  const auto is_wait = [](const std::string& word) { return word.rfind("wait", 0) == 0; };
  entered.erase(std::stable_partition(entered.begin(), entered.end(), is_wait), entered.end());
  CHECK(entered == waits);
  CHECK(program.leave(2) == releases);
  CHECK(program.broken_rules() == std::vector<std::string>{});
}
