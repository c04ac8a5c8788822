// Passes of whole programs: what is gathered, how often, and that no rule is broken.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

std::vector<uint32_t> first_layers(uint32_t count) {
  std::vector<uint32_t> layers(count);
  std::iota(layers.begin(), layers.end(), 1U);
  return layers;
}

}  // namespace

TEST_CASE("with room for all each parameter is gathered once a step, whatever number of passes it has") {
  Trainer trainer(layers_of(std::vector<uint64_t>(8, kLayer), 8 * kLayer));
  for (int step = 0; step < 4; ++step) {
    uint64_t bytes = 0;
    for (int pass = 0; pass < 3; ++pass) bytes += trainer.pass(first_layers(8)).bytes;
    trainer.end_step();
    CHECK(bytes == 8 * kLayer);
  }
}

TEST_CASE("with room for two layers what is gathered is the least that can be, and only the first is late") {
  Trainer trainer(layers_of(std::vector<uint64_t>(8, kLayer), 2 * kLayer));
  trainer.pass(first_layers(8));
  trainer.end_step();
  for (int step = 0; step < 3; ++step) {
    const Gathered made = trainer.pass(first_layers(8));
    trainer.end_step();
    CHECK(made.bytes == (8 + 6) * kLayer);  // the last two serve the backward
    CHECK(made.late == 0);
    CHECK(trainer.most_whole() <= 2 * kLayer);
  }
}

TEST_CASE("the last layers of one pass serve the next pass of the step") {
  Trainer trainer(layers_of(std::vector<uint64_t>(8, kLayer), 4 * kLayer));
  for (int step = 0; step < 3; ++step) {
    const uint64_t first = trainer.pass(first_layers(8)).bytes;
    const uint64_t second = trainer.pass(first_layers(8)).bytes;
    trainer.end_step();
    CHECK(first == (8 + 4) * kLayer);
    CHECK(second == (4 + 4) * kLayer);
  }
}

TEST_CASE("orders that alternate are steady once they were seen, evaluation between steps among them") {
  const std::vector<std::vector<uint32_t>> orders{{1, 2, 3, 4, 5, 6}, {1, 3, 5, 2, 4, 6}, {6, 5, 4, 1, 2, 3}};
  Trainer trainer(layers_of(std::vector<uint64_t>(6, kLayer), 3 * kLayer));
  for (int round = 0; round < 6; ++round) {
    uint64_t late = 0;
    for (const auto& order : orders) late += trainer.pass(order).late;
    trainer.end_step();
    late += trainer.pass(orders.front(), false).late;
    trainer.end_step();
    if (round >= 2) CHECK(late == 0);
  }
}

TEST_CASE("two models in turn, one of them without gradients, and generation before each step are steady once seen") {
  const std::vector<uint32_t> policy{1, 2, 3, 4, 5, 6};
  const std::vector<uint32_t> reference{7, 8, 9, 10, 11, 12};
  for (const uint64_t layers : {3U, 7U, 12U}) {
    CAPTURE(layers);
    Trainer trainer(layers_of(std::vector<uint64_t>(12, kLayer), layers * kLayer));
    for (int step = 0; step < 6; ++step) {
      uint64_t late = 0;
      uint64_t bytes = 0;
      const auto count = [&](const Gathered& made) {
        late += made.late;
        bytes += made.bytes;
      };
      for (int token = 0; token < 5; ++token) count(trainer.pass(policy, false));
      for (int pair = 0; pair < 2; ++pair) {
        count(trainer.pass(reference, false));
        count(trainer.pass(policy));
      }
      trainer.end_step();
      if (step < 2) continue;
      CHECK(late == 0);
      if (layers == 12) CHECK(bytes == 12 * kLayer);
    }
  }
}

TEST_CASE("many equal passes before another one, or before an evaluation of many, are steady once they were seen") {
  const std::vector<uint32_t> often{1, 2, 3, 4, 5, 6};
  const std::vector<uint32_t> seldom{6, 5, 4, 1, 2, 3};
  for (const int times : {4, 5, 9, 40}) {
    CAPTURE(times);
    Trainer trainer(layers_of(std::vector<uint64_t>(6, kLayer), 3 * kLayer));
    for (int step = 0; step < 6; ++step) {
      uint64_t late = 0;
      for (int i = 0; i < times; ++i) late += trainer.pass(often).late;
      late += trainer.pass(seldom).late;
      trainer.end_step();
      for (int i = 0; i < times + 1; ++i) late += trainer.pass(often, false).late;
      trainer.end_step();
      if (step >= 2) CHECK(late == 0);
    }
  }
}

