// What survivors see when a rank dies, leaves, aborts or never comes.
#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <set>

#include "collective_cases.hpp"

using namespace pliant_test;

namespace {

const OptionSettings kSmallChunks{{{"chunk_bytes", 4096}}, {}, {}};
const std::string kPeerLost = std::to_string(PLIANT_PEER_LOST) + ": ";
const std::string kAborted = std::to_string(PLIANT_ABORTED) + ": ";

std::set<std::string> names_in(const char* folder) {
  std::set<std::string> names;
  if (DIR* opened = ::opendir(folder)) {
    while (const dirent* entry = ::readdir(opened)) names.insert(entry->d_name);
    ::closedir(opened);
  }
  return names;
}

/// Holds a stream up until it is made to fail: a barrier that the other rank of its communicator does not come to.
class LoneBarrier {
 public:
  LoneBarrier(const Device& device, const Stream& held) {
    pliant_comm_id id{};
    if (!device.call(&pliant_collectives::comm_id, 2, &id).ok()) throw std::runtime_error("no id");
    near_ = std::make_unique<Comm>(device, id, 0, 2);
    far_ = std::make_unique<Comm>(device, id, 1, 2);
    if (!device.call(&pliant_collectives::barrier, *near_, held).ok()) throw std::runtime_error("no barrier");
  }
  void abort() { near_->abort(); }

 private:
  std::unique_ptr<Comm> near_;
  std::unique_ptr<Comm> far_;
};

}  // namespace

TEST_CASE("kill -9 of a rank in the middle of any collective wakes all survivors with its number") {
  int64_t slowest_us = 0;
  for (const Kind kind : kKinds) {
    INFO(std::string(name_of(kind)));
    Processes processes(
        4,
        [kind](const Rank& self) -> std::string {
          Comm comm(self.device, self.id(), self.rank, self.world_size);
          const Stream stream(self.device);
          Flag& rounds = self.board.flags[0];
          std::thread death;
          if (self.rank == 2) {
            death = std::thread([&] {
              rounds.wait(40);
              self.board.killed_at_us.store(now_us());
              ::kill(::getpid(), SIGKILL);
            });
          }
          std::string text = repeat_until_failure(self, kind, comm, stream, rounds);
          if (death.joinable()) death.join();
          return text;
        },
        kSmallChunks);
    const std::vector<RankEnd> ends = processes.ends();
    CHECK(ends[2].killed());
    for (const size_t survivor : {size_t{0}, size_t{1}, size_t{3}}) {
      INFO(ends[survivor].text);
      CHECK(starts_with(ends[survivor].text, kPeerLost + "rank 2 is lost: its process (pid "));
      slowest_us = std::max(
          slowest_us,
          static_cast<int64_t>(std::atoll(ends[survivor].text.substr(ends[survivor].text.find('|') + 1).c_str())));
    }
  }
  MESSAGE("slowest survivor after ", slowest_us, " us");
}

TEST_CASE("a rank that dies while others wait for it is named by those that come to the collective later, too") {
  for (const Kind kind : kKinds) {
    INFO(std::string(name_of(kind)));
    Processes processes(
        4,
        [kind](const Rank& self) -> std::string {
          Comm comm(self.device, self.id(), self.rank, self.world_size);
          const Stream stream(self.device);
          if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
          self.board.flags[0].add();
          if (self.rank == 2) self.board.flags[7].wait();  // never raised: killed here
          if (self.rank == 3) self.board.flags[1].wait();  // the victim is buried
          Case<float> one(kind, self.rank, self.world_size, 50000, PLIANT_SUM, false);
          one.start(self.device, comm, stream);
          return stream.synchronize().text();
        },
        kSmallChunks);
    processes.board().flags[0].wait(4);
    processes.kill(2);
    CHECK(processes.end_of(2).killed());
    for (const int32_t survivor : {0, 1})
      CHECK(starts_with(processes.end_of(survivor).text, kPeerLost + "rank 2 is lost"));
    processes.board().flags[1].raise();
    CHECK(starts_with(processes.end_of(3).text, kPeerLost + "rank 2 is lost"));
  }
}

TEST_CASE("a death before all have joined is noticed by those who wait to be ready") {
  Processes processes(3, [](const Rank& self) -> std::string {
    if (self.rank == 2) self.board.flags[7].wait();  // never joins
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    self.board.flags[self.rank].raise();
    return comm.status(-1).text();
  });
  processes.board().flags[0].wait();
  processes.board().flags[1].wait();
  processes.kill(1);
  CHECK(starts_with(processes.end_of(0).text, kPeerLost + "rank 1 is lost"));
}

