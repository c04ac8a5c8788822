// The simulator's virtual clock: times follow the cost model to the nanosecond, whatever the real threads do.
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ranks.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

/// 1 GB/s everywhere: a byte is a nanosecond. 1 us a piece, 10 us a collective.
OptionSettings costs(int64_t max_delay_us = 0, int64_t slow_rank = -1) {
  return {{{"max_delay_us", max_delay_us}, {"slow_rank", slow_rank}},
          {{"launch_us", 1.0},
           {"to_device_gbps", 1.0},
           {"to_host_gbps", 1.0},
           {"memory_gbps", 1.0},
           {"collective_us", 10.0},
           {"collective_gbps", 1.0},
           {"slow_factor", 3.0}},
          {},
          {{"clock", "virtual"}}};
}

constexpr uint64_t kLaunch = 1000;
constexpr uint64_t kCollective = 10000;
constexpr uint64_t kBytes = 40000;

int64_t elapsed_ns(const Device& device, pliant_event* begin, pliant_event* end) {
  double seconds = -1;
  const Outcome told = device.call(&Slots::event_elapsed, begin, end, &seconds);
  if (!told.ok()) throw std::runtime_error(told.text());
  return std::llround(seconds * 1e9);
}

/// Memory, and what a test enqueues. A begin event is recorded before anything else, so times count from 0.
struct Bench {
  explicit Bench(const Device& on) : device(on), start(on), begin(on, true), from(kBytes * 8, 1), to(kBytes * 8) {
    record(begin, start);
  }
  void record(const Event& event, const Stream& stream) const {
    const Outcome outcome = device.call(&Slots::event_record, event, stream);
    if (!outcome.ok()) throw std::runtime_error(outcome.text());
  }
  void wait(const Stream& stream, const Event& event) const {
    CHECK(device.call(&Slots::stream_wait_event, stream, event).ok());
  }
  void copy(const Stream& stream, uint64_t bytes = kBytes) {
    CHECK(device.call(&Slots::copy_async, to.data() + used, from.data(), bytes, stream).ok());
    used += bytes;
  }
  void fill(const Stream& stream, uint64_t bytes) {
    CHECK(device.call(&Slots::fill_async, to.data() + used, 3, bytes, stream).ok());
    used += bytes;
  }
  /// When all that is on the stream by now is done.
  std::unique_ptr<Event> mark(const Stream& stream) const {
    auto made = std::make_unique<Event>(device, true);
    record(*made, stream);
    return made;
  }
  int64_t time(const Event& event) const {
    CHECK(device.call(&Slots::event_synchronize, begin).ok());
    CHECK(device.call(&Slots::event_synchronize, event).ok());
    return elapsed_ns(device, begin, event);
  }

  const Device& device;
  Stream start;
  Event begin;
  std::vector<char> from;
  std::vector<char> to;
  uint64_t used = 0;
};

}  // namespace

TEST_CASE("copies of opposite directions overlap, and those of one direction take turns") {
  const Device device(costs(), kSimFile);
  Bench bench(device);
  const Stream up(device, PLIANT_STREAM_TO_DEVICE);
  const Stream down(device, PLIANT_STREAM_TO_HOST);
  const Stream up_too(device, PLIANT_STREAM_TO_DEVICE);
  bench.copy(up);
  bench.copy(down);
  bench.copy(up_too);
  const auto first = bench.mark(up);
  const auto beside = bench.mark(down);
  const auto second = bench.mark(up_too);
  CHECK(bench.time(*first) == kLaunch + kBytes);
  CHECK(bench.time(*beside) == kLaunch + kBytes);
  CHECK(bench.time(*second) == 2 * (kLaunch + kBytes));
  CHECK(bench.to[kBytes * 3 - 1] == 1);  // and the bytes are there
}

