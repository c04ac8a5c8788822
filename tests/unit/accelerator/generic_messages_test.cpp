// Messages through the collectives that core builds: in each way, of more than a stage holds, and when ranks end.
#include <algorithm>
#include <random>

#include "generic_device.hpp"
#include "message_calls.hpp"

using namespace pliant_test;

namespace {

using S = pliant_collectives;

/// Elements of 8 bytes: more than a stage holds.
constexpr uint64_t kMore = 700001;

/// Ranks with a communicator and a stream each.
template <class Body>
std::vector<RankEnd> ends_with_comm(const Setup& setup, int32_t world_size, Body body, bool late = false) {
  return ends_of(
      setup, world_size,
      [body](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
        const Stream stream(self.device);
        return body(self, comm, stream);
      },
      late);
}

int64_t live_allocations(const Setup& setup) {
#ifdef PLIANT_SOFT_LEVEL_ZERO
  if (setup.options == kLevelZero) return software_driver_counts().allocations;
#endif
#ifdef PLIANT_SOFT_CUDA
  if (setup.options == kCuda) return software_cuda_counts().allocations;
#endif
  return -1;
}

/// Memory of the device itself, which is gone at the end.
class OnDevice {
 public:
  OnDevice(const Device& device, uint64_t bytes) : device_(device) {
    const Outcome made = device.call(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, bytes, &memory_);
    if (!made.ok()) throw std::runtime_error(made.text());
  }
  ~OnDevice() { device_.slots().free(device_.self(), 0, PLIANT_MEMORY_DEVICE, memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  [[nodiscard]] void* at() const { return memory_; }

 private:
  const Device& device_;
  void* memory_ = nullptr;
};

}  // namespace

TEST_CASE("messages of no, few and more bytes than a stage holds arrive in their order, in each way") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const auto both_ways = [](const Rank& self, pliant_comm* comm, const Stream& stream) {
      Calls calls(self, comm, stream);
      const std::vector<uint64_t> counts = {0, 1, 511, kMore, 3, 0, 131072, 4 * kMore, 7};
      for (uint64_t i = 0; i < counts.size(); ++i) {
        self.rank == 0 ? calls.send(1, i, counts[i]) : calls.recv(0, i, counts[i]);
      }
      for (uint64_t i = 0; i < 30; ++i) {
        self.rank == 1 ? calls.send(0, i, i * 7) : calls.recv(1, i, i * 7);
      }
      return calls.finish();
    };
    for (const bool late : {false, true}) expect_all_well(ends_with_comm(setup, 2, both_ways, late));
  }
}

TEST_CASE("in a group every rank sends to every rank and itself through generic collectives, in any order of calls") {
  const auto rounds = [](const Rank& self, pliant_comm* comm, const Stream& stream) {
    Calls calls(self, comm, stream);
    for (uint64_t round = 0; round < 2; ++round) {
      // Pairs of (peer, is a send), shuffled; the messages of one pair keep their numbers.
      std::vector<std::pair<int32_t, bool>> order;
      for (int32_t peer = 0; peer < self.world_size; ++peer) {
        for (int i = 0; i < 3; ++i) order.insert(order.end(), {{peer, true}, {peer, false}});
      }
      std::mt19937 engine(static_cast<uint32_t>(self.rank * 10) + static_cast<uint32_t>(round));
      std::shuffle(order.begin(), order.end(), engine);
      std::vector<uint64_t> sent(static_cast<size_t>(self.world_size));
      std::vector<uint64_t> received(sent.size());
      const auto count = [round](int32_t from, int32_t to, uint64_t i) {
        const uint64_t drawn = (static_cast<uint64_t>(from * 7 + to * 3) + i * 5 + round) * 331 % 2600;
        return drawn % 7 == 0 ? drawn * 150 : drawn;
      };
      calls.begin();
      for (const auto& [peer, is_send] : order) {
        auto& done = (is_send ? sent : received)[static_cast<size_t>(peer)];
        const uint64_t tag = round * 10 + done;
        is_send ? calls.send(peer, tag, count(self.rank, peer, done))
                : calls.recv(peer, tag, count(peer, self.rank, done));
        ++done;
      }
      calls.end();
    }
    return calls.finish();
  };
  for (const Setup& setup : every_setup()) {
    for (const int32_t world_size : {1, 2, 5}) {
      INFO(setup.name, ", world size ", world_size);
      expect_all_well(ends_with_comm(setup, world_size, rounds));
    }
  }
}