TEST_CASE("the death of the id's maker is noticed before and after the others have opened it") {
  Processes processes(3, [](const Rank& self) -> std::string {
    const pliant_comm_id id = self.id();
    if (self.rank == 0) {
      self.board.flags[1].wait();
      ::kill(::getpid(), SIGKILL);  // made the id and never joined
    }
    if (self.rank == 2) self.board.flags[2].wait();
    Comm comm(self.device, id, self.rank, self.world_size);
    self.board.flags[1].raise();
    return comm.status(-1).text();
  });
  CHECK(processes.end_of(0).killed());
  CHECK(starts_with(processes.end_of(1).text, kPeerLost + "the rank that made the communicator id is lost"));
  processes.board().flags[2].raise();
  CHECK(starts_with(processes.end_of(2).text, kPeerLost + "the process that made this communicator id"));
}

TEST_CASE("ranks that are killed leave nothing in the file system") {
  const std::set<std::string> before = names_in("/dev/shm");
  Processes processes(3, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
    self.board.flags[0].add();
    self.board.flags[7].wait();
    return "";
  });
  processes.board().flags[0].wait(3);
  CHECK(names_in("/dev/shm") == before);
  for (const int32_t rank : {0, 1, 2}) processes.kill(rank);
  for (const RankEnd& end : processes.ends()) CHECK(end.killed());
  CHECK(names_in("/dev/shm") == before);
}

TEST_CASE("abort from another thread ends a waiting collective here and there, and any number of times") {
  Processes processes(3, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
    if (self.rank == 2) {  // takes no part
      self.board.flags[0].wait();
      return comm.status(0).text();
    }
    std::thread other;
    if (self.rank == 1) {
      other = std::thread([&] {
        self.board.flags[1].wait(2);
        comm.abort();
        comm.abort();
      });
    }
    self.device.call(&pliant_collectives::barrier, comm, stream);
    self.board.flags[1].add();
    const Outcome outcome = stream.synchronize();
    if (other.joinable()) other.join();
    comm.abort();
    if (comm.status(-1).status != PLIANT_ABORTED) return "later status: " + comm.status(-1).text();
    self.device.call(&pliant_collectives::barrier, comm, stream);
    if (const Outcome later = stream.synchronize(); later.status != PLIANT_ABORTED)
      return "later call: " + later.text();
    self.board.flags[0].raise();
    return outcome.text();
  });
  CHECK(processes.end_of(0).text == kAborted + "rank 1 aborted the communicator");
  CHECK(processes.end_of(1).text == kAborted + "this rank aborted the communicator");
  CHECK(processes.end_of(2).text == kAborted + "rank 1 aborted the communicator");
}

TEST_CASE("abort before all have joined ends the wait to be ready and work that was enqueued on it") {
  const Device device;
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  Comm comm(device, id, 0, 2);
  REQUIRE(comm.made().ok());
  const Outcome missing = comm.status(0);
  CHECK(missing.status == PLIANT_DEADLINE_EXCEEDED);
  CHECK(missing.message == "1 of 2 ranks have not joined the communicator after 0 ms: 1");
  const Stream stream(device);
  CHECK(device.call(&pliant_collectives::barrier, comm, stream).ok());
  Flag waiting;
  Outcome ended;
  std::thread waiter([&] {
    waiting.raise();
    ended = comm.status(-1);
  });
  waiting.wait();
  comm.abort();
  waiter.join();
  CHECK(ended.status == PLIANT_ABORTED);
  CHECK(stream.synchronize().status == PLIANT_ABORTED);
}

TEST_CASE("a rank that destroys the communicator while others wait is lost to them by number") {
  Processes processes(3, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (self.rank == 1) {
      if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
      self.board.flags[0].wait(2);
      comm.destroy();
      self.board.flags[1].wait(2);  // alive all the time
      return "";
    }
    self.device.call(&pliant_collectives::barrier, comm, stream);
    self.board.flags[0].add();
    const Outcome outcome = stream.synchronize();
    self.board.flags[1].add();
    return outcome.text();
  });
  const std::string wanted =
      kPeerLost + "rank 1 is lost: it destroyed the communicator while this rank still needed it";
  CHECK(processes.end_of(0).text == wanted);
  CHECK(processes.end_of(1).text == "");
  CHECK(processes.end_of(2).text == wanted);
}

TEST_CASE("destroying a communicator with enqueued work ends that work") {
  const Device device;
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  const Stream stream(device);
  {
    Comm comm(device, id, 0, 2);
    CHECK(device.call(&pliant_collectives::barrier, comm, stream).ok());
  }
  const Outcome outcome = stream.synchronize();
  CHECK(outcome.status == PLIANT_ABORTED);
  CHECK(outcome.message == "this rank destroyed the communicator while work was enqueued on it");
}

