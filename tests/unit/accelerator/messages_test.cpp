// Messages between two ranks, and groups of calls.
#include <algorithm>
#include <random>

#include "collective_cases.hpp"
#include "message_calls.hpp"

using namespace pliant_test;

namespace {

using S = pliant_collectives;

const OptionSettings kSmallChunks{{{"chunk_bytes", 4096}}, {}, {}};

/// Ranks with a communicator and a stream each; the text of each is what `body` returned.
template <class Body>
std::vector<std::string> texts_of(int32_t world_size, Body body) {
  Processes processes(
      world_size,
      [body](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        if (!comm.made().ok()) return comm.made().text();
        const Stream stream(self.device);
        return body(self, comm, stream);
      },
      kSmallChunks);
  std::vector<std::string> texts;
  for (const RankEnd& end : processes.ends()) texts.push_back(end.text);
  return texts;
}

void expect_all_well(const std::vector<std::string>& texts) {
  for (size_t r = 0; r < texts.size(); ++r) {
    INFO("rank ", r);
    CHECK(texts[r] == "");
  }
}

}  // namespace

TEST_CASE("messages without a group arrive in their order, whatever their sizes") {
  expect_all_well(texts_of(2, [](const Rank& self, pliant_comm* comm, const Stream& stream) {
    Calls calls(self, comm, stream);
    const std::vector<uint64_t> counts = {0, 1, 3, 511, 512, 513, 5000, 0, 100003};
    for (uint64_t i = 0; i < counts.size(); ++i) {
      self.rank == 0 ? calls.send(1, i, counts[i]) : calls.recv(0, i, counts[i]);
    }
    for (uint64_t i = 0; i < 50; ++i) {
      self.rank == 1 ? calls.send(0, i, i * 7) : calls.recv(1, i, i * 7);
    }
    return calls.finish();
  }));
}

