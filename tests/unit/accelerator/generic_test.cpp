// The collectives that core builds for an accelerator without any, against the plain reference, and when ranks die.
#include "generic_device.hpp"
#include "handles.hpp"
#include "thorough.hpp"

using namespace pliant_test;

TEST_CASE("generic collectives equal the reference bit by bit at 1, 2, 3, 4 and 7 ranks, in each way") {
  size_t number = 0;
  for (const Setup& setup : every_setup()) {
    for (const int32_t world_size : {1, 2, 3, 4, 7}) {
      // Three ranks with every type always, other numbers in every third setup.
      if (++number % 3 != 0 && world_size != 3 && !pliant::test::is_thorough()) continue;
      INFO(setup.name, ", world size ", world_size);
      // How ranks share the work does not depend on the type.
      expect_all_well(ends_of(setup, world_size, world_size == 3 ? every_type : every_case_of<float>));
    }
  }
}

TEST_CASE("ranks go the way that all of them can") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(ends_of(setup, 3, [way = setup.way](const Rank& self) -> std::string {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      const std::string fault = run_case<float>(self.device, comm, stream, Kind::kAllReduce, self.rank, 3, 1000);
      return fault.empty() ? goes(comm, way) : fault;
    }));
  }
}

TEST_CASE("ranks of which one has no memory that others map are staged, all of them") {
  const Configs able(kDevices);
  const Configs unable(kStaged);
  Processes processes(
      3,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        const std::string fault = all_cases<float>(self, comm, stream, {0, 5, 20011});
        return fault.empty() ? goes(comm, Way::kStaged) : fault;
      },
      [&](int32_t rank) { return std::make_unique<GenericDevice>(rank == 1 ? unable : able); });
  expect_all_well(processes.ends());
}

// TSan sees no order that ranks of one process make through memory of `host` that each has mapped for itself.
#ifndef __SANITIZE_THREAD__
TEST_CASE("ranks that are threads of one process read each other's device memory, too") {
  const Configs configs(kDevices);
  const GenericDevice device(configs);
  const std::vector<std::string> faults = run_threads(device, 3, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    const std::string fault = all_cases<float>(self, comm, stream, {0, 5, 20011});
    return fault.empty() ? goes(comm, Way::kPeer) : fault;
  });
  for (const std::string& fault : faults) CHECK(fault == "");
}
#endif

TEST_CASE("generic collectives of more than a stage holds go through it in pieces") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    expect_all_well(ends_of(setup, 3, [](const Rank& self) -> std::string {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      std::string fault;
      for (const Kind kind : kKinds) {
        const uint64_t stage = uint64_t{1} << 19U;  // doubles
        for (const uint64_t count : {stage, stage + 1}) {
          if (fault.empty()) fault = run_case<double>(self.device, comm, stream, kind, self.rank, 3, count);
        }
      }
      return fault;
    }));
  }
}

TEST_CASE("generic collectives on two streams keep the order of the calls under delays") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const auto both = [](const Rank& self) -> std::string {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream first(self.device);
      const Stream second(self.device);
      std::vector<Case<float>> cases;
      for (uint64_t i = 0; i < 60; ++i) {
        cases.emplace_back(kind_of(i), self.rank, self.world_size, i * 91, PLIANT_SUM, false);
      }
      // A call on one stream uses nothing that one on the other stream makes.
      for (size_t i = 0; i < cases.size(); ++i) {
        const Outcome started = cases[i].start(self.device, comm, i % 3 == 0 ? first : second);
        if (!started.ok()) return started.text();
      }
      for (const Stream* stream : {&first, &second}) {
        if (const Outcome done = stream->synchronize(); !done.ok()) return done.text();
      }
      for (const Case<float>& one : cases) {
        if (std::string fault = one.check(); !fault.empty()) return fault;
      }
      return "";
    };
    expect_all_well(ends_of(setup, 3, both, true));
  }
}