// Rank 0 sends to 1, which waits for 3, which waits for 2, which waits for what rank 0 sends in the same group.
TEST_CASE("a message of more than a stage holds arrives while that to another rank has no receiver") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(ends_with_comm(setup, 4, [](const Rank& self, pliant_comm* comm, const Stream& stream) {
      Calls calls(self, comm, stream);
      if (self.rank == 0) {
        calls.begin();
        for (uint64_t i = 0; i < 3; ++i) calls.send(1, i, kMore);
        calls.send(2, 3, kMore);
        calls.send(2, 4, kMore);
        calls.end();
      } else if (self.rank == 1) {
        calls.recv(3, 0, 1);
        for (uint64_t i = 0; i < 3; ++i) calls.recv(0, i, kMore);
      } else if (self.rank == 2) {
        calls.recv(0, 3, kMore);
        calls.recv(0, 4, kMore);
        calls.send(3, 0, 1);
      } else {
        calls.recv(2, 0, 1);
        calls.send(1, 0, 1);
      }
      return calls.finish();
    }));
  }
}

TEST_CASE("messages between collectives, and in their groups, take no stage that a peer still reads") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const auto in_turns = [](const Rank& self, pliant_comm* comm, const Stream& stream) -> std::string {
      std::vector<Case<float>> cases;
      Calls calls(self, comm, stream);
      constexpr uint64_t kRounds = 12;
      for (uint64_t i = 0; i < kRounds; ++i) {
        const Kind kind = i % 3 == 2 ? Kind::kAllReduce : Kind::kAllGather;
        cases.emplace_back(kind, self.rank, 3, 60007 + i, PLIANT_SUM, false);
      }
      for (uint64_t i = 0; i < kRounds; ++i) {
        const bool together = i % 2 == 1;
        if (together) calls.begin();
        if (const Outcome made = cases[i].start(self.device, comm, stream); !made.ok()) return made.text();
        if (!together) calls.begin();
        calls.send((self.rank + 1) % 3, i, 50001);
        calls.recv((self.rank + 2) % 3, i, 50001);
        calls.end();
      }
      std::string fault = calls.finish();
      for (const Case<float>& one : cases) {
        if (fault.empty()) fault = one.check();
      }
      return fault;
    };
    expect_all_well(ends_with_comm(setup, 3, in_turns, true));
  }
}