TEST_CASE("time that a stream spends takes the engine of its role for that long, and no time of the machine") {
  constexpr uint64_t kHour = uint64_t{1000} * 1000 * 1000 * 1000;
  const Device device(costs(), kSimFile);
  Bench bench(device);
  const Stream computes(device);
  const Stream also(device);
  const Stream copies(device, PLIANT_STREAM_TO_DEVICE);
  CHECK(device.call(&Slots::spend_async, kHour, computes).ok());
  bench.fill(also, 1);
  bench.copy(copies);
  CHECK(device.call(&Slots::spend_async, 77, computes).ok());
  const auto spent = bench.mark(computes);
  const auto behind = bench.mark(also);
  const auto beside = bench.mark(copies);
  CHECK(bench.time(*beside) == kLaunch + kBytes);
  CHECK(bench.time(*behind) == static_cast<int64_t>(kHour + kLaunch + 1));
  CHECK(bench.time(*spent) == static_cast<int64_t>(kHour + kLaunch + 1 + 77));
}

TEST_CASE("tiny pieces take their launch, and empty ones too") {
  const Device device(costs(), kSimFile);
  Bench bench(device);
  const Stream stream(device);
  for (int i = 0; i < 100; ++i) bench.fill(stream, 1);
  for (int i = 0; i < 100; ++i) bench.fill(stream, 0);
  const auto end = bench.mark(stream);
  CHECK(bench.time(*end) == 200 * kLaunch + 100);
}

TEST_CASE("a piece begins after the event that its stream waits for, and takes a gap that others left") {
  const Device device(costs(), kSimFile);
  Bench bench(device);
  const Stream copies(device, PLIANT_STREAM_TO_DEVICE);
  const Stream computes(device);
  const Stream also(device);
  bench.copy(copies);
  const auto copied = bench.mark(copies);
  bench.wait(computes, *copied);
  bench.fill(computes, 5000);
  bench.fill(also, 3000);   // fits before the copy has ended
  bench.fill(also, 60000);  // does not: after the other one
  const auto first = bench.mark(computes);
  const auto last = bench.mark(also);
  const int64_t copy_ns = kLaunch + kBytes;
  CHECK(bench.time(*first) == copy_ns + static_cast<int64_t>(kLaunch) + 5000);
  CHECK(bench.time(*last) == copy_ns + static_cast<int64_t>(2 * kLaunch) + 65000);
}

TEST_CASE("what the host enqueues after it waited begins after what it waited for") {
  const Device device(costs(), kSimFile);
  Bench bench(device);
  const Stream one(device, PLIANT_STREAM_TO_DEVICE);
  const Stream other(device);
  bench.copy(one);
  CHECK(one.synchronize().ok());
  bench.fill(other, 10);
  const auto end = bench.mark(other);
  CHECK(bench.time(*end) == 2 * kLaunch + kBytes + 10);
}

TEST_CASE("delays lengthen virtual times, the same in every run and others for another seed") {
  const auto run = [](int64_t seed) {
    OptionSettings settings = costs(50);
    settings.integers["seed"] = seed;
    const Device device(settings, kSimFile);
    Bench bench(device);
    const Stream stream(device);
    for (int i = 0; i < 20; ++i) bench.fill(stream, 100);
    return bench.time(*bench.mark(stream));
  };
  const int64_t first = run(1);
  CHECK(first > static_cast<int64_t>(20 * (kLaunch + 100)));
  CHECK(run(1) == first);
  CHECK(run(2) != first);
}

namespace {

/// Runs `body` as that many ranks, each a thread with an instance of its own, for each returns a text that must be
/// empty.
void as_ranks(int32_t world_size, const OptionSettings& settings,
              const std::function<std::string(const Rank&, const Comm&, Bench&)>& body) {
  Processes processes(
      world_size,
      [&](const Rank& self) -> std::string {
        const Comm comm(self.device, self.id(), self.rank, self.world_size);
        if (!comm.status(-1).ok()) return comm.status(-1).text();
        Bench bench(self.device);
        return body(self, comm, bench);
      },
      settings, kSimFile);
  for (const RankEnd& end : processes.ends()) CHECK(end.text == "");
}

std::string differs(const char* what, int64_t got, int64_t wanted) {
  if (got == wanted) return "";
  return std::string(what) + ": " + std::to_string(got) + " ns, not " + std::to_string(wanted);
}

}  // namespace

