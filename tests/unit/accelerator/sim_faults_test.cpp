// The simulator's faults of devices and of ranks.
#include <sys/wait.h>

#include <string>

#include "ranks.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;

bool is_loss(const Outcome& outcome) {
  return outcome.status == PLIANT_FAILED_PRECONDITION && outcome.message.find("the device is lost") == 0;
}

}  // namespace

TEST_CASE("a lost device refuses every call and can be taken down") {
  const Device device({{{"lose_device_at", 3}}, {}, {}}, kSimFile);
  std::vector<char> bytes(64, 0);
  void* memory = nullptr;
  REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &memory).ok());
  {
    const Stream stream(device);
    const Stream beside(device);
    const Event event(device, true);
    const auto fill = [&](size_t at, int32_t value) {
      return device.call(&Slots::fill_async, bytes.data() + at, value, 1, stream);
    };
    CHECK(fill(0, 1).ok());
    CHECK(fill(1, 1).ok());
    CHECK(stream.synchronize().ok());
    // The third piece may be seen to be lost before the next calls, or after.
    fill(2, 1);
    const Outcome after = fill(3, 1);
    CHECK((after.ok() || is_loss(after)));
    CHECK(is_loss(stream.synchronize()));
    CHECK(is_loss(stream.synchronize()));
    CHECK(std::string(bytes.data(), 4) == std::string("\1\1\0\0", 4));
    CHECK(is_loss(fill(5, 1)));
    CHECK(is_loss(beside.synchronize()));
    CHECK(is_loss(device.call(&Slots::event_record, event, beside)));
    int32_t done = 0;
    CHECK(is_loss(device.call(&Slots::stream_query, beside, &done)));
    CHECK(is_loss(device.call(&Slots::event_query, event, &done)));
    void* more = nullptr;
    CHECK(is_loss(device.call(&Slots::alloc, 0, PLIANT_MEMORY_DEVICE, 64, &more)));
    uint64_t left = 0;
    CHECK(is_loss(device.call(&Slots::memory_info, 0, &left, &left)));
    CHECK_THROWS(Stream{device});
    CHECK_THROWS(Event{device});
    pliant_comm_id id{};
    CHECK(is_loss(device.call(&pliant_collectives::comm_id, 2, &id)));
  }
  device.slots().free(device.self(), 0, PLIANT_MEMORY_DEVICE, memory);
}

TEST_CASE("a stream that waits for an event of a lost device does not wait for ever") {
  const Device device({{{"lose_device_at", 1}}, {}, {}}, kSimFile);
  Flag go;
  char byte = 0;
  {
    const Stream first(device);
    const Stream second(device);
    const Event event(device);
    void (*const stand)(void*) = [](void* flag) { static_cast<Flag*>(flag)->wait(); };
    REQUIRE(device.call(&Slots::host_function, stand, static_cast<void*>(&go), first).ok());
    REQUIRE(device.call(&Slots::fill_async, &byte, 1, 1, first).ok());
    REQUIRE(device.call(&Slots::event_record, event, first).ok());
    REQUIRE(device.call(&Slots::stream_wait_event, second, event).ok());
    go.raise();
    CHECK(is_loss(first.synchronize()));
    CHECK(is_loss(second.synchronize()));
  }
  CHECK(byte == 0);
}

TEST_CASE("a collective of a lost device fails on it, and its peers go on when it leaves") {
  const RankBody body = [](const Rank& self) -> std::string {
    const Device device({{{"lose_device_at", self.rank == 1 ? 2 : 0}}, {}, {}}, kSimFile);
    Comm comm(device, Rank{self.rank, self.world_size, self.board, device}.id(), self.rank, self.world_size);
    const Stream first(device);
    const Stream second(device);
    for (const Stream* stream : {&first, &second, &first}) {
      device.call(&pliant_collectives::barrier, comm, *stream);
    }
    const std::string ended = second.synchronize().text();
    comm.destroy();
    return ended;
  };
  Processes processes(2, body, {}, kSimFile);
  const auto ends = processes.ends();
  CHECK(ends[0].text.find(std::to_string(PLIANT_PEER_LOST) + ": rank 1 is lost") == 0);
  CHECK(ends[1].text.find(std::to_string(PLIANT_FAILED_PRECONDITION) + ": the device is lost") == 0);
}

TEST_CASE("a rank that the simulator kills dies at that collective, and the others are told") {
  Processes processes(
      3,
      [](const Rank& self) -> std::string {
        const Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        for (int i = 1;; ++i) {
          self.device.call(&pliant_collectives::barrier, comm, stream);
          const Outcome outcome = stream.synchronize();
          if (!outcome.ok()) return std::to_string(i) + " " + outcome.text();
        }
      },
      {{{"killed_rank", 2}, {"killed_at", 4}}, {}, {}}, kSimFile);
  const auto ends = processes.ends();
  CHECK(ends[2].killed());
  for (int r = 0; r < 2; ++r) {
    CHECK(ends[static_cast<size_t>(r)].text.find("4 " + std::to_string(PLIANT_PEER_LOST) + ": rank 2") == 0);
  }
}

TEST_CASE("a rank that the simulator stops goes on when it is let, and the result is right") {
  Processes processes(
      2,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        if (self.rank == 1) self.board.killed_at_us = ::getpid();
        if (self.rank == 1) self.board.flags[0].raise();
        const Stream stream(self.device);
        int32_t sum = self.rank + 1;
        self.device.call(&pliant_collectives::all_reduce, comm, &sum, &sum, 1, PLIANT_I32, PLIANT_SUM, stream);
        const Outcome outcome = stream.synchronize();
        return outcome.text() + std::to_string(sum);
      },
      {{{"stopped_rank", 1}}, {}, {}}, kSimFile);
  processes.board().flags[0].wait();
  const auto pid = static_cast<pid_t>(processes.board().killed_at_us.load());
  siginfo_t stopped{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED) == 0);
  CHECK(stopped.si_code == CLD_STOPPED);
  ::kill(pid, SIGCONT);
  for (const RankEnd& end : processes.ends()) CHECK(end.text == "0: 3");
}

TEST_CASE("host functions of other streams run while one blocks and the simulator reorders") {
  const Device device({{{"reorder", 1}}, {}, {}}, kSimFile);
  Flag go;
  Flag ran;
  {
    const Stream held(device);
    const Stream other(device);
    void (*const stand)(void*) = [](void* flag) { static_cast<Flag*>(flag)->wait(); };
    void (*const tell)(void*) = [](void* flag) { static_cast<Flag*>(flag)->raise(); };
    REQUIRE(device.call(&Slots::host_function, stand, static_cast<void*>(&go), held).ok());
    char byte = 0;
    REQUIRE(device.call(&Slots::fill_async, &byte, 1, 1, other).ok());
    REQUIRE(device.call(&Slots::host_function, tell, static_cast<void*>(&ran), other).ok());
    ran.wait();  // hangs without the promise
    go.raise();
    CHECK(held.synchronize().ok());
    CHECK(other.synchronize().ok());
  }
}