// Where the carrier takes the buffers themselves it may have overwritten what is still to be sent.
TEST_CASE("in a group what is sent goes as it was when the group began, whatever is received there") {
  for (const Setup& setup : every_setup()) {
    if (setup.way == Way::kDirect) continue;
    INFO(setup.name);
    const auto swap = [](const Rank& self, pliant_comm* comm, const Stream& stream) -> std::string {
      const int32_t peer = 1 - self.rank;
      std::vector<int64_t> swapped(kMore, 100 + self.rank);
      std::vector<int64_t> turned(1000, 200 + self.rank);
      std::fill(turned.begin() + 500, turned.end(), 210 + self.rank);
      std::vector<int64_t> moved(1500);  // three parts of 500: a, b, c
      for (size_t i = 0; i < moved.size(); ++i) moved[i] = 300 + 10 * static_cast<int64_t>(i / 500) + self.rank;
      const auto call = [&](auto slot, int64_t* buffer, uint64_t count, int32_t with) {
        self.device.call(slot, comm, buffer, count, PLIANT_I64, with, stream);
      };
      self.device.call(&S::group_begin, comm);
      call(&S::recv, swapped.data(), kMore, peer);
      call(&S::send, swapped.data(), kMore, peer);
      call(&S::send, turned.data(), 500, self.rank);
      call(&S::send, turned.data() + 500, 500, self.rank);
      call(&S::recv, turned.data() + 500, 500, self.rank);
      call(&S::recv, turned.data(), 500, self.rank);
      call(&S::send, moved.data(), 1000, self.rank);
      call(&S::recv, moved.data() + 500, 1000, self.rank);
      call(&S::send, moved.data() + 500, 1000, peer);
      std::vector<int64_t> got(1000);
      call(&S::recv, got.data(), 1000, peer);
      self.device.call(&S::group_end, comm);
      if (const Outcome done = stream.synchronize(); !done.ok()) return done.text();
      const auto all = [](const std::vector<int64_t>& values, size_t first, int64_t wanted) {
        return std::all_of(values.begin() + static_cast<std::ptrdiff_t>(first),
                           values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), first + 500)),
                           [=](int64_t value) { return value == wanted; });
      };
      for (size_t first = 0; first < kMore; first += 500) {
        if (!all(swapped, first, 100 + peer)) return "what was swapped is wrong";
      }
      if (!all(turned, 0, 210 + self.rank) || !all(turned, 500, 200 + self.rank)) return "what was turned is wrong";
      if (!all(moved, 0, 300 + self.rank) || !all(moved, 500, 300 + self.rank) || !all(moved, 1000, 310 + self.rank))
        return "what was moved is wrong";
      return all(got, 0, 310 + peer) && all(got, 500, 320 + peer) ? "" : "what was overwritten there is wrong here";
    };
    expect_all_well(ends_with_comm(setup, 2, swap));
  }
}

namespace {

struct Busy {
  Board& board;
  static void run(void* context) {
    Board& board = static_cast<Busy*>(context)->board;
    board.flags[0].wait();
    for (int i = 0; i < 2000; ++i) std::this_thread::yield();
    board.flags[1].raise();
  }
};

}  // namespace

TEST_CASE("a message of nothing arrives when the work before it on its sender's stream has run") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(
        ends_with_comm(setup, 2, [](const Rank& self, pliant_comm* comm, const Stream& stream) -> std::string {
          double nothing = 0;
          Busy busy{self.board};
          if (self.rank == 0) {
            self.device.call(&pliant_accelerator::host_function, &Busy::run, static_cast<void*>(&busy), stream);
            self.device.call(&S::send, comm, &nothing, 0, PLIANT_F64, 1, stream);
            const Outcome sent = stream.synchronize();
            return sent.ok() ? "" : sent.text();
          }
          self.device.call(&S::recv, comm, &nothing, 0, PLIANT_F64, 0, stream);
          self.board.flags[0].raise();
          if (const Outcome got = stream.synchronize(); !got.ok()) return got.text();
          return self.board.flags[1].raised() ? "" : "it came before the work had run";
        }));
  }
}

TEST_CASE("messages of two communicators pass each other, and those on two streams keep the order of the calls") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(ends_of(setup, 2, [](const Rank& self) -> std::string {
      Comm first(self.device, self.id(), self.rank, self.world_size);
      if (const Outcome ready = first.status(-1); !ready.ok()) return ready.text();  // the board holds one id
      pliant_comm_id id{};
      if (self.rank == 0) {
        if (!self.device.call(&S::comm_id, 2, &id).ok()) return "comm_id";
        self.board.id = id;
        self.board.flags[0].raise();
      }
      self.board.flags[0].wait();
      Comm second(self.device, self.board.id, self.rank, self.world_size);
      const Stream one(self.device);
      const Stream other(self.device);
      Calls forth(self, first, one);
      Calls forth_too(self, first, other);
      Calls back(self, second, other);
      if (self.rank == 0) {
        forth.send(1, 0, kMore);
        back.recv(1, 0, kMore);
      } else {
        back.send(0, 0, kMore);
        forth.recv(0, 0, kMore);
      }
      for (uint64_t i = 1; i < 20; ++i) {
        Calls& calls = i % 3 == 0 ? forth_too : forth;
        self.rank == 0 ? calls.send(1, i, i * 5001) : calls.recv(0, i, i * 5001);
      }
      for (Calls* calls : {&forth, &forth_too, &back}) {
        if (std::string fault = calls->finish(); !fault.empty()) return fault;
      }
      return "";
    }));
  }
}