TEST_CASE("an orderly destroy right after the last collective, and the end of the process, harm nobody") {
  for (const Kind kind : kKinds) {
    INFO(std::string(name_of(kind)));
    for (int round = 0; round < 10; ++round) {
      Processes processes(
          4,
          [kind](const Rank& self) -> std::string {
            Comm comm(self.device, self.id(), self.rank, self.world_size);
            const Stream stream(self.device);
            return run_case<float>(self.device, comm, stream, kind, self.rank, self.world_size, 20000);
          },
          kSmallChunks);
      for (const RankEnd& end : processes.ends()) CHECK(end.text == "");
    }
  }
}

TEST_CASE("a stopped rank is not lost and the others wait until someone aborts") {
  Processes processes(2, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
    if (self.rank == 1) {
      ::kill(::getpid(), SIGSTOP);
      return "";
    }
    self.device.call(&pliant_collectives::barrier, comm, stream);
    self.board.flags[0].wait();
    if (const Outcome status = comm.status(0); !status.ok()) return "too early: " + status.text();
    comm.abort();
    return stream.synchronize().text();
  });
  processes.board().flags[0].raise();
  CHECK(starts_with(processes.end_of(0).text, kAborted));
  processes.kill(1);
}

TEST_CASE("too little shared memory is an error before anyone joins, and the device goes on") {
  Processes processes(1, [](const Rank& self) -> std::string {
    rlimit limit{};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{1 << 20, limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    pliant_comm_id id{};
    const Outcome refused = self.device.call(&pliant_collectives::comm_id, 4, &id);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    if (!self.device.call(&pliant_collectives::comm_id, 4, &id).ok()) return "did not recover";
    return refused.text();
  });
  const std::string text = processes.end_of(0).text;
  INFO(text);
  CHECK(starts_with(text, std::to_string(PLIANT_RESOURCE_EXHAUSTED) +
                              ": no shared memory for a communicator of 4 ranks: it needs 12.0 MiB"));
  CHECK(text.find("ulimit -f") != std::string::npos);
  CHECK(text.find("chunk_bytes") != std::string::npos);
}

TEST_CASE("a communicator larger than the machine's memory is refused, not killed for") {
  const Device device({{{"chunk_bytes", 64 << 20}}, {}, {}});
  pliant_comm_id id{};
  const Outcome refused = device.call(&pliant_collectives::comm_id, 1 << 16, &id);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(refused.message.find("MiB left") != std::string::npos);
}

// UBSan's own check of an object's type opens a pipe: without a free descriptor it reports what is not there.
#ifndef __SANITIZE_ADDRESS__
TEST_CASE("without a free descriptor a communicator id is refused with the system's words") {
  Processes processes(1, [](const Rank& self) -> std::string {
    const rlimit none{3, 1024};
    ::setrlimit(RLIMIT_NOFILE, &none);
    pliant_comm_id id{};
    return self.device.call(&pliant_collectives::comm_id, 2, &id).text();
  });
  const std::string text = processes.end_of(0).text;
  INFO(text);
  CHECK(starts_with(text, std::to_string(PLIANT_RESOURCE_EXHAUSTED) + ": "));
}
#endif

TEST_CASE("wrong ids, ranks and sizes are refused with what is allowed") {
  const Device device;
  const auto refused = [&](const pliant_comm_id& id, int32_t rank, int32_t world_size) {
    const Comm comm(device, id, rank, world_size);
    CHECK(comm.made().status == PLIANT_INVALID_ARGUMENT);
    return comm.made().message;
  };
  pliant_comm_id id{};
  CHECK(refused(id, 0, 2) == "this is no communicator id of this accelerator");
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  CHECK(refused(id, 0, 3) == "the communicator id is for world size 2, not 3");
  CHECK(refused(id, 2, 2) == "rank 2 is outside 0..1 of world size 2");
  CHECK(refused(id, -1, 2) == "rank -1 is outside 0..1 of world size 2");
  const Comm first(device, id, 1, 2);
  CHECK(first.made().ok());
  CHECK(starts_with(refused(id, 1, 2), "rank 1 has joined already"));
  CHECK(device.call(&pliant_collectives::comm_id, 0, &id).status == PLIANT_INVALID_ARGUMENT);
}

TEST_CASE("ids that nobody uses do not pile up: the oldest is dropped and says so") {
  const Device device;
  std::vector<pliant_comm_id> ids(9);
  for (pliant_comm_id& id : ids) REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  const Comm dropped(device, ids.front(), 0, 2);
  CHECK(dropped.made().status == PLIANT_PEER_LOST);
  const Comm kept(device, ids[1], 0, 2);
  CHECK(kept.made().ok());
}

TEST_CASE("a failure of enqueued work is told once, by the stream or by an event behind it") {
  const Device device;
  const Stream stream(device);
  SUBCASE("by the stream") {
    LoneBarrier barrier(device, stream);
    barrier.abort();
    CHECK(stream.synchronize().status == PLIANT_ABORTED);
    CHECK(stream.synchronize().ok());
  }
  SUBCASE("by an event") {
    Event before(device);
    Event behind(device);
    CHECK(device.call(&pliant_accelerator::event_record, before, stream).ok());
    LoneBarrier barrier(device, stream);
    CHECK(device.call(&pliant_accelerator::event_record, behind, stream).ok());
    barrier.abort();
    CHECK(device.call(&pliant_accelerator::event_synchronize, before).ok());
    CHECK(device.call(&pliant_accelerator::event_synchronize, behind).status == PLIANT_ABORTED);
    CHECK(stream.synchronize().ok());
  }
}

TEST_CASE("a child that is forked while streams work and wait may destroy what it inherited, and end") {
  const Device device(OptionSettings{}, kHostFile);
  pliant_stream* streams[3] = {};
  for (pliant_stream*& stream : streams) {
    REQUIRE(device.call(&pliant_accelerator::stream_create, 0, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_NORMAL, &stream)
                .ok());
  }
  pliant_event* event = nullptr;
  REQUIRE(device.call(&pliant_accelerator::event_create, 0, 0, &event).ok());
  // The first works, the second waits for it, the third has nothing to do; and a thread waits for the event.
  struct Work {
    Flag begun;
    Flag may_end;
  } work;
  const auto function = [](void* context) {
    auto* mine = static_cast<Work*>(context);
    mine->begun.raise();
    mine->may_end.wait();
  };
  void (*plain)(void*) = function;
  REQUIRE(device.call(&pliant_accelerator::host_function, plain, static_cast<void*>(&work), streams[0]).ok());
  REQUIRE(device.call(&pliant_accelerator::event_record, event, streams[0]).ok());
  REQUIRE(device.call(&pliant_accelerator::stream_wait_event, streams[1], event).ok());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 2, &id).ok());
  Comm first(device, id, 0, 2);
  Comm second(device, id, 1, 2);
  REQUIRE(first.status(-1).ok());
  std::thread waiter([&] { device.call(&pliant_accelerator::event_synchronize, event); });
  work.begun.wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    first.destroy();
    second.destroy();
    device.slots().event_destroy(device.self(), event);
    for (pliant_stream* stream : streams) device.slots().stream_destroy(device.self(), stream);
    const_cast<Device&>(device).let_go();
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  work.may_end.raise();
  waiter.join();
  CHECK(first.status(0).ok());
  device.slots().event_destroy(device.self(), event);
  for (pliant_stream* stream : streams) device.slots().stream_destroy(device.self(), stream);
}