TEST_CASE("small layers that come next are gathered together, the first alone, and what is large as before") {
  constexpr uint32_t kLayers = 33;
  for (const uint64_t budget : {uint64_t{0}, 8 * kLayer, 12 * kLayer, 24 * kLayer}) {
    CAPTURE(budget);
    const sdk::Model model = layers_of(std::vector<uint64_t>(kLayers, kLayer), budget);
    Trainer alone(model);
    Trainer together(model, {.gather_bucket = 4 * kLayer});
    Trainer large(model, {.gather_bucket = kLayer});
    for (int step = 0; step < 4; ++step) {
      const Gathered plain = alone.pass(first_layers(kLayers), false);
      const Gathered packed = together.pass(first_layers(kLayers), false);
      CHECK(large.pass(first_layers(kLayers), false).groups == plain.groups);
      for (Trainer* const one : {&alone, &together, &large}) one->end_step();
      CHECK(packed.bytes == plain.bytes);
      if (step == 0) continue;
      CHECK(plain.groups == kLayers);
      CHECK(packed.late == 0);
      CHECK(packed.groups <= (budget == 0 ? 1 + (kLayers - 1) / 4 : 1 + (kLayers - 1) / 2));
    }
    CHECK(large.said() == alone.said());
  }
}

TEST_CASE("small layers that go and come back are gathered together, never late, and not long before their visit") {
  constexpr uint32_t kLayers = 40;
  for (const uint64_t budget : {uint64_t{0}, 6 * kLayer, 12 * kLayer, 24 * kLayer}) {
    CAPTURE(budget);
    const sdk::Model model = layers_of(std::vector<uint64_t>(kLayers, kLayer), budget);
    Trainer alone(model);
    Trainer together(model, {.gather_bucket = 8 * kLayer});
    for (int step = 0; step < 4; ++step) {
      for (int pass = 0; pass < 2; ++pass) {
        const Gathered plain = alone.pass(first_layers(kLayers));
        const Gathered packed = together.pass(first_layers(kLayers));
        if (step < 2) continue;
        CHECK(plain.late == 0);
        CHECK(packed.late == 0);
        CHECK((budget == 6 * kLayer || packed.groups < plain.groups));
        CHECK(packed.groups <= plain.groups);
        CHECK(packed.bytes <= plain.bytes * 11 / 10);
      }
      for (Trainer* const one : {&alone, &together}) one->end_step();
    }
    if (budget == 0) CHECK(together.most_whole() <= alone.most_whole() + 3 * 8 * kLayer);
  }
}

TEST_CASE("a pass that leaves its trace goes on by another that began so, and forgets nothing") {
  Trainer trainer(layers_of(std::vector<uint64_t>(6, kLayer), 2 * kLayer));
  const std::vector<uint32_t> often{1, 2, 3, 4, 5, 6};
  const std::vector<uint32_t> seldom{1, 2, 3, 6, 5, 4};
  trainer.pass(seldom);
  trainer.end_step();
  for (int step = 0; step < 5; ++step) {
    CHECK(trainer.pass(often).late <= (step == 0 ? 12U : 0U));
    trainer.end_step();
  }
  const Gathered left = trainer.pass(seldom);  // the fourth visit is not the one that was expected
  trainer.end_step();
  CHECK(left.late <= 1);
  CHECK(trainer.pass(often).late <= 1);
  trainer.end_step();
}

TEST_CASE("the same visits get the same answers in an instance that was loaded, from a plan or not") {
  CHECK(rc::check([] {
    const auto count = *rc::gen::inRange<uint32_t>(2, 7);
    const uint64_t budget = *rc::gen::inRange<uint64_t>(2, count + 2) * kLayer;
    const auto passes = [&](Trainer& trainer, uint32_t seed) {
      std::mt19937 draw(seed);
      for (int pass = 0; pass < 12; ++pass) {
        std::vector<uint32_t> order = first_layers(count);
        if (draw() % 3 == 0) std::shuffle(order.begin(), order.end(), std::mt19937(draw() % 3));
        trainer.pass(order, draw() % 4 != 0);
        if (draw() % 2 == 0) trainer.end_step();
      }
      trainer.end_step();
    };
    const sdk::Model model = layers_of(std::vector<uint64_t>(count, kLayer), budget);
    Trainer first(model);
    const auto seed = *rc::gen::arbitrary<uint32_t>();
    passes(first, seed);
    std::string kept;
    pliant_writer sink{sizeof(pliant_writer), 0, &kept, [](void* to, const void* bytes, uint64_t size) -> int32_t {
                         static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), size);
                         return PLIANT_OK;
                       }};
    sdk::Writer writer(&sink);
    first.planner().save(writer);
    Trainer second(model);
    struct Source {
      std::string bytes;
      size_t at = 0;
    } source{kept};
    pliant_reader from{sizeof(pliant_reader), 0, &source,
                       [](void* at, void* to, uint64_t size, uint64_t* got) -> int32_t {
                         auto& one = *static_cast<Source*>(at);
                         *got = std::min<uint64_t>(size, one.bytes.size() - one.at);
                         one.bytes.copy(static_cast<char*>(to), *got, one.at);
                         one.at += *got;
                         return PLIANT_OK;
                       }};
    sdk::Reader reader(&from);
    second.planner().load(reader);
    first.forget();
    passes(first, seed + 1);
    passes(second, seed + 1);
    RC_ASSERT(first.said() == second.said());
  }));
}

