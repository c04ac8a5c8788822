// Collectives over Gloo between machines, each with interfaces of its own and a cable that can be pulled.
#include <poll.h>

#include <vector>

#include "machines.hpp"
#include "over_gloo.hpp"
#include "ranks.hpp"
#include "thorough.hpp"

using namespace pliant_test;

namespace {

enum class By { kName, kAddress, kAddress6 };

struct Cluster {
  int32_t machines = 2;
  int32_t world_size = 2;
  By by = By::kName;
  int64_t peer_timeout_seconds = 30;
};

/// Rank r is on machine r % machines, and names that machine's interface.
Processes ranks_on(const Machines& machines, const Cluster& cluster, const RankBody& body) {
  return {cluster.world_size, body, [&](int32_t rank) {
            const int32_t machine = rank % cluster.machines;
            machines.enter(machine);
            const std::string interface = cluster.by == By::kName      ? Machines::interface(machine)
                                          : cluster.by == By::kAddress ? Machines::address(machine)
                                                                       : Machines::address6(machine);
            return std::make_unique<Device>(over_gloo(4096, cluster.peer_timeout_seconds, interface), kHostFile);
          }};
}

/// What the ranks say that did not end with "".
std::string faults_of(Processes& processes) {
  std::string all;
  const std::vector<RankEnd> ends = processes.ends();
  for (size_t r = 0; r < ends.size(); ++r) {
    if (!ends[r].text.empty()) all += "rank " + std::to_string(r) + ": " + ends[r].text + "; ";
  }
  return all;
}

/// "" or which words a rank ended with in place of those wanted.
std::string unless_ended(Processes& processes, int32_t rank, const std::vector<std::string>& one_of) {
  const std::string text = processes.end_of(rank).text;
  for (const std::string& wanted : one_of) {
    if (text == wanted) return "";
  }
  return "rank " + std::to_string(rank) + " ended with '" + text + "', not '" + one_of.front() + "'; ";
}

/// Adds up again and again until it cannot, or until the flag `last` is raised and all have heard of it; with what.
std::string sums_until(const Rank& self, const Comm& comm, const Stream& stream, Flag& rounds, const Flag* last) {
  std::vector<float> values(5000);
  for (;;) {
    std::fill(values.begin(), values.end(), 1.0F);
    values.back() = self.rank == 0 && last != nullptr && last->raised() ? 1.0F : 0.0F;
    Outcome outcome = self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(),
                                       values.size(), PLIANT_F32, PLIANT_SUM, stream);
    if (outcome.ok()) outcome = stream.synchronize();
    if (!outcome.ok()) return outcome.text();
    if (values.front() != static_cast<float>(self.world_size)) return "a wrong sum";
    rounds.add();
    if (values.back() != 0) return "";
  }
}

}  // namespace

TEST_CASE("collectives between machines equal the reference, by the names and by the addresses of their interfaces") {
  for (const By by : {By::kName, By::kAddress, By::kAddress6}) {
    INFO("by ", static_cast<int>(by));
    check_unless_skipped(in_a_process([&] {
      const Machines machines(3);
      Processes processes =
          ranks_on(machines, {3, 5, by}, when_ready([by](const Rank& self, Comm& comm, const Stream& s) {
                     const bool all = by == By::kName || pliant::test::is_thorough();
                     const auto counts = all ? std::vector<uint64_t>{0, 1, 4097, 20011} : std::vector<uint64_t>{4097};
                     return all_cases<float>(self, comm, s, counts);
                   }));
      return faults_of(processes);
    }));
  }
}

TEST_CASE("a machine whose cable is pulled is lost to the others when it has been silent, and they are lost to it") {
  check_unless_skipped(in_a_process([] {
    const Machines machines(3);
    Processes processes =
        ranks_on(machines, {3, 3, By::kName, 1}, when_ready([](const Rank& self, Comm& comm, const Stream& stream) {
                   return sums_until(self, comm, stream, self.board.flags[0], nullptr);
                 }));
    processes.board().flags[0].wait(9);
    Machines::pull_cable(1);
    const auto lost = [](int32_t rank) {
      return with_status(PLIANT_PEER_LOST, "rank " + std::to_string(rank) + silent_for(1));
    };
    return unless_ended(processes, 0, {lost(1)}) + unless_ended(processes, 2, {lost(1)}) +
           unless_ended(processes, 1, {lost(0), lost(2)});
  }));
}

