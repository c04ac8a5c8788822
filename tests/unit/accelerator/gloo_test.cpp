// Collectives over Gloo: the same promises as over shared memory, with the ranks connected through the loopback
// interface.
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <ctime>
#include <fstream>

#include "kernel/network.hpp"
#include "kernel/rendezvous.hpp"
#include "window_memory.hpp"

using namespace pliant_test;
using pliant::accelerator::NetworkId;

namespace {

OptionSettings over_gloo(int64_t chunk_bytes = 4096, int64_t peer_timeout_seconds = 30) {
  return {{{"chunk_bytes", chunk_bytes}, {"peer_timeout_seconds", peer_timeout_seconds}},
          {},
          {},
          {{"transport", "gloo"}, {"interface", "lo"}}};
}

std::string with_status(int32_t status, const std::string& text) {
  return std::to_string(status) + ": " + text;
}

bool starts_with(const std::string& text, const std::string& begin) {
  return text.compare(0, begin.size(), begin) == 0;
}

void expect_all_well(Processes& processes) {
  const std::vector<RankEnd> ends = processes.ends();
  for (size_t r = 0; r < ends.size(); ++r) {
    INFO("rank ", r);
    CHECK(ends[r].text == "");
  }
}

/// Everything up to a ready communicator, then `body`.
RankBody when_ready(std::function<std::string(const Rank&, Comm&, const Stream&)> body) {
  return [body](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome ready = comm.status(60000); !ready.ok()) return "not ready: " + ready.text();
    return body(self, comm, stream);
  };
}

const std::string kDisconnected = " is lost: its connection was closed; its process or machine ended, or cut it";

NetworkId id_of(const pliant_comm_id& id) {
  NetworkId made{};
  std::memcpy(&made, id.bytes, sizeof(made));
  return made;
}

int connect_to(const pliant_comm_id& id) {
  const auto address = id_of(id).address();
  const int fd = ::socket(address.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd, address.raw(), address.size()) != 0) throw std::runtime_error("cannot connect");
  return fd;
}

/// True when the other end closed it without a word.
bool is_sent_away(int fd) {
  char byte = 0;
  return ::recv(fd, &byte, 1, 0) <= 0;
}

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
    Processes processes(world_size, every_type, over_gloo(16384));
    expect_all_well(processes);
  }
  Processes seven(7, when_ready([](const Rank& self, Comm& comm, const Stream& stream) {
                    return all_cases<float>(self, comm, stream, {0, 1, 17, 4097, 20011});
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
    CHECK(processes.end_of(rank).text ==
          with_status(PLIANT_PEER_LOST,
                      "rank 1 is lost: nothing was heard of it for 1 seconds (peer_timeout_seconds); it hangs, or the "
                      "network between is cut"));
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

TEST_CASE("the death of the rank that made the id before all have joined over Gloo is told to those who wait") {
  Processes processes(
      3,
      [](const Rank& self) -> std::string {
        if (self.rank == 2) self.board.flags[7].wait();  // never joins
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Outcome early = comm.status(0);
        self.board.flags[self.rank].raise();
        if (!starts_with(early.message, "2 of 3 ranks have not joined") && early.status == PLIANT_DEADLINE_EXCEEDED)
          return early.text();
        return comm.status(-1).text();
      },
      over_gloo());
  processes.board().flags[1].wait();
  processes.kill(0);
  const std::string text = processes.end_of(1).text;
  INFO(text);
  CHECK(starts_with(text, std::to_string(PLIANT_PEER_LOST) + ": "));
  CHECK(text.find("the rank that made the communicator id") != std::string::npos);
}

TEST_CASE("a rank that dies after it came to the rendezvous is lost to those who wait there") {
  const Device device(over_gloo());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 3, &id).ok());
  const Comm first(device, id, 0, 3);
  {
    // What rank 1 would say, and then nothing more.
    using namespace pliant::accelerator;
    NoteChannel channel(UniqueFd(connect_to(id)), RendezvousServer::most_body(3));
    const NetworkId known = id_of(id);
    channel.push(
        {Note::kHello, 1,
         std::string(reinterpret_cast<const char*>(known.secret), sizeof(known.secret)) + std::string(3, 'a')});
    while (channel.events() != POLLIN) REQUIRE(channel.pump());
  }
  CHECK(first.status(60000).text() == with_status(PLIANT_PEER_LOST, "rank 1" + kDisconnected));
}

TEST_CASE("a rendezvous without descriptors for its guests waits for some, and not busily") {
  const auto processor_seconds = [] {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  };
  const Device device(over_gloo());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  Comm first(device, id, 0, 2);
  static_cast<void>(first.status(100));
  const int guest = ::socket(id_of(id).address().bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(guest >= 0);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(guest) + 1;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  std::vector<int> taken;
  for (int fd = ::dup(guest); fd >= 0; fd = ::dup(guest)) taken.push_back(fd);
  const auto address = id_of(id).address();
  REQUIRE(::connect(guest, address.raw(), address.size()) == 0);
  const double began = processor_seconds();
  CHECK(first.status(400).status == PLIANT_DEADLINE_EXCEEDED);
  CHECK(processor_seconds() - began < 0.2);  // 0.4 and more when it asks again and again
  for (const int fd : taken) ::close(fd);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  Comm second(device, id, 1, 2);
  CHECK(first.status(60000).ok());
  CHECK(second.status(60000).ok());
  ::close(guest);
}

TEST_CASE("a stranger at the rendezvous is sent away and harms nobody") {
  const Device device(over_gloo());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  const int silent = connect_to(id);
  const int noisy = connect_to(id);
  const std::string noise(4096, 'x');
  CHECK(::send(noisy, noise.data(), noise.size(), MSG_NOSIGNAL) > 0);
  pliant_comm_id wrong = id;
  wrong.bytes[16] = static_cast<uint8_t>(wrong.bytes[16] ^ 1U);  // the first byte of the secret
  const Comm intruder(device, wrong, 1, 2);
  Comm first(device, id, 0, 2);
  CHECK(is_sent_away(noisy));
  CHECK(intruder.status(-1).status == PLIANT_PEER_LOST);
  Comm second(device, id, 1, 2);
  CHECK(first.status(60000).ok());
  CHECK(second.status(60000).ok());
  CHECK(is_sent_away(silent));  // the rendezvous is over
  ::close(silent);
  ::close(noisy);
}

TEST_CASE("a rank over Gloo that has joined already is refused and the others go on") {
  const Device device(over_gloo());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 3, &id).ok());
  const Comm zero(device, id, 0, 3);
  const Comm one(device, id, 1, 3);
  const Comm again(device, id, 1, 3);
  // Which of the two came first is open.
  const Comm two(device, id, 2, 3);
  Outcome a = one.status(1);
  Outcome b = again.status(1);
  while (a.status == PLIANT_DEADLINE_EXCEEDED) a = one.status(1);
  while (b.status == PLIANT_DEADLINE_EXCEEDED) b = again.status(1);
  CHECK(
      (a.ok() ? b : a).text() ==
      with_status(PLIANT_INVALID_ARGUMENT, "rank 1 has joined already; every rank joins once, and an id is used once"));
  CHECK((a.ok() ? a : b).ok());
  CHECK(zero.status(60000).ok());
  CHECK(two.status(60000).ok());
}