TEST_CASE("messages of another size or type are refused on both sides, and every other rank is told") {
  for (const Setup& setup : every_setup()) {
    for (const bool type : {false, true}) {
      INFO(setup.name, type ? ", of another type" : ", of another size");
      const auto ends = ends_with_comm(setup, 3, [type](const Rank& self, pliant_comm* comm, const Stream& stream) {
        std::vector<double> buffer(kMore);
        if (self.rank == 0) {
          self.device.call(&S::send, comm, buffer.data(), kMore, PLIANT_F64, 1, stream);
        } else if (self.rank == 1) {
          self.device.call(&S::recv, comm, buffer.data(), type ? kMore : 6, type ? PLIANT_I64 : PLIANT_F64, 0, stream);
        } else {
          self.device.call(&S::recv, comm, buffer.data(), 1, PLIANT_F64, 0, stream);
        }
        std::string text = stream.synchronize().text();
        self.board.flags[0].add();
        self.board.flags[0].wait(3);  // nobody leaves before all have been told
        return text;
      });
      const std::string refused = std::to_string(PLIANT_INVALID_ARGUMENT) + ": ";
      const std::string words = refused + "rank 0 sent 700001 f64, but rank 1 receives " +
                                (type ? "700001 i64" : "6 f64") + "; both must name the same number and type";
      CHECK(ends[1].text == words);
      CHECK((setup.way == Way::kPeer ? ends[0].text == words : starts_with(ends[0].text, refused)));
      INFO(ends[2].text);
      CHECK(starts_with(ends[2].text, refused + "the ranks made calls that do not fit together; rank "));
    }
  }
}

TEST_CASE("a message that no peer takes or sends ends when this rank aborts, destroys, or the peer leaves") {
  enum class End { kAbort, kDestroy, kPeerLeaves };
  for (const Setup& setup : every_setup()) {
    for (const End end : {End::kAbort, End::kDestroy, End::kPeerLeaves}) {
      for (const bool sends : {false, true}) {
        INFO(setup.name, ", end ", static_cast<int>(end), sends ? ", send" : ", recv");
        const auto ends = ends_with_comm(setup, 2, [=](const Rank& self, Comm& comm, const Stream& stream) {
          self.device.call(&S::barrier, comm, stream);
          if (const Outcome met = stream.synchronize(); !met.ok()) return met.text();
          if (self.rank == 1) {
            if (end == End::kPeerLeaves) comm.destroy();
            self.board.flags[0].wait();
            return std::string();
          }
          std::vector<double> buffer(kMore);
          if (sends) {
            self.device.call(&S::send, comm, buffer.data(), kMore, PLIANT_F64, 1, stream);
          } else {
            self.device.call(&S::recv, comm, buffer.data(), kMore, PLIANT_F64, 1, stream);
          }
          if (end == End::kAbort) comm.abort();
          if (end == End::kDestroy) comm.destroy();
          std::string text = stream.synchronize().text();
          self.board.flags[0].raise();
          return text;
        });
        INFO(ends[0].text);
        const bool left = end == End::kPeerLeaves;
        CHECK(starts_with(ends[0].text, left ? std::to_string(PLIANT_PEER_LOST) + ": rank 1 is lost: it destroyed"
                                             : std::to_string(PLIANT_ABORTED) + ": this rank "));
      }
    }
  }
}