TEST_CASE("a gather under a computation is hidden") {
  as_ranks(3, costs(), [](const Rank& self, const Comm& comm, Bench& bench) {
    const Stream gathers(self.device, PLIANT_STREAM_GATHER);
    const Stream computes(self.device);
    bench.fill(computes, 100000);
    std::vector<char> gathered(3 * 1000);
    Outcome called = self.device.call(&pliant_collectives::all_gather, comm, bench.from.data(), gathered.data(), 1000,
                                      PLIANT_U8, gathers);
    const auto ready = bench.mark(gathers);
    bench.wait(computes, *ready);
    bench.fill(computes, 100);
    const auto end = bench.mark(computes);
    if (!called.ok()) return called.text();
    std::string wrong = differs("gather", bench.time(*ready), kCollective + 3000);
    if (wrong.empty()) wrong = differs("all", bench.time(*end), 2 * kLaunch + 100100);
    return wrong;
  });
}

TEST_CASE("a slow rank delays all by exactly its time") {
  as_ranks(3, costs(0, 1), [](const Rank& self, const Comm& comm, Bench& bench) {
    const Stream stream(self.device);
    bench.fill(stream, 20000);
    Outcome called = self.device.call(&pliant_collectives::all_reduce, comm, bench.from.data(), bench.to.data(), 500,
                                      PLIANT_F32, PLIANT_SUM, stream);
    const auto reduced = bench.mark(stream);
    if (!called.ok()) return called.text();
    return differs("all_reduce", bench.time(*reduced), 3 * (kLaunch + 20000) + kCollective + 2000);
  });
}

TEST_CASE("collectives of a communicator take turns, on whatever streams they are") {
  as_ranks(2, costs(), [](const Rank& self, const Comm& comm, Bench& bench) {
    const Stream first(self.device, PLIANT_STREAM_GATHER);
    const Stream second(self.device, PLIANT_STREAM_SCATTER);
    for (int i = 0; i < 5; ++i) {
      self.device.call(&pliant_collectives::broadcast, comm, bench.to.data(), 1000, PLIANT_U8, 0, first);
      self.device.call(&pliant_collectives::barrier, comm, second);
    }
    const auto end = bench.mark(second);
    return differs("the last barrier", bench.time(*end), 10 * kCollective + 5000);
  });
}

TEST_CASE("a message begins when both sides could begin") {
  as_ranks(2, costs(), [](const Rank& self, const Comm& comm, Bench& bench) {
    const Stream stream(self.device);
    const bool sends = self.rank == 0;
    bench.fill(stream, sends ? 7000 : 30000);
    const auto slot = sends ? 0 : 1;
    const Outcome called =
        slot == 0 ? self.device.call(&pliant_collectives::send, comm, bench.from.data(), 2000, PLIANT_U8, 1, stream)
                  : self.device.call(&pliant_collectives::recv, comm, bench.to.data(), 2000, PLIANT_U8, 0, stream);
    const auto end = bench.mark(stream);
    if (!called.ok()) return called.text();
    return differs("the message", bench.time(*end), kLaunch + 30000 + kCollective + 2000);
  });
}

TEST_CASE("virtual times are the same in every run under a drawn order of the real work") {
  std::string first;
  for (int round = 0; round < 6; ++round) {
    OptionSettings settings = costs(30);
    settings.integers["reorder"] = round % 2;
    const Device device(settings, kSimFile);
    Bench bench(device);
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Event>> marks;
    for (int s = 0; s < 5; ++s) streams.push_back(std::make_unique<Stream>(device, s));
    for (uint64_t i = 0; i < 40; ++i) {
      const Stream& stream = *streams[i % 5];
      if (i > 7) bench.wait(stream, *marks[i - 7]);
      bench.copy(stream, 100 + i * 37 % 900);
      marks.push_back(bench.mark(stream));
    }
    std::string times;
    for (const auto& mark : marks) times += std::to_string(bench.time(*mark)) + " ";
    if (first.empty()) first = times;
    CHECK(times == first);
  }
}