TEST_CASE("kill -9 of a rank in the middle of any generic collective wakes all survivors with its number") {
  for (const Setup& setup : every_setup()) {
    for (const Kind kind : kKinds) {
      INFO(setup.name, ", ", name_of(kind));
      const std::vector<RankEnd> ends = ends_of(setup, 3, [kind](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        Flag& rounds = self.board.flags[0];
        std::thread death;
        if (self.rank == 1) {
          death = std::thread([&] {
            rounds.wait(30);
            self.board.killed_at_us.store(now_us());
            ::kill(::getpid(), SIGKILL);
          });
        }
        std::string text = repeat_until_failure(self, kind, comm, stream, rounds);
        if (death.joinable()) death.join();
        return text;
      });
      CHECK(ends[1].killed());
      for (const size_t survivor : {size_t{0}, size_t{2}}) {
        INFO(ends[survivor].text);
        CHECK(starts_with(ends[survivor].text, std::to_string(PLIANT_PEER_LOST) + ": rank 1 is lost"));
      }
    }
  }
}

TEST_CASE("abort and destroy end generic collectives that wait, and what is enqueued behind them") {
  for (const Setup& setup : every_setup()) {
    for (const bool destroys : {false, true}) {
      INFO(setup.name, destroys ? ", destroyed" : ", aborted");
      // The other rank of two never comes.
      expect_all_well(ends_of(setup, 1, [destroys](const Rank& self) -> std::string {
        pliant_comm_id id{};
        if (!self.device.call(&pliant_collectives::comm_id, 2, &id).ok()) return "comm_id";
        const Stream stream(self.device);
        const Stream other(self.device);
        Comm comm(self.device, id, 0, 2);
        std::vector<float> values(10);
        for (int i = 0; i < 3; ++i) {
          const Outcome made = self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(), 10,
                                                PLIANT_F32, PLIANT_SUM, stream);
          if (!made.ok()) return made.text();
        }
        if (!self.device.call(&pliant_collectives::barrier, comm, other).ok()) return "barrier";
        if (destroys) {
          comm.destroy();
        } else {
          comm.abort();
          comm.abort();
        }
        for (const Stream* one : {&stream, &other}) {
          const Outcome ended = one->synchronize();
          if (ended.status != PLIANT_ABORTED) return "a stream ended with " + ended.text();
        }
        if (!stream.synchronize().ok()) return "a failure was told twice";
        if (destroys) return "";
        const std::string status = comm.status(0).text();
        if (status != std::to_string(PLIANT_ABORTED) + ": this rank aborted the communicator") return status;
        if (!self.device.call(&pliant_collectives::barrier, comm, stream).ok()) return "a barrier after the abort";
        return stream.synchronize().status == PLIANT_ABORTED ? "" : "a barrier went on after the abort";
      }));
    }
  }
}

namespace {

/// Descriptors and mappings when the communicators before are gone: what a peer may have had open longer goes when the
/// next one is made.
int64_t held_beside_a_lone_communicator(const Device& device) {
  pliant_comm_id id{};
  if (!device.call(&pliant_collectives::comm_id, 1, &id).ok()) throw std::runtime_error("comm_id");
  { const Comm lone(device, id, 0, 1); }
  return open_descriptors() + shared_mappings();
}

std::string rounds_of_communicators(const Rank& self) {
  const Stream stream(self.device);
  const auto once = [&](const pliant_comm_id& id) -> std::string {
    Comm comm(self.device, id, self.rank, self.world_size);
    const std::string fault = run_case<float>(self.device, comm, stream, Kind::kAllReduce, self.rank, 3, 1000);
    return fault.empty() ? goes(comm, Way::kPeer) : fault;
  };
  constexpr uint32_t kRounds = 12;
  Flag& made = self.board.flags[0];
  Flag& read = self.board.flags[1];
  held_beside_a_lone_communicator(self.device);  // what the first one opens stays
  const int64_t before = held_beside_a_lone_communicator(self.device);
  for (uint32_t round = 0; round < kRounds; ++round) {
    // Rank 0 makes an id when all have ended the round before.
    if (self.rank == 0) {
      read.wait(3 * round);
      const Outcome id = self.device.call(&pliant_collectives::comm_id, self.world_size, &self.board.id);
      if (!id.ok()) return id.text();
      made.raise(round + 1);
    }
    made.wait(round + 1);
    const std::string fault = once(pliant_comm_id(self.board.id));
    if (!fault.empty()) return fault;
    read.add();
  }
  read.wait(3 * kRounds);
  // The last thread of a communicator may still be on its way out.
  const int64_t end_us = now_us() + 10000000;
  int64_t after = held_beside_a_lone_communicator(self.device);
  while (after != before && now_us() < end_us) after = held_beside_a_lone_communicator(self.device);
  return after == before ? ""
                         : std::to_string(after) + " descriptors and mappings after " + std::to_string(kRounds) +
                               " communicators, " + std::to_string(before) + " before";
}

}  // namespace