TEST_CASE("transport and interface that do not fit are refused with what there is") {
  const auto refusal = [](const std::string& transport, const std::string& interface) -> std::string {
    try {
      const Device device({{}, {}, {}, {{"transport", transport}, {"interface", interface}}});
    } catch (const std::exception& refused) {
      return refused.what();
    }
    return "";
  };
  CHECK(starts_with(refusal("gloo", ""),
                    "transport = \"gloo\" needs the interface that reaches the other machines; this machine has: "));
  CHECK(refusal("gloo", "").find("lo (127.0.0.1)") != std::string::npos);
  CHECK(starts_with(refusal("gloo", "eth77"), "interface = \"eth77\" is no interface or address of this machine;"));
  CHECK(starts_with(refusal("shared_memory", "lo"), "interface = \"lo\" is for transport = \"gloo\" only"));
  CHECK(refusal("gloo", "127.0.0.1") == "");
}

TEST_CASE("an id of one transport is refused by a rank of the other") {
  const Device shared;
  const Device gloo(over_gloo());
  pliant_comm_id id{};
  REQUIRE(gloo.call(&pliant_collectives::comm_id, 2, &id).ok());
  const Comm wrong(shared, id, 1, 2);
  CHECK(wrong.made().status == PLIANT_INVALID_ARGUMENT);
  CHECK(wrong.made().message.find("transport = \"gloo\"") != std::string::npos);
  REQUIRE(shared.call(&pliant_collectives::comm_id, 2, &id).ok());
  const Comm other(gloo, id, 1, 2);
  CHECK(other.made().status == PLIANT_INVALID_ARGUMENT);
  CHECK(other.made().message.find("transport = \"shared_memory\"") != std::string::npos);
}

TEST_CASE("an id over Gloo of another version of the accelerator is refused in words") {
  const Device device(over_gloo(), kHostFile);
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  const uint32_t other = 4711;
  std::memcpy(id.bytes + offsetof(NetworkId, layout), &other, sizeof(other));
  const Comm comm(device, id, 1, 2);
  CHECK(comm.made().status == PLIANT_FAILED_PRECONDITION);
  CHECK(comm.made().message.find("another version of this accelerator (memory layout 4711, here ") !=
        std::string::npos);
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