namespace {

/// Trees of modules, some with parameters of their own around others, some leaves, some shared parameters, gradients.
struct Drawn {
  sdk::Model model;
  uint64_t all = 0;  ///< bytes of all parameters, with gradients and what arrives
};

template <class Draw>
Drawn drawn_model(const Draw& draw) {
  Drawn made;
  sdk::Model& model = made.model;
  const uint32_t modules = 2 + draw() % 12;
  const bool has_gradients = draw() % 3 != 0;
  for (uint32_t module = 0; module < modules; ++module) {
    model.modules.emplace_back();
    if (module > 0) model.modules[draw() % module].children.push_back(module);
    const uint32_t own = module == 0 ? draw() % 2 : draw() % 3;
    for (uint32_t i = 0; i < own; ++i) {
      sdk::Parameter parameter;
      parameter.elements = draw() % 8 == 0 ? 0 : 64 * (1 + draw() % 16);
      parameter.bytes = parameter.elements * 4;
      parameter.persistent = draw() % 8 == 0;
      parameter.external = draw() % 16 == 0;
      parameter.frozen = draw() % 4 == 0;
      if (has_gradients && !parameter.frozen) {
        parameter.gradient_bytes = parameter.bytes;
        parameter.received_bytes = parameter.bytes * (draw() % 4);
      }
      model.modules.back().own.push_back(static_cast<uint32_t>(model.parameters.size()));
      model.parameters.push_back(parameter);
      made.all += parameter.bytes + parameter.gradient_bytes + parameter.received_bytes;
    }
  }
  for (uint32_t module = 1; module < modules; ++module) {  // tied
    if (model.parameters.empty() || draw() % 6 != 0) continue;
    const uint32_t other = draw() % static_cast<uint32_t>(model.parameters.size());
    std::vector<uint32_t>& own = model.modules[module].own;
    if (std::find(own.begin(), own.end(), other) == own.end()) model.modules[module].external.push_back(other);
  }
  return made;
}

}  // namespace

TEST_CASE("gradients linger where the host offers it and two modules have room beside them, and not else") {
  constexpr uint64_t kLargeLayer = 4096;
  const auto lingering = [](uint64_t budget, uint64_t flags) {
    sdk::Model model;
    model.modules.emplace_back();
    std::vector<uint32_t> layers;
    for (uint32_t i = 0; i < 12; ++i) {
      sdk::Parameter parameter;
      parameter.elements = kLargeLayer / 4;
      parameter.bytes = parameter.gradient_bytes = kLargeLayer;
      parameter.received_bytes = kLargeLayer / 2;
      model.parameters.push_back(parameter);
      model.modules.push_back({{i}, {}, {}, false});
      model.modules[0].children.push_back(i + 1);
      layers.push_back(i + 1);
    }
    model.budget = budget;
    model.reduce_flags = flags;
    Trainer trainer(model, {16, 2, 0});
    for (int pass = 0; pass < 4; ++pass) {
      trainer.forget();
      trainer.pass(layers);
      trainer.end_step();
    }
    size_t reduces = 0;
    size_t lingers = 0;
    for (size_t i = 0; i < trainer.said().size(); i += 4) {
      if (trainer.said()[i] != PLIANT_ACTION_REDUCE) continue;
      ++reduces;
      lingers += trainer.said()[i + 2] == PLIANT_ACTION_LINGER ? 1 : 0;
    }
    CHECK(reduces == 12);
    return lingers;
  };
  CHECK(lingering(0, PLIANT_ACTION_LINGER) == 12);
  CHECK(lingering(0, 0) == 0);
  CHECK(lingering(8 * kLargeLayer, PLIANT_ACTION_LINGER) == 12);
  CHECK(lingering(8 * kLargeLayer, 0) == 0);
  CHECK(lingering(4 * kLargeLayer, PLIANT_ACTION_LINGER) == 0);  // less than two modules beside them
  CHECK(lingering(15 * kLargeLayer, PLIANT_ACTION_LINGER) == 12);
}