TEST_CASE("in a group every rank sends to every rank and itself, several times, in any order of calls") {
  for (const int32_t world_size : {1, 2, 3, 5, 8}) {
    INFO("world size ", world_size);
    expect_all_well(texts_of(world_size, [](const Rank& self, pliant_comm* comm, const Stream& stream) {
      Calls calls(self, comm, stream);
      for (uint64_t round = 0; round < 4; ++round) {
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
          return (static_cast<uint64_t>(from * 7 + to * 3) + i * 5 + round) * 331 % 2600;
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
    }));
  }
}

TEST_CASE("a message whose receiver is not there yet does not hold up those to others") {
  expect_all_well(texts_of(4, [](const Rank& self, pliant_comm* comm, const Stream& stream) {
    Calls calls(self, comm, stream);
    if (self.rank == 0) {
      calls.begin();
      for (uint64_t i = 0; i < 3; ++i) calls.send(1, i, 2000);
      calls.send(2, 3, 2000);
      calls.end();
    } else if (self.rank == 1) {
      calls.recv(3, 0, 1);
      for (uint64_t i = 0; i < 3; ++i) calls.recv(0, i, 2000);
    } else if (self.rank == 2) {
      calls.recv(0, 3, 2000);
      calls.send(3, 0, 1);
    } else {
      calls.recv(2, 0, 1);
      calls.send(1, 0, 1);
    }
    return calls.finish();
  }));
}

TEST_CASE("a group runs its collectives in order and then its messages, wherever they stand in it") {
  expect_all_well(texts_of(3, [](const Rank& self, pliant_comm* comm, const Stream& stream) {
    Calls calls(self, comm, stream);
    std::vector<Case<float>> cases;
    for (uint64_t i = 0; i < 10; ++i) cases.emplace_back(kKinds[i % 6], self.rank, 3, 700 * i, PLIANT_SUM, false);
    const int32_t next = (self.rank + 1) % 3;
    const int32_t before = (self.rank + 2) % 3;
    calls.begin();
    if (self.rank == 1) calls.send(next, 0, 3000);
    for (Case<float>& one : cases) {
      if (const Outcome made = one.start(self.device, comm, stream); !made.ok()) return made.text();
    }
    if (self.rank != 1) calls.send(next, 0, 3000);
    calls.recv(before, 0, 3000);
    calls.end();
    std::string fault = calls.finish();
    for (const Case<float>& one : cases) {
      if (fault.empty()) fault = one.check();
    }
    return fault;
  }));
}

TEST_CASE("an empty group is nothing, and a group that was never ended enqueues nothing") {
  expect_all_well(texts_of(2, [](const Rank& self, const Comm& comm, const Stream& stream) -> std::string {
    if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
    Calls calls(self, comm, stream);
    calls.begin();
    calls.end();
    calls.begin();
    if (self.rank == 0) calls.send(1, 0, 10);
    return calls.finish();
  }));
}

TEST_CASE("a message of another size or type is refused on both sides with both named") {
  for (const bool type : {false, true}) {
    const auto texts = texts_of(2, [type](const Rank& self, pliant_comm* comm, const Stream& stream) {
      std::vector<double> buffer(10);
      if (self.rank == 0) {
        self.device.call(&S::send, comm, buffer.data(), 5, PLIANT_F64, 1, stream);
      } else {
        self.device.call(&S::recv, comm, buffer.data(), type ? 5 : 6, type ? PLIANT_I64 : PLIANT_F64, 0, stream);
      }
      return stream.synchronize().text();
    });
    CHECK(texts[1] == std::to_string(PLIANT_INVALID_ARGUMENT) + ": rank 0 sent 5 f64, but rank 1 receives " +
                          (type ? "5 i64" : "6 f64") + "; both must name the same number and type");
    CHECK(texts[0] == std::to_string(PLIANT_INVALID_ARGUMENT) +
                          ": the ranks made calls that do not fit together; rank 1 saw it first and can say which");
  }
}

TEST_CASE("all_gather_v with other counts on another rank is refused, never half done") {
  const auto texts = texts_of(3, [](const Rank& self, pliant_comm* comm, const Stream& stream) {
    std::vector<int32_t> buffer(12);
    const std::vector<uint64_t> counts = {self.rank == 2 ? 4U : 3U, self.rank == 2 ? 2U : 3U, 3};
    self.device.call(&S::all_gather_v, comm, buffer.data(), buffer.data(), counts.data(), PLIANT_I32, stream);
    return stream.synchronize().text();
  });
  for (const std::string& text : texts) CHECK(starts_with(text, std::to_string(PLIANT_INVALID_ARGUMENT) + ": "));
}

TEST_CASE("calls that cannot be right are refused at once and say why") {
  const Device device(kSmallChunks);
  pliant_comm_id id{};
  REQUIRE(device.call(&S::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  const Stream stream(device);
  const Stream other(device);
  int64_t value = 4;
  int64_t got = 0;
  const auto refused = [](const Outcome& outcome, int32_t status, const char* message) {
    CHECK(outcome.status == status);
    CHECK(outcome.message == message);
  };
  refused(device.call(&S::send, comm, &value, 1, PLIANT_I64, 0, stream), PLIANT_INVALID_ARGUMENT,
          "rank 0 is its own peer; a rank sends to itself in a group only");
  refused(device.call(&S::recv, comm, &value, 1, PLIANT_I64, 1, stream), PLIANT_INVALID_ARGUMENT,
          "peer 1 is outside 0..0 of this communicator");
  refused(device.call(&S::send, comm, nullptr, 1, PLIANT_I64, 0, stream), PLIANT_INVALID_ARGUMENT,
          "the send buffer is NULL, but 8 bytes are wanted");
  refused(device.call(&S::all_gather_v, comm, &value, &got, nullptr, PLIANT_I64, stream), PLIANT_INVALID_ARGUMENT,
          "the array of counts is NULL");
  const uint64_t too_many = ~uint64_t{0};
  CHECK(device.call(&S::all_gather_v, comm, &value, &got, &too_many, PLIANT_I64, stream).status ==
        PLIANT_INVALID_ARGUMENT);
  refused(device.call(&S::group_end, comm), PLIANT_FAILED_PRECONDITION,
          "this communicator has no group that could end");
  REQUIRE(device.call(&S::group_begin, comm).ok());
  refused(device.call(&S::group_begin, comm), PLIANT_FAILED_PRECONDITION,
          "this communicator has a group already; groups do not nest");
  REQUIRE(device.call(&S::send, comm, &value, 1, PLIANT_I64, 0, stream).ok());
  refused(device.call(&S::recv, comm, &got, 1, PLIANT_I64, 0, other), PLIANT_INVALID_ARGUMENT,
          "all calls of a group name the same stream");
  refused(device.call(&S::group_end, comm), PLIANT_INVALID_ARGUMENT,
          "in this group rank 0 sends itself 1 and receives 0 messages; nothing of the group was enqueued");
  CHECK(stream.synchronize().ok());
  REQUIRE(device.call(&S::group_begin, comm).ok());
  REQUIRE(device.call(&S::recv, comm, &got, 1, PLIANT_I64, 0, stream).ok());
  REQUIRE(device.call(&S::send, comm, &value, 1, PLIANT_I64, 0, stream).ok());
  REQUIRE(device.call(&S::group_end, comm).ok());
  CHECK(stream.synchronize().ok());
  CHECK(got == 4);
}

TEST_CASE("a receive ends when this rank aborts, when its sender leaves, and when any rank dies") {
  const auto aborted = texts_of(2, [](const Rank& self, const Comm& comm, const Stream& stream) -> std::string {
    if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
    if (self.rank == 1) {
      self.board.flags[0].wait();
      return "";
    }
    int64_t got = 0;
    self.device.call(&S::recv, comm, &got, 1, PLIANT_I64, 1, stream);
    comm.abort();
    const Outcome outcome = stream.synchronize();
    self.board.flags[0].raise();
    return outcome.text();
  });
  CHECK(starts_with(aborted[0], std::to_string(PLIANT_ABORTED) + ": "));
  for (const bool sends : {false, true}) {
    const auto left = texts_of(2, [sends](const Rank& self, const Comm& comm, const Stream& stream) -> std::string {
      if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
      if (self.rank == 1) return "";
      int64_t value = 0;
      if (sends) {
        self.device.call(&S::send, comm, &value, 1, PLIANT_I64, 1, stream);
      } else {
        self.device.call(&S::recv, comm, &value, 1, PLIANT_I64, 1, stream);
      }
      return stream.synchronize().text();
    });
    CHECK(starts_with(left[0], std::to_string(PLIANT_PEER_LOST) + ": rank 1 "));
  }
}
