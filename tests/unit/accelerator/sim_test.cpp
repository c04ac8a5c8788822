// The simulator: the same seed makes the same faults, and what the contract promises holds under all of them.
#include <memory>
#include <set>

#include "collective_cases.hpp"
#include "sim/injection.hpp"

using namespace pliant_test;
using pliant::accelerator::CostModel;
using pliant::accelerator::Injection;
using pliant::accelerator::InjectionPlan;
using pliant::accelerator::Piece;
using pliant::accelerator::VirtualClock;
using pliant::accelerator::WorkKind;

namespace {

using Slots = pliant_accelerator;

/// Which of 3 streams wrote last to each of 6 cells, when all were let go at once.
std::string last_writers(int64_t seed) {
  const Device device({{{"reorder", 1}, {"seed", seed}}, {}, {}}, kSimFile);
  const Stream gate(device);
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  Comm near(device, id, 0, 2);
  Comm far(device, id, 1, 2);
  Event opened(device);
  REQUIRE(device.call(&pliant_collectives::barrier, near, gate).ok());
  REQUIRE(device.call(&Slots::event_record, opened, gate).ok());

  std::string cells(6, '?');
  std::string own(3, '?');
  std::vector<std::unique_ptr<Stream>> streams;
  for (int s = 0; s < 3; ++s) {
    const Stream& stream = *streams.emplace_back(std::make_unique<Stream>(device));
    REQUIRE(device.call(&Slots::stream_wait_event, stream, opened).ok());
    for (char& cell : cells) REQUIRE(device.call(&Slots::fill_async, &cell, 'a' + s, 1, stream).ok());
    for (const int step : {'1', '2'})
      REQUIRE(device.call(&Slots::fill_async, &own[static_cast<size_t>(s)], step, 1, stream).ok());
  }
  const Stream opener(device);
  REQUIRE(device.call(&pliant_collectives::barrier, far, opener).ok());
  for (const auto& stream : streams) CHECK(stream->synchronize().ok());
  CHECK(own == "222");  // each stream keeps its own order
  return cells;
}

/// "+" for an allocation that worked, "-" for one that failed.
std::string allocations(const OptionSettings& settings) {
  const Device device(settings, kSimFile);
  std::string pattern;
  for (int i = 0; i < 40; ++i) {
    void* pointer = nullptr;
    const Outcome outcome = device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &pointer);
    CHECK((outcome.ok() || outcome.status == PLIANT_RESOURCE_EXHAUSTED));
    pattern += outcome.ok() ? '+' : '-';
    device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, pointer);
  }
  return pattern;
}

}  // namespace

TEST_CASE("the simulator reorders work between streams, never within one, and repeats itself from the seed") {
  std::set<std::string> orders;
  for (int64_t seed = 1; seed <= 8; ++seed) {
    const std::string first = last_writers(seed);
    CHECK(last_writers(seed) == first);
    orders.insert(first);
  }
  CHECK(orders.size() > 1);
}

TEST_CASE("the simulator fails the named allocations and the device recovers") {
  CHECK(allocations({{}, {}, {{"fail_alloc_at", {1, 3, 40}}}}) == "-+-" + std::string(36, '+') + "-");
  CHECK(allocations({}) == std::string(40, '+'));
}

TEST_CASE("the simulator draws failing allocations from the seed") {
  const auto drawn = [](int64_t seed) {
    return allocations({{{"seed", seed}}, {{"fail_alloc_probability", 0.5}}, {}});
  };
  const std::string first = drawn(7);
  CHECK(drawn(7) == first);
  CHECK(drawn(8) != first);
  CHECK(first.find('-') != std::string::npos);
  CHECK(first.find('+') != std::string::npos);
}

TEST_CASE("the simulator draws delays from the seed, up to the longest allowed") {
  InjectionPlan plan;
  plan.max_delay_us = 9;
  const Injection one(plan);
  const Injection again(plan);
  plan.seed = 2;
  const Injection other(plan);
  std::set<int64_t> seen;
  bool differs = false;
  for (uint64_t i = 0; i < 200; ++i) {
    CHECK(one.delay_us(i % 3, i) == again.delay_us(i % 3, i));
    differs = differs || one.delay_us(i % 3, i) != other.delay_us(i % 3, i);
    seen.insert(one.delay_us(i % 3, i));
  }
  CHECK(differs);
  CHECK(*seen.begin() == 0);
  CHECK(*seen.rbegin() == 9);
}