TEST_CASE("a pass that leaves out modules, and so its order, has the room that it has where nothing lingers") {
  for (const uint64_t flags : {uint64_t{0}, uint64_t{PLIANT_ACTION_LINGER}}) {
    CAPTURE(flags);
    sdk::Model model;
    model.modules.emplace_back();
    const auto add = [&model](uint64_t units) {
      sdk::Parameter parameter;
      parameter.bytes = parameter.received_bytes = units * kUnit;
      parameter.gradient_bytes = 2 * parameter.bytes;
      parameter.elements = parameter.bytes / sizeof(float);
      const auto number = static_cast<uint32_t>(model.parameters.size());
      model.parameters.push_back(parameter);
      model.modules.push_back({{number}, {}, {}, false});
      model.modules[0].children.push_back(number + 1);
    };
    for (const auto units : std::vector<uint64_t>{50, 1, 1, 50}) add(units);
    model.budget = 256 * kUnit;
    model.reduce_flags = flags;
    Trainer trainer(model, {16, 2, 0});
    for (int pass = 0; pass < 3; ++pass) {
      trainer.pass({4, 3, 2, 1});
      trainer.end_step();
    }
    trainer.pass({4, 1});
    trainer.end_step();
  }
}

TEST_CASE("whatever is visited, no rule is broken, the budget is kept, and gradients have their room") {
  std::mt19937 drawn(20261127);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  uint64_t visits = 0;
  uint64_t programs = 0;
  uint64_t refused = 0;
  uint64_t without_room = 0;
  while (visits < 1'000'000) {
    auto [model, all] = drawn_model(draw);
    model.reduce_flags = programs % 2 == 0 ? PLIANT_ACTION_LINGER : 0;
    const uint64_t kind = draw() % 4;  // of the budget: none, room for all and for gaps between gradients, tight ones
    model.budget = kind == 0 ? 0 : kind == 1 ? 2 * all + 256 : (all / 3 + draw() % (all + 256)) / 256 * 256 + 256;
    uint64_t of_this = 0;
    try {
      Trainer trainer(model, {draw() % 5 + 1, draw() % 4, draw() % 2 * 2048, draw() % 3 * 1024});
      const auto walk = [&, &modules = model.modules](auto& self, uint32_t module, bool backward,
                                                      uint32_t order) -> void {
        trainer.enter(module, backward);
        ++of_this;
        std::vector<uint32_t> children = modules[module].children;
        if (modules[module].leaf) children.clear();
        if (backward) std::reverse(children.begin(), children.end());
        if (order % 3 == 1 && children.size() > 1) std::swap(children.front(), children.back());
        for (const uint32_t child : children) {
          if (order % 5 != 4 || child % 2 == 0) self(self, child, backward, order);
        }
        if (backward && order % 7 == 3) {
          trainer.enter(module, false, true);
          trainer.leave(module, false, true);
        }
        trainer.leave(module, backward);
      };
      for (int pass = 0; pass < 10; ++pass) {
        const uint32_t order = draw() % 8;
        const bool with_gradient = draw() % 4 != 0;
        trainer.begin_pass(with_gradient);
        walk(walk, 0, false, order);
        if (draw() % 16 == 0) {  // given up
          trainer.end_step();
          continue;
        }
        if (with_gradient) walk(walk, 0, true, order);
        trainer.end_pass();
        if (draw() % 2 == 0) trainer.end_step();
      }
      trainer.end_step();
      if (model.budget > 0) REQUIRE(trainer.most_whole() <= model.budget);
    } catch (const sdk::Failure& failure) {
      REQUIRE(failure.status() == PLIANT_RESOURCE_EXHAUSTED);
      REQUIRE(kind > 1);
      ++refused;
    } catch (const NoRoom&) {
      REQUIRE(kind > 1);
      ++without_room;
    }
    ++programs;
    visits += of_this;
  }
  MESSAGE(visits, " visits of ", programs, " programs; ", refused, " found no room for a parameter, ", without_room,
          " none for a gradient");
  CHECK(refused + without_room < programs / 4);
}