TEST_CASE("a cable that is plugged in again before peer_timeout_seconds are over costs time and nothing else") {
  check_unless_skipped(in_a_process([] {
    const Machines machines(2);
    Processes processes = ranks_on(machines, {2, 4}, when_ready([](const Rank& self, Comm& comm, const Stream& stream) {
                                     return sums_until(self, comm, stream, self.board.flags[0], &self.board.flags[1]);
                                   }));
    processes.board().flags[0].wait(20);
    Machines::pull_cable(1);
    ::poll(nullptr, 0, 700);  // how long the network is away
    Machines::plug_cable(1);
    processes.board().flags[1].raise();
    return faults_of(processes);
  }));
}

TEST_CASE("kill -9 of a rank on another machine is told at once") {
  check_unless_skipped(in_a_process([] {
    const Machines machines(3);
    Processes processes =
        ranks_on(machines, {3, 3, By::kName, 0}, when_ready([](const Rank& self, Comm& comm, const Stream& stream) {
                   return sums_until(self, comm, stream, self.board.flags[0], nullptr);
                 }));
    processes.board().flags[0].wait(9);
    processes.kill(2);
    const std::string lost = with_status(PLIANT_PEER_LOST, "rank 2" + kDisconnected);
    return unless_ended(processes, 0, {lost}) + unless_ended(processes, 1, {lost});
  }));
}

TEST_CASE("an id that names an address of the first rank's machine alone is refused on another in words") {
  check_unless_skipped(in_a_process([] {
    const Machines machines(2);
    Processes processes(
        2,
        [](const Rank& self) -> std::string {
          const pliant_comm_id id = self.id();
          if (self.rank == 0) {
            self.board.flags[0].wait();
            return "";
          }
          const Comm comm(self.device, id, self.rank, self.world_size);
          const std::string text = comm.made().ok() ? comm.status(60000).text() : comm.made().text();
          self.board.flags[0].raise();
          return text;
        },
        [&](int32_t rank) {
          machines.enter(rank);
          return std::make_unique<Device>(over_gloo(4096, 30, rank == 0 ? "lo" : Machines::interface(1)), kHostFile);
        });
    const std::string text = processes.end_of(1).text;
    const bool told = starts_with(text, with_status(PLIANT_INVALID_ARGUMENT, "the communicator id names 127.0.0.1:")) &&
                      text.find(
                          ", but this rank's interface has 10.77.0.2; 127.0.0.1 is reached on its own machine "
                          "only") != std::string::npos;
    return processes.end_of(0).text + (told ? "" : text);
  }));
}

TEST_CASE("a rank whose machine has no way to the rendezvous is told the address that it tried") {
  check_unless_skipped(in_a_process([] {
    const Machines machines(2);
    Machines::pull_cable(1);
    Processes processes = ranks_on(machines, {2, 2}, [](const Rank& self) -> std::string {
      const pliant_comm_id id = self.id();
      if (self.rank == 0) {
        self.board.flags[0].wait();
        return "";
      }
      const Comm comm(self.device, id, self.rank, self.world_size);
      std::string text = comm.status(60000).text();
      self.board.flags[0].raise();
      return text;
    });
    const std::string text = processes.end_of(1).text;
    const bool told = starts_with(text, with_status(PLIANT_PEER_LOST,
                                                    "cannot reach the rank that made the communicator "
                                                    "id at 10.77.0.1:")) &&
                      text.find(": No route to host; ") != std::string::npos;
    return processes.end_of(0).text + (told ? "" : text);
  }));
}

TEST_CASE("two machines that reach the rendezvous but not each other are named to all") {
  check_unless_skipped(in_a_process([] {
    const Machines machines(3);
    Machines::isolate(1);
    Machines::isolate(2);
    Processes processes = ranks_on(machines, {3, 3}, [](const Rank& self) -> std::string {
      const Comm comm(self.device, self.id(), self.rank, self.world_size);
      Outcome outcome = comm.status(60000);
      while (outcome.ok()) outcome = comm.status(0);  // rank 0 reaches both
      self.board.flags[0].add();
      self.board.flags[0].wait(3);
      return outcome.text();
    });
    // Which of the two is refused first is open, and what the other makes of it.
    const std::string why = ": one of them has ended, or their interfaces do not reach each other";
    const auto said = [&](const std::string& words) { return with_status(PLIANT_PEER_LOST, words + why); };
    const auto lost = [](int32_t rank) {
      return with_status(PLIANT_PEER_LOST, "rank " + std::to_string(rank) + kDisconnected);
    };
    const std::string one = said("rank 1 cannot connect with rank 2");
    const std::string two = said("rank 2 cannot connect with rank 1");
    return unless_ended(processes, 0, {one, two}) +
           unless_ended(processes, 1, {said("cannot connect with rank 2"), two, lost(2)}) +
           unless_ended(processes, 2, {said("cannot connect with rank 1"), one, lost(1)});
  }));
}