TEST_CASE("calls that never meet, a message sent that nobody receives before a barrier, end when a rank aborts") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const auto ends = ends_with_comm(setup, 2, [](const Rank& self, const Comm& comm, const Stream& stream) {
      std::vector<double> buffer(kMore);
      const auto message = [&](auto slot) {
        return self.device.call(slot, comm, buffer.data(), kMore, PLIANT_F64, 1 - self.rank, stream);
      };
      if (self.rank == 0) {
        message(&S::send);
        message(&S::send);
      } else {
        message(&S::recv);
        if (const Outcome got = stream.synchronize(); !got.ok()) return "the first message: " + got.text();
        self.board.flags[0].raise();
      }
      self.device.call(&S::barrier, comm, stream);
      self.board.flags[0].wait();
      if (self.rank == 0) comm.abort();
      return stream.synchronize().text();
    });
    const std::string aborted = std::to_string(PLIANT_ABORTED) + ": ";
    CHECK(starts_with(ends[0].text, aborted + "this rank aborted"));
    CHECK(starts_with(ends[1].text, aborted + "rank 0 aborted"));
  }
}

TEST_CASE("kill -9 of a rank in the middle of messages of more than a stage wakes all survivors with its number") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const auto ends = ends_with_comm(setup, 3, [](const Rank& self, const Comm& comm, const Stream& stream) {
      Flag& rounds = self.board.flags[0];
      std::thread death;
      if (self.rank == 1) {
        death = std::thread([&] {
          rounds.wait(7);
          ::kill(::getpid(), SIGKILL);
        });
      }
      Outcome outcome;
      while (outcome.ok()) {
        Case<double> one(Kind::kShift, self.rank, 3, kMore, PLIANT_SUM, false);
        outcome = one.start(self.device, comm, stream);
        if (outcome.ok()) outcome = stream.synchronize();
        rounds.add();
      }
      if (death.joinable()) death.join();
      return outcome.text();
    });
    CHECK(ends[1].killed());
    for (const size_t survivor : {size_t{0}, size_t{2}}) {
      INFO(ends[survivor].text);
      CHECK(starts_with(ends[survivor].text, std::to_string(PLIANT_PEER_LOST) + ": rank 1 is lost"));
    }
  }
}

TEST_CASE("between devices messages take no pinned memory, and otherwise they do") {
  for (const Setup& setup : every_setup()) {
    if (live_allocations(setup) < 0) continue;
    INFO(setup.name);
    expect_all_well(ends_with_comm(setup, 2, [&](const Rank& self, const Comm& comm, const Stream& stream) {
      constexpr uint64_t kBytes = kMore * 8;
      const OnDevice buffer(self.device, kBytes);
      self.device.call(&S::barrier, comm, stream);
      if (const Outcome met = stream.synchronize(); !met.ok()) return met.text();
      const int64_t before = live_allocations(setup);
      const auto slot = self.rank == 0 ? &pliant_accelerator::fill_async : nullptr;
      if (slot != nullptr) self.device.call(slot, buffer.at(), 77, kBytes, stream);
      if (self.rank == 0) self.device.call(&S::send, comm, buffer.at(), kBytes, PLIANT_U8, 1, stream);
      if (self.rank == 1) self.device.call(&S::recv, comm, buffer.at(), kBytes, PLIANT_U8, 0, stream);
      if (const Outcome done = stream.synchronize(); !done.ok()) return done.text();
      const int64_t taken = live_allocations(setup) - before;
      if ((taken == 0) != (setup.way == Way::kPeer)) return std::to_string(taken) + " allocations for a message";
      std::vector<uint8_t> got(kBytes);
      self.device.call(&pliant_accelerator::copy_async, got.data(), buffer.at(), kBytes, stream);
      if (const Outcome done = stream.synchronize(); !done.ok()) return done.text();
      const bool all = std::all_of(got.begin(), got.end(), [](uint8_t byte) { return byte == 77; });
      return std::string(all ? "" : "other bytes arrived");
    }));
  }
}
