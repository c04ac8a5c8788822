// How ranks find each other over Gloo: the rendezvous and those who disturb it, ids and interfaces.
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string>

#include "common/gloo/network.hpp"
#include "common/gloo/rendezvous.hpp"
#include "over_gloo.hpp"

using namespace pliant_test;
using pliant::accelerator::NetworkId;

namespace {

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

}  // namespace

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

TEST_CASE("abort before the others have come over Gloo is told to them when they come") {
  Processes processes(
      3,
      [](const Rank& self) -> std::string {
        const pliant_comm_id id = self.id();
        if (self.rank != 2) self.board.flags[0].wait();
        const Comm comm(self.device, id, self.rank, self.world_size);
        if (self.rank == 2) {
          comm.abort();
          self.board.flags[0].raise();
        }
        Outcome outcome = comm.status(20000);
        while (outcome.ok()) outcome = comm.status(0);
        self.board.flags[1].add();
        self.board.flags[1].wait(3);  // nobody has left before all know
        return outcome.text();
      },
      over_gloo());
  for (const int32_t rank : {0, 1})
    CHECK(processes.end_of(rank).text == with_status(PLIANT_ABORTED, "rank 2 aborted the communicator"));
  CHECK(processes.end_of(2).text == with_status(PLIANT_ABORTED, "this rank aborted the communicator"));
}

TEST_CASE("destroy before the others have come over Gloo is told to them when they come") {
  int told = 0;
  for (int round = 0; round < 8; ++round) {  // sometimes it leaves before it has reached the rendezvous
    Processes processes(
        3,
        [](const Rank& self) -> std::string {
          const pliant_comm_id id = self.id();
          if (self.rank != 2) self.board.flags[0].wait();
          Comm comm(self.device, id, self.rank, self.world_size);
          if (self.rank == 2) {
            comm.destroy();
            self.board.flags[0].raise();
          }
          std::string text = self.rank == 2 ? "" : comm.status(60000).text();
          self.board.flags[1].add();
          self.board.flags[1].wait(3);  // nobody ends before all know
          return text;
        },
        over_gloo());
    const std::array<std::string, 3> texts{processes.end_of(0).text, processes.end_of(1).text,
                                           processes.end_of(2).text};
    // Where a connection is gone before it was accepted, Gloo throws in a thread of its own, and nobody can catch it.
    const bool was_aborted = std::any_of(texts.begin(), texts.end(), [](const std::string& text) {
      return text.find("[wait status 6]") != std::string::npos;
    });
    if (was_aborted) continue;
    ++told;
    for (const size_t rank : {0U, 1U}) {
      CHECK(texts[rank] ==
            with_status(PLIANT_PEER_LOST,
                        "rank 2 is lost: it destroyed the communicator while this rank still needed it"));
    }
    CHECK(texts[2] == "");
  }
  CHECK(told >= 4);
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

TEST_CASE("a rank that leaves while another has not taken its connection over Gloo does not reset it") {
  // Gloo throws in a thread of its own, where nobody can catch it, when it takes a connection that was reset.
  using namespace pliant::accelerator;
  const Device device(over_gloo());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  // This test is rank 1. Gloo lets the higher port call the lower one, by the bytes in memory: a round one is low.
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int bound = -1;
  for (int high = 0x40; high < 0x100 && bound != 0; ++high) {
    own.sin_port = htons(static_cast<uint16_t>(high << 8));
    bound = ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own));
  }
  REQUIRE(bound == 0);
  REQUIRE(::listen(listener.get(), 1) == 0);
  std::string address(sizeof(sockaddr_storage) + sizeof(int64_t), '\xff');
  std::memset(address.data(), 0, sizeof(sockaddr_storage));
  std::memcpy(address.data(), &own, sizeof(own));

  Comm first(device, id, 0, 2);
  const NetworkId known = id_of(id);
  NoteChannel channel(UniqueFd(connect_to(id)), RendezvousServer::most_body(2));
  channel.push({Note::kHello, 1,
                std::string(reinterpret_cast<const char*>(known.secret), sizeof(known.secret)) + address +
                    std::string(address.size(), '\0')});
  while (channel.events() != POLLIN) REQUIRE(channel.pump());
  pollfd called{listener.get(), POLLIN, 0};
  REQUIRE(::poll(&called, 1, 60000) == 1);
  first.destroy();

  const UniqueFd taken(::accept(listener.get(), nullptr, nullptr));
  REQUIRE(taken);
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  CHECK(::getpeername(taken.get(), reinterpret_cast<sockaddr*>(&peer), &size) == 0);
  std::string said(4096, '\0');
  ssize_t got = 0;
  while ((got = ::recv(taken.get(), said.data(), said.size(), 0)) > 0) continue;
  CHECK(got == 0);
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

TEST_CASE("ranks over Gloo that all greet each other at once join, many times over") {
  const Device device(over_gloo());
  for (int turn = 0; turn < 10; ++turn) {
    constexpr int32_t kRanks = 6;
    pliant_comm_id id{};
    REQUIRE(device.call(&pliant_collectives::comm_id, kRanks, &id).ok());
    std::vector<std::unique_ptr<Comm>> comms;
    for (int32_t rank = 0; rank < kRanks; ++rank) comms.push_back(std::make_unique<Comm>(device, id, rank, kRanks));
    for (const auto& comm : comms) CHECK(comm->status(60000).ok());
  }
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
  CHECK(starts_with(refusal("shared_memory", "lo"), "interface = \"lo\" is allowed only with transport = \"gloo\""));
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