TEST_CASE("communicators of device memory leave no descriptor, mapping or thread behind") {
  for (const Setup& setup : every_setup()) {
    if (setup.way != Way::kPeer) continue;
    INFO(setup.name);
    expect_all_well(ends_of(setup, 3, rounds_of_communicators));
  }
}

TEST_CASE("ranks whose calls differ are told so, also through generic collectives") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    const std::vector<RankEnd> ends = ends_of(setup, 2, [](const Rank& self) {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      std::vector<float> values(10);
      self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(), self.rank + 5, PLIANT_F32,
                       PLIANT_SUM, stream);
      return stream.synchronize().text();
    });
    for (const RankEnd& end : ends) {
      INFO(end.text);
      CHECK(starts_with(end.text, std::to_string(PLIANT_INVALID_ARGUMENT) + ": "));
    }
  }
}

TEST_CASE("a rank that is in a barrier where another is in a generic collective is told of both") {
  for (const Setup& setup : every_setup()) {
    INFO(setup.name);
    std::string both;
    for (const RankEnd& end : ends_of(setup, 2, [](const Rank& self) {
           Comm comm(self.device, self.id(), self.rank, self.world_size);
           const Stream stream(self.device);
           std::vector<float> values(10);
           if (self.rank == 0) {
             self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(), 10, PLIANT_F32,
                              PLIANT_SUM, stream);
           } else {
             self.device.call(&pliant_collectives::barrier, comm, stream);
           }
           return stream.synchronize().text();
         })) {
      CHECK(starts_with(end.text, std::to_string(PLIANT_INVALID_ARGUMENT) + ": "));
      both += end.text + "\n";
    }
    INFO(both);
    CHECK(both.find("all_reduce of 10") != std::string::npos);
    CHECK(both.find("barrier") != std::string::npos);
  }
}

#ifdef PLIANT_SOFT_LEVEL_ZERO
namespace {

/// Device memory, which the processors of the software driver may not touch.
std::string sum_on_devices(const Rank& self) {
  use_software_driver();
  Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  constexpr uint64_t kCount = 50021;
  constexpr uint64_t kBytes = kCount * sizeof(float);
  void* memory = nullptr;
  const Outcome made = self.device.call(&pliant_accelerator::alloc, 0, PLIANT_MEMORY_DEVICE, kBytes, &memory);
  if (!made.ok()) return made.text();
  std::vector<float> values(kCount);
  for (uint64_t i = 0; i < kCount; ++i) values[i] = input<float>(self.rank, i);
  using A = pliant_accelerator;
  Outcome outcome;
  const auto keep = [&outcome](const Outcome& one) {
    if (outcome.ok()) outcome = one;
  };
  keep(self.device.call(&A::copy_async, memory, values.data(), kBytes, stream));
  keep(self.device.call(&pliant_collectives::all_reduce, comm, memory, memory, kCount, PLIANT_F32, PLIANT_SUM, stream));
  keep(self.device.call(&A::copy_async, values.data(), memory, kBytes, stream));
  keep(stream.synchronize());
  self.device.slots().free(self.device.self(), 0, PLIANT_MEMORY_DEVICE, memory);
  if (!outcome.ok()) return outcome.text();
  for (uint64_t i = 0; i < kCount; ++i) {
    const float wanted = reduced<float>(self.world_size, PLIANT_SUM, i);
    if (std::memcmp(&values[i], &wanted, sizeof(float)) != 0) return "element " + std::to_string(i) + " is wrong";
  }
  return software_driver_counts().first_violation;
}

}  // namespace

TEST_CASE("Level Zero sums what lies in device memory, which the CPU cannot touch, in each way") {
  for (const Setup& setup : every_setup()) {
    if (setup.options != kLevelZero) continue;
    for (const int32_t world_size : {1, 3}) {
      INFO(setup.name, ", world size ", world_size);
      expect_all_well(ends_of(setup, world_size, sum_on_devices));
    }
  }
}
#endif
