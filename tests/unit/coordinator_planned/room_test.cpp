// Spots in an arena, against all that there are.
#include "room.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "trainer.hpp"

using namespace pliant::coordinator::planned;
using pliant::coordinator::planned::test::kUnit;

namespace {

constexpr uint64_t kUnits = 40;  // of the arena
constexpr uint32_t kParameters = 24;

/// An arena with parameters here and there, of which some are used.
class Drawn {
 public:
  explicit Drawn(std::mt19937& drawn) : random_(drawn), room_(Layout(model())) {
    uint64_t place = draw() % 3;
    for (uint32_t parameter = 0; parameter < kParameters; ++parameter) {
      const uint64_t units = 1 + (draw() % 4 == 0 ? draw() % 9 : 0);
      costs.push_back(units * (1 + draw() % 3));
      if (place + units > kUnits) continue;
      const bool is_used = draw() % 6 == 0;
      room_.take(parameter, place * kUnit, units * kUnit);
      room_.set_next(parameter, draw() % 5 == 0 ? kNever : 1 + draw() % 20);
      if (is_used) room_.enter(parameter, 1);
      there.push_back(parameter);
      place += units + (draw() % 3 == 0 ? 1 + draw() % 2 : 0);
    }
    // The links between neighbours outlive what goes.
    for (size_t i = there.size(); i-- > 0;) {
      if (draw() % 5 != 0) continue;
      room_.drop(there[i]);
      there.erase(there.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  uint64_t draw() { return random_(); }
  [[nodiscard]] const Room& room() const { return room_; }
  /// What would go there; nullopt where something may not.
  [[nodiscard]] std::optional<std::vector<uint32_t>> goes_at(uint64_t place, const Room::Want& want) const {
    std::vector<uint32_t> goes;
    for (const uint32_t parameter : there) {
      const Room::Held& one = room_.at(parameter);
      if (one.place >= place + want.bytes || one.place + one.bytes <= place) continue;
      if (one.users > 0 || one.next <= want.until) return std::nullopt;
      goes.push_back(parameter);
    }
    return goes;
  }
  [[nodiscard]] double loss_of(const std::vector<uint32_t>& goes, const Room::Want& want) const {
    double loss = 0;
    for (const uint32_t parameter : goes) {
      const Moment next = room_.at(parameter).next;
      const auto cost = static_cast<double>(costs[parameter]);
      const double distance = next == kNever ? 0 : 1 / static_cast<double>(next - want.now);
      if (want.weighing == Weighing::kTime) loss = std::max(loss, distance);
      if (want.weighing == Weighing::kCostByTime) loss += cost * distance;
      if (want.weighing == Weighing::kCost && next != kNever) loss += cost;
    }
    return loss;
  }

  std::vector<uint64_t> costs;
  std::vector<uint32_t> there;  ///< by place

 private:
  static sdk::Model model() {
    return pliant::coordinator::planned::test::layers_of(std::vector<uint64_t>(kParameters, kUnit), kUnits * kUnit);
  }
  std::mt19937& random_;
  Room room_;
};

}  // namespace

TEST_CASE("of all spots the cheapest is found, and one is found wherever there is any") {
  std::mt19937 random(11);
  int found = 0;
  int none = 0;
  for (int round = 0; round < 20000; ++round) {
    Drawn arena(random);
    Room::Want want;
    want.bytes = (1 + arena.draw() % 12) * kUnit;
    want.top = (kUnits - arena.draw() % 5) * kUnit;
    want.until = arena.draw() % 4;
    want.thorough = true;
    constexpr Weighing kWays[] = {Weighing::kCostByTime, Weighing::kTime, Weighing::kCost};
    constexpr Side kSides[] = {Side::kBestFit, Side::kLow, Side::kHigh};
    want.weighing = kWays[arena.draw() % 3];
    want.side = kSides[arena.draw() % 3];
    std::optional<double> least;
    for (uint64_t place = 0; place + want.bytes <= want.top; place += kUnit) {
      const auto goes = arena.goes_at(place, want);
      if (goes) least = std::min(least.value_or(1e9), arena.loss_of(*goes, want));
    }
    for (const bool is_cheapest : {true, false}) {
      const Room& room = arena.room();
      const auto spot = is_cheapest ? room.cheapest_spot(want, arena.costs) : room.find(want, arena.costs);
      REQUIRE(spot.has_value() == least.has_value());
      if (!spot) continue;
      REQUIRE(spot->place + want.bytes <= want.top);
      auto goes = spot->goes;
      std::sort(goes.begin(), goes.end());
      REQUIRE(arena.goes_at(spot->place, want) == goes);
      if (is_cheapest) REQUIRE(arena.loss_of(goes, want) == doctest::Approx(*least).epsilon(1e-5));
    }
    ++(least ? found : none);
  }
  CHECK(found > 10000);
  CHECK(none > 200);
}