TEST_CASE("a forked child that uses what it inherited is told so, and its parent goes on") {
  const Device device(OptionSettings{}, kHostFile);
  const Stream stream(device);
  const Event reached(device);
  const Event ahead(device);
  Flag may_end;
  const auto stand = [](void* context) { static_cast<Flag*>(context)->wait(); };
  REQUIRE(device.call(&pliant_accelerator::event_record, reached, stream).ok());
  REQUIRE(stream.synchronize().ok());
  REQUIRE(device.call(&pliant_accelerator::host_function, +stand, static_cast<void*>(&may_end), stream).ok());
  REQUIRE(device.call(&pliant_accelerator::event_record, ahead, stream).ok());
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  REQUIRE(comm.status(-1).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    char byte = 0;
    int32_t done = 0;
    int told = 0;
    for (const Outcome& outcome : {device.call(&pliant_accelerator::fill_async, &byte, 1, 1, stream),
                                   stream.synchronize(), device.call(&pliant_accelerator::stream_query, stream, &done),
                                   device.call(&pliant_accelerator::event_query, ahead, &done),
                                   device.call(&pliant_accelerator::event_synchronize, ahead), comm.status(-1),
                                   device.call(&pliant_collectives::barrier, comm, stream)}) {
      const bool refused = outcome.status == PLIANT_FAILED_PRECONDITION;
      told += refused && outcome.message.find("forked") != std::string::npos ? 1 : 0;
    }
    comm.abort();  // the parent's communicator goes on
    // What is over needs no thread, and what the child makes has its own.
    told += device.call(&pliant_accelerator::event_synchronize, reached).ok() ? 1 : 0;
#ifdef __SANITIZE_THREAD__
    byte = 5;  // TSan ends a forked process that starts a thread
    told += byte;
#else
    const Stream own(device);
    told += device.call(&pliant_accelerator::fill_async, &byte, 5, 1, own).ok() && own.synchronize().ok() ? byte : 0;
#endif
    ::_exit(told);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  may_end.raise();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7 + 1 + 5);
  CHECK(device.call(&pliant_collectives::barrier, comm, stream).ok());
  CHECK(stream.synchronize().ok());
}