TEST_CASE("a rank that the simulator loses is named to all ranks at that collective, not before") {
  const OptionSettings lose{{{"lost_rank", 1}, {"lost_at", 3}}, {}, {}};
  for (const Kind kind : kKinds) {
    INFO(std::string(name_of(kind)));
    Processes processes(
        3,
        [kind](const Rank& self) -> std::string {
          Comm comm(self.device, self.id(), self.rank, self.world_size);
          const Stream stream(self.device);
          for (int i = 1; i <= 2; ++i) {
            std::string fault =
                run_case<float>(self.device, comm, stream, Kind::kAllReduce, self.rank, self.world_size, 100);
            if (!fault.empty()) return fault;
          }
          // A root may be done before others come, so the next call tells at the latest.
          Case<float> one(kind, self.rank, self.world_size, 100, PLIANT_SUM, false);
          one.start(self.device, comm, stream);
          self.device.call(&pliant_collectives::barrier, comm, stream);
          return stream.synchronize().text();
        },
        lose, kSimFile);
    for (const RankEnd& end : processes.ends()) {
      CHECK(end.text == std::to_string(PLIANT_PEER_LOST) + ": rank 1 is lost: the simulator injected its loss");
    }
  }
}

TEST_CASE("collectives stay right under delays and reordering") {
  for (const int64_t reorder : {0, 1}) {
    const Device device({{{"max_delay_us", 200}, {"reorder", reorder}, {"chunk_bytes", 4096}, {"seed", 5}}, {}, {}},
                        kSimFile);
    for (const std::string& fault : run_threads(device, 3, [](const Rank& self) -> std::string {
           Comm comm(self.device, self.id(), self.rank, self.world_size);
           const Stream stream(self.device);
           for (uint64_t i = 0; i < 25; ++i) {
             std::string wrong =
                 run_case<float>(self.device, comm, stream, kind_of(i), self.rank, self.world_size, i * 211);
             if (!wrong.empty()) return wrong;
           }
           return "";
         })) {
      CHECK(fault == "");
    }
  }
}

TEST_CASE(
    "a piece that is asked for its time passes what hangs on a collective, which then takes its engine after it") {
  using pliant::sdk::StreamRole;
  CostModel costs;
  costs.launch_ns = 0;
  costs.memory_gbps = 1;
  costs.collective_ns = 10;
  VirtualClock clock(costs);
  clock.opened(0, StreamRole::kCompute);
  clock.opened(1, StreamRole::kCompute);
  clock.opened(2, StreamRole::kGather);
  const auto local = [](uint64_t bytes) { return Piece{.kind = WorkKind::kLocal, .bytes = bytes}; };
  const auto gather = clock.enqueued(2, {.kind = WorkKind::kCollective}, 1, 0);
  clock.enqueued(0, {.kind = WorkKind::kEventWait, .after = gather}, 1, 0);
  const auto hangs = clock.enqueued(0, local(100), 1, 0);
  const auto asked = clock.enqueued(1, local(50), 1, 0);
  const auto waits = clock.enqueued(1, local(5), 1, 0);
  CHECK(clock.end_ns(*asked) == 50);
  CHECK(clock.ready_ns(*gather) == 0);
  CHECK(clock.transferred(*gather, 0, 0) == 10);
  clock.ended(*gather);
  CHECK(clock.end_ns(*gather) == 10);
  CHECK(clock.end_ns(*hangs) == 150);
  CHECK(clock.end_ns(*waits) == 155);
}

TEST_CASE("the simulator says that it is one") {
  const Device device({}, kSimFile);
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  CHECK(device.call(&Slots::device_properties, 0, &properties).ok());
  CHECK(std::string(properties.name) == "sim (test double)");
}
