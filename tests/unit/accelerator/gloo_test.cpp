// Collectives over Gloo: the same promises as over shared memory, with the ranks connected through the loopback
// interface.
#include <fstream>
#include <vector>

#include "over_gloo.hpp"
#include "thorough.hpp"
#include "window_memory.hpp"

using namespace pliant_test;

namespace {

bool is_mapped(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find(file) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("collectives and messages over Gloo equal the reference bit by bit at 1, 2, 3 and 7 ranks") {
  for (const int32_t world_size : {1, 2, 3}) {
    INFO("world size ", world_size);
    const bool all_types = world_size == 3 || pliant::test::is_thorough();
    Processes processes(world_size, all_types ? every_type : every_case_of<float>, over_gloo(16384));
    expect_all_well(processes);
  }
  Processes seven(7, when_ready([](const Rank& self, Comm& comm, const Stream& stream) {
                    const auto counts = pliant::test::is_thorough() ? std::vector<uint64_t>{0, 1, 17, 4097, 20011}
                                                                    : std::vector<uint64_t>{0, 17, 20011};
                    return all_cases<float>(self, comm, stream, counts);
                  }),
                  over_gloo());
  expect_all_well(seven);
}

TEST_CASE("collectives over Gloo with chunks that do not fit behind a frame equal the reference") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream& stream) {
                        return all_cases<float>(self, comm, stream, {5, 65536, 300007});
                      }),
                      over_gloo(512 * 1024));
  expect_all_well(processes);
}

TEST_CASE("threads of one process are ranks over Gloo, too") {
  const Device device(over_gloo());
  for (const std::string& fault : run_threads(device, 4, when_ready([](const Rank&self, Comm&comm, const Stream&s) {
                                                return all_cases<double>(self, comm, s, {1, 4097});
                                              })))
    CHECK(fault == "");
}

TEST_CASE("windows over Gloo are agreed on, nobody maps them, and collectives between them are right") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream& stream) -> std::string {
                        const WindowMemory window(self.device, uint64_t{4} << 20U);
                        if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
                        for (const Kind kind : {Kind::kAllGather, Kind::kReduceScatter, Kind::kAllReduce}) {
                          std::string fault = run_in<float>(self, comm, stream, window, kind, 50000);
                          if (!fault.empty()) return fault;
                        }
                        return "";
                      }),
                      over_gloo());
  expect_all_well(processes);
}

TEST_CASE("kill -9 of a rank in the middle of any collective over Gloo wakes all survivors with its number") {
  int64_t slowest_us = 0;
  for (const Kind kind : kKinds) {
    INFO(std::string(name_of(kind)));
    Processes processes(4, when_ready([kind](const Rank& self, Comm& comm, const Stream& stream) {
                          Flag& rounds = self.board.flags[0];
                          std::thread death;
                          if (self.rank == 2) {
                            death = std::thread([&] {
                              rounds.wait(20);
                              self.board.killed_at_us.store(now_us());
                              ::kill(::getpid(), SIGKILL);
                            });
                          }
                          std::string text = repeat_until_failure(self, kind, comm, stream, rounds);
                          if (death.joinable()) death.join();
                          return text;
                        }),
                        over_gloo());
    const std::vector<RankEnd> ends = processes.ends();
    CHECK(ends[2].killed());
    for (const size_t survivor : {size_t{0}, size_t{1}, size_t{3}}) {
      INFO(ends[survivor].text);
      CHECK(starts_with(ends[survivor].text, with_status(PLIANT_PEER_LOST, "rank 2" + kDisconnected)));
      const int64_t after_us = std::atoll(ends[survivor].text.substr(ends[survivor].text.find('|') + 1).c_str());
      slowest_us = std::max(slowest_us, after_us);
    }
  }
  MESSAGE("slowest survivor after ", slowest_us, " us");
}

TEST_CASE("an idle communicator over Gloo says that a rank has died") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream&) -> std::string {
                        self.board.flags[0].add();
                        if (self.rank == 1) self.board.flags[7].wait();  // never raised: killed here
                        self.board.flags[1].wait();
                        // The socket closes with the process, before the parent is told; the news may still be under
                        // way.
                        Outcome status = comm.status(0);
                        while (status.ok()) status = comm.status(0);
                        return status.text();
                      }),
                      over_gloo());
  processes.board().flags[0].wait(3);
  processes.kill(1);
  CHECK(processes.end_of(1).killed());
  processes.board().flags[1].raise();
  for (const int32_t rank : {0, 2})
    CHECK(processes.end_of(rank).text == with_status(PLIANT_PEER_LOST, "rank 1" + kDisconnected));
}

TEST_CASE("a stopped rank over Gloo is lost after the time that peer_timeout_seconds gives it") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream& stream) -> std::string {
                        if (self.rank == 1) {
                          ::kill(::getpid(), SIGSTOP);
                          return "";
                        }
                        self.device.call(&pliant_collectives::barrier, comm, stream);
                        return stream.synchronize().text();
                      }),
                      over_gloo(4096, 1));
  for (const int32_t rank : {0, 2}) {
    CHECK(processes.end_of(rank).text == with_status(PLIANT_PEER_LOST, "rank 1" + silent_for(1)));
  }
  processes.kill(1);
}

