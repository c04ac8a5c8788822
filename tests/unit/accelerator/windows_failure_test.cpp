// Ranks that die, stop or give up while others read their windows.
#include "window_memory.hpp"

using namespace pliant_test;

namespace {

constexpr uint64_t kWindowBytes = uint64_t{8} << 20U;
constexpr uint64_t kCount = 200000;
const Kind kOfWindows[] = {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kBroadcast,
                           Kind::kAllGatherV};

const std::string kPeerLost = std::to_string(PLIANT_PEER_LOST) + ": ";
const std::string kAborted = std::to_string(PLIANT_ABORTED) + ": ";

/// Repeats one collective until it fails; with what.
std::string repeat(const Rank& self, pliant_comm* comm, const Stream& stream, const WindowMemory& window, Kind kind,
                   Flag& rounds) {
  for (;;) {
    std::string outcome = run_in<float>(self, comm, stream, window, kind, kCount);
    if (!outcome.empty()) {
      rounds.raise(1U << 20U);  // nobody is to wait for more
      return outcome;
    }
    rounds.add();
  }
}

}  // namespace

TEST_CASE("kill -9 of a rank in the middle of any collective between windows wakes all survivors with its number") {
  for (const Kind kind : kOfWindows) {
    INFO(std::string(name_of(kind)));
    Processes processes(4, [kind](const Rank& self) -> std::string {
      const WindowMemory window(self.device, kWindowBytes);
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
      return repeat(self, comm, stream, window, kind, self.board.flags[0]);
    });
    processes.board().flags[0].wait(20);
    processes.kill(2);
    CHECK(processes.end_of(2).killed());
    for (const int32_t survivor : {0, 1, 3}) {
      CHECK(starts_with(processes.end_of(survivor).text, kPeerLost + "rank 2 is lost: its process (pid "));
    }
  }
}

TEST_CASE("no result is made of memory whose rank has aborted and uses it for something else") {
  for (uint32_t round = 0; round < 12; ++round) {
    const Kind kind = kOfWindows[round % std::size(kOfWindows)];
    INFO(std::string(name_of(kind)));
    Processes processes(3, [kind, round](const Rank& self) -> std::string {
      const WindowMemory window(self.device, kWindowBytes);
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
      Flag& rounds = self.board.flags[0];
      std::thread gives_up;
      if (self.rank == 1) {
        gives_up = std::thread([&, round] {
          rounds.wait(5 + round);
          comm.abort();
        });
      }
      std::string outcome = repeat(self, comm, stream, window, kind, rounds);  // a wrong result would be told
      window.fill(0xee);
      if (gives_up.joinable()) gives_up.join();
      return outcome;
    });
    for (const RankEnd& end : processes.ends()) CHECK(starts_with(end.text, kAborted));
  }
}

TEST_CASE(
    "a rank that destroys the communicator in the middle of a collective between windows is the one that is named") {
  for (uint32_t round = 0; round < 20; ++round) {
    Processes processes(3, [round](const Rank& self) -> std::string {
      const WindowMemory window(self.device, kWindowBytes);
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
      Flag& rounds = self.board.flags[0];
      if (self.rank == 1) {
        Case<float> one(Kind::kAllGather, self.rank, self.world_size, kCount, PLIANT_SUM, false);
        one.use(reinterpret_cast<float*>(window.at()) + one.received(), reinterpret_cast<float*>(window.at()));
        for (int i = 0; i < 8; ++i) {
          if (const Outcome enqueued = one.start(self.device, comm, stream); !enqueued.ok()) return enqueued.text();
        }
        rounds.wait(3 + round % 7);  // of the other two together
        comm.destroy();
        const Outcome outcome = stream.synchronize();
        window.fill(0xee);
        return outcome.text();
      }
      return repeat(self, comm, stream, window, Kind::kAllGather, rounds);
    });
    for (const int32_t survivor : {0, 2}) {
      CHECK(starts_with(processes.end_of(survivor).text, kPeerLost + "rank 1 is lost: it destroyed the communicator"));
    }
  }
}

TEST_CASE("a rank that was stopped, and goes on when the others have given up on it, writes to no memory of theirs") {
  for (const Kind kind : kOfWindows) {
    INFO(std::string(name_of(kind)));
    Processes processes(3, [kind](const Rank& self) -> std::string {
      const WindowMemory window(self.device, kWindowBytes);
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
      std::thread gives_up;
      if (self.rank == 0) {
        gives_up = std::thread([&] {
          self.board.flags[1].wait();  // rank 2 stands still
          comm.abort();
        });
      }
      std::string outcome = repeat(self, comm, stream, window, kind, self.board.flags[0]);
      if (gives_up.joinable()) gives_up.join();
      if (self.rank == 2) return outcome;
      window.fill(0x3c);
      self.board.flags[2].add();
      self.board.flags[3].wait();  // rank 2 has come to its end
      return window.is_all(0x3c) ? outcome : "was written to; " + outcome;
    });
    processes.board().flags[0].wait(10);
    processes.signal(2, SIGSTOP);
    processes.board().flags[1].raise();
    processes.board().flags[2].wait(2);
    processes.signal(2, SIGCONT);
    CHECK(starts_with(processes.end_of(2).text, kAborted));
    processes.board().flags[3].raise();
    for (const int32_t rank : {0, 1}) CHECK(starts_with(processes.end_of(rank).text, kAborted));
  }
}

TEST_CASE("the windows of a rank that has died stay readable until the others are through with them") {
  Processes processes(2, [](const Rank& self) -> std::string {
    const WindowMemory window(self.device, kWindowBytes);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
    if (self.rank == 1) ::kill(::getpid(), SIGKILL);
    return run_in<float>(self, comm, stream, window, Kind::kAllGather, kCount);
  });
  CHECK(starts_with(processes.end_of(0).text, kPeerLost + "rank 1 is lost"));
}
