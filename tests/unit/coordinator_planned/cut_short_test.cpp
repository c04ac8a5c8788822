// Passes that end before they have come to their end: evaluations, stops and exceptions.
#include <doctest/doctest.h>

#include <numeric>
#include <stdexcept>
#include <vector>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using namespace pliant::coordinator::planned::test;

namespace {

constexpr uint32_t kDeep = 10;

/// A trainer that knows its passes.
Trainer steady() {
  Trainer trainer(layers_of(std::vector<uint64_t>(kDeep, kLayer), 3 * kLayer));
  return trainer;
}

std::vector<uint32_t> all_layers() {
  std::vector<uint32_t> layers(kDeep);
  std::iota(layers.begin(), layers.end(), 1U);
  return layers;
}

Gathered whole_step(Trainer& trainer) {
  const Gathered made = trainer.pass(all_layers());
  trainer.end_step();
  return made;
}

/// Of a pass, forward and backward, so many visits of layers.
void begin_visits(Trainer& trainer, uint32_t visits, bool with_gradient = true) {
  trainer.begin_pass(with_gradient);
  trainer.enter(0);
  for (uint32_t visit = 0; visit < visits; ++visit) {
    if (visit == kDeep) {
      trainer.leave(0);
      trainer.enter(0, true);
    }
    const bool backward = visit >= kDeep;
    const uint32_t layer = backward ? 2 * kDeep - visit : visit + 1;
    trainer.enter(layer, backward);
    trainer.leave(layer, backward);
  }
}

}  // namespace

TEST_CASE("a pass that is given up at any visit leaves nothing whole, and the next one is as ever") {
  Trainer trainer = steady();
  for (int known = 0; known < 3; ++known) whole_step(trainer);
  const Gathered ever = whole_step(trainer);
  for (uint32_t visits = 0; visits <= 2 * kDeep; ++visits) {
    CAPTURE(visits);
    begin_visits(trainer, visits);
    trainer.end_step();
    const Gathered next = whole_step(trainer);
    CHECK(next.bytes == ever.bytes);
    CHECK(next.late == 0);
    CHECK(trainer.most_whole() <= 3 * kLayer);
  }
}

TEST_CASE("a module may be given up while it is entered") {
  Trainer trainer = steady();
  for (int known = 0; known < 3; ++known) whole_step(trainer);
  for (const bool is_new : {false, true}) {
    trainer.begin_pass();
    trainer.enter(0);
    trainer.enter(is_new ? 5 : 1);
    trainer.end_step();
    CHECK(whole_step(trainer).late == 0);
  }
}

TEST_CASE("a pass that ends early costs no more than it gathered, and the next one is as ever") {
  Trainer trainer = steady();
  for (int known = 0; known < 3; ++known) whole_step(trainer);
  const Gathered ever = whole_step(trainer);
  for (uint32_t visits = 1; visits < 2 * kDeep; visits += 3) {
    CAPTURE(visits);
    begin_visits(trainer, visits);
    trainer.leave(0, visits > kDeep);
    CHECK(trainer.end_pass().groups <= visits + 2);  // two visits may have been gathered ahead
    trainer.end_step();
    for (int known = 0; known < 4; ++known) whole_step(trainer);
    const Gathered next = whole_step(trainer);
    CHECK(next.bytes == ever.bytes);
    CHECK(next.late == 0);
  }
}

TEST_CASE("an evaluation that stops at any layer, between steps or inside one, changes no step for long") {
  Trainer trainer = steady();
  for (int known = 0; known < 3; ++known) whole_step(trainer);
  const Gathered ever = whole_step(trainer);
  for (uint32_t visits = 1; visits <= kDeep; ++visits) {
    CAPTURE(visits);
    begin_visits(trainer, visits, false);
    trainer.leave(0);
    trainer.end_pass();
    trainer.end_step();
    for (int known = 0; known < 4; ++known) whole_step(trainer);
    const Gathered next = whole_step(trainer);
    CHECK(next.bytes == ever.bytes);
    CHECK(next.late == 0);
    CHECK(trainer.most_whole() <= 3 * kLayer);
  }
}