TEST_CASE("ranks that make different calls over Gloo are told which") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream& stream) -> std::string {
                        std::vector<float> buffer(300);
                        if (self.rank == 2) {
                          self.device.call(&pliant_collectives::barrier, comm, stream);
                        } else {
                          self.device.call(&pliant_collectives::broadcast, comm, buffer.data(), 100, PLIANT_F32, 0,
                                           stream);
                        }
                        Outcome outcome = stream.synchronize();
                        while (outcome.ok()) outcome = comm.status(0);  // the root may be through already
                        return outcome.text();
                      }),
                      over_gloo());
  int named = 0;
  for (const RankEnd& end : processes.ends()) {
    INFO(end.text);
    CHECK(starts_with(end.text, with_status(PLIANT_INVALID_ARGUMENT, "the ranks ")));
    named += end.text.find("barrier") != std::string::npos && end.text.find("broadcast of 100") != std::string::npos;
  }
  CHECK(named >= 1);
}

TEST_CASE("messages of different sizes over Gloo are told apart") {
  Processes processes(2, when_ready([](const Rank& self, Comm& comm, const Stream& stream) -> std::string {
                        std::vector<float> buffer(300);
                        if (self.rank == 0) {
                          self.device.call(&pliant_collectives::send, comm, buffer.data(), 200, PLIANT_F32, 1, stream);
                        } else {
                          self.device.call(&pliant_collectives::recv, comm, buffer.data(), 100, PLIANT_F32, 0, stream);
                        }
                        Outcome outcome = stream.synchronize();
                        while (outcome.ok()) outcome = comm.status(0);
                        return outcome.text();
                      }),
                      over_gloo());
  CHECK(starts_with(processes.end_of(0).text, with_status(PLIANT_INVALID_ARGUMENT, "the ranks made calls")));
  CHECK(processes.end_of(1).text == with_status(PLIANT_INVALID_ARGUMENT,
                                                "rank 0 sent 200 f32, but rank 1 receives 100 f32; both must name the "
                                                "same number and type"));
}

TEST_CASE("abort on one rank ends the waits of all over Gloo") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream& stream) -> std::string {
                        if (self.rank == 2) {  // takes no part
                          self.board.flags[0].wait(2);
                          comm.abort();
                          return comm.status(0).text();
                        }
                        self.device.call(&pliant_collectives::barrier, comm, stream);
                        self.board.flags[0].add();
                        return stream.synchronize().text();
                      }),
                      over_gloo());
  CHECK(processes.end_of(0).text == with_status(PLIANT_ABORTED, "rank 2 aborted the communicator"));
  CHECK(processes.end_of(1).text == with_status(PLIANT_ABORTED, "rank 2 aborted the communicator"));
  CHECK(processes.end_of(2).text == with_status(PLIANT_ABORTED, "this rank aborted the communicator"));
}

TEST_CASE("a rank that destroys the communicator over Gloo while others wait is lost to them by number") {
  Processes processes(3, when_ready([](const Rank& self, Comm& comm, const Stream& stream) -> std::string {
                        if (self.rank == 1) {
                          self.board.flags[0].wait(2);
                          comm.destroy();
                          return "";
                        }
                        self.device.call(&pliant_collectives::barrier, comm, stream);
                        self.board.flags[0].add();
                        return stream.synchronize().text();
                      }),
                      over_gloo());
  const std::string wanted =
      with_status(PLIANT_PEER_LOST, "rank 1 is lost: it destroyed the communicator while this rank still needed it");
  CHECK(processes.end_of(0).text == wanted);
  CHECK(processes.end_of(1).text == "");
  CHECK(processes.end_of(2).text == wanted);
}

TEST_CASE("an orderly destroy right after the last collective over Gloo, and the end of the process, harm nobody") {
  for (const Kind kind : kKinds) {
    INFO(std::string(name_of(kind)));
    for (int round = 0; round < 3; ++round) {
      Processes processes(4, when_ready([kind](const Rank& self, Comm& comm, const Stream& stream) {
                            return run_case<float>(self.device, comm, stream, kind, self.rank, self.world_size, 20000);
                          }),
                          over_gloo());
      expect_all_well(processes);
    }
  }
}

TEST_CASE("the plugin can be unloaded after it has used Gloo") {
  for (int round = 0; round < 2; ++round) {
    {
      const Device device(over_gloo());
      for (const std::string& fault :
           run_threads(device, 2, when_ready([](const Rank&self, Comm&comm, const Stream&stream) {
                         return all_cases<float>(self, comm, stream, {5000});
                       })))
        REQUIRE(fault == "");
      CHECK(is_mapped("accelerator-host.pliant.so"));
    }
#ifndef __SANITIZE_THREAD__  // keeps what it has seen
    CHECK(!is_mapped("accelerator-host.pliant.so"));
#endif
  }
}
