// Every collective, between processes and between threads, against the plain reference.
#include "collective_cases.hpp"

using namespace pliant_test;

namespace {

/// Small pieces, so that a modest count takes many of them.
const OptionSettings kSmallChunks{{{"chunk_bytes", 4096}}, {}, {}};

}  // namespace

TEST_CASE("collectives between processes equal the reference bit by bit at 1, 2, 3, 4 and 7 ranks") {
  for (const int32_t world_size : {1, 2, 3, 4, 7}) {
    INFO("world size ", world_size);
    Processes processes(world_size, every_type, kSmallChunks);
    expect_all_well(processes);
  }
}

TEST_CASE("collectives with the default chunk size equal the reference, also where one chunk is not enough") {
  Processes processes(3, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    return all_cases<float>(self, comm, stream, {5, 65536, 300007});
  });
  expect_all_well(processes);
}

TEST_CASE("collectives whose results are larger than caches equal the reference bit by bit") {
  Processes processes(4, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    for (const Kind kind : kKinds) {
      for (const bool in_place : {false, true}) {
        const std::string fault =
            run_case<float>(self.device, comm, stream, kind, self.rank, self.world_size, 1100003, PLIANT_SUM, in_place);
        if (!fault.empty()) return fault;
      }
    }
    return "";
  });
  expect_all_well(processes);
}

TEST_CASE("maxima larger than caches, which have no instructions of their own as sums have, equal the reference") {
  Processes processes(2, [](const Rank& self) -> std::string {
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    for (const Kind kind : {Kind::kAllReduce, Kind::kReduceScatter}) {
      const std::string fault =
          run_case<float>(self.device, comm, stream, kind, self.rank, self.world_size, 1100003, PLIANT_MAX, false);
      if (!fault.empty()) return fault;
    }
    return "";
  });
  expect_all_well(processes);
}

TEST_CASE("collectives between threads of one process equal the reference") {
  const Device device(kSmallChunks);
  for (const int32_t world_size : {1, 2, 4}) {
    for (const std::string& fault : run_threads(device, world_size, every_type)) CHECK(fault == "");
  }
}

TEST_CASE("an unaligned remainder of a reduce_scatter is right when a chunk holds one line for each rank") {
  Processes processes(
      7,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        return all_cases<uint8_t>(self, comm, stream, {63, 64, 65, 585, 586});
      },
      kSmallChunks);
  expect_all_well(processes);
}

TEST_CASE("many collectives enqueued without waiting run in the order of the calls") {
  Processes processes(
      4,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        std::vector<Case<float>> cases;
        for (uint64_t i = 0; i < 200; ++i) {
          cases.emplace_back(kind_of(i), self.rank, self.world_size, i * 37 % 5000, PLIANT_SUM, false);
        }
        for (Case<float>& one : cases) {
          if (const Outcome started = one.start(self.device, comm, stream); !started.ok()) return started.text();
        }
        if (const Outcome done = stream.synchronize(); !done.ok()) return done.text();
        for (const Case<float>& one : cases) {
          if (std::string fault = one.check(); !fault.empty()) return fault;
        }
        return "";
      },
      kSmallChunks);
  expect_all_well(processes);
}

TEST_CASE("collectives of one communicator on two streams keep the order of the calls") {
  Processes processes(
      3,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream first(self.device);
        const Stream second(self.device);
        std::vector<Case<float>> cases;
        for (uint64_t i = 0; i < 60; ++i)
          cases.emplace_back(kind_of(i), self.rank, self.world_size, i * 91, PLIANT_SUM, false);
        for (size_t i = 0; i < cases.size(); ++i) cases[i].start(self.device, comm, i % 2 == 0 ? first : second);
        for (const Stream* stream : {&first, &second}) {
          if (const Outcome done = stream->synchronize(); !done.ok()) return done.text();
        }
        for (const Case<float>& one : cases) {
          if (std::string fault = one.check(); !fault.empty()) return fault;
        }
        return "";
      },
      kSmallChunks);
  expect_all_well(processes);
}

TEST_CASE("two communicators over the same processes do not disturb each other") {
  Processes processes(
      2,
      [](const Rank& self) -> std::string {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        pliant_comm_id second_id{};
        if (self.rank == 0) {
          if (!self.device.call(&pliant_collectives::comm_id, self.world_size, &second_id).ok()) return "no second id";
        }
        if (!self.device.call(&pliant_collectives::broadcast, comm, &second_id, sizeof(second_id), PLIANT_U8, 0, stream)
                 .ok() ||
            !stream.synchronize().ok()) {
          return "the id could not be sent";
        }
        Comm second(self.device, second_id, self.rank, self.world_size);
        for (uint64_t i = 0; i < 50; ++i) {
          std::string fault = run_case<double>(self.device, i % 2 == 0 ? comm : second, stream, kind_of(i), self.rank,
                                               self.world_size, 100 * i);
          if (!fault.empty()) return fault;
        }
        return "";
      },
      kSmallChunks);
  expect_all_well(processes);
}

TEST_CASE("ranks that call different collectives are told which, on at least one side, and none hangs") {
  const auto told = [](const RankBody& body, const std::string& wanted) {
    Processes processes(2, body, kSmallChunks);
    std::string both;
    for (const RankEnd& end : processes.ends()) {
      CHECK(end.text.rfind(std::to_string(PLIANT_INVALID_ARGUMENT) + ": ", 0) == 0);
      both += end.text + "\n";
    }
    INFO(both);
    CHECK(both.find(wanted) != std::string::npos);
  };
  told(
      [](const Rank& self) {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        std::vector<float> buffer(50000);
        const uint64_t count = self.rank == 0 ? 50000 : 10;
        self.device.call(&pliant_collectives::all_reduce, comm, buffer.data(), buffer.data(), count, PLIANT_F32,
                         PLIANT_SUM, stream);
        return stream.synchronize().text();
      },
      "all_reduce of 50000 f32 (sum)");
  told(
      [](const Rank& self) {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        float value = 0;
        self.device.call(&pliant_collectives::broadcast, comm, &value, 1, PLIANT_F32, self.rank, stream);
        self.device.call(&pliant_collectives::barrier, comm, stream);
        return stream.synchronize().text();
      },
      "called different collectives");
}

TEST_CASE("of ranks that call different collectives one says which whenever its communicator is asked") {
  Processes processes(
      2,
      [](const Rank& self) {
        Comm comm(self.device, self.id(), self.rank, self.world_size);
        const Stream stream(self.device);
        std::vector<float> buffer(10);
        self.device.call(&pliant_collectives::all_reduce, comm, buffer.data(), buffer.data(), self.rank + 1, PLIANT_F32,
                         PLIANT_SUM, stream);
        static_cast<void>(stream.synchronize());
        return comm.status(0).text() + "\n" + comm.status(0).text();
      },
      kSmallChunks);
  std::string all;
  for (const RankEnd& end : processes.ends()) all += end.text + "\n";
  INFO(all);
  const size_t first = all.find("called different collectives");
  REQUIRE(first != std::string::npos);
  CHECK(all.find("called different collectives", first + 1) != std::string::npos);
}

TEST_CASE("collectives refuse wrong types, operations, roots and buffers") {
  const Device device;
  const Stream stream(device);
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  alignas(8) std::array<uint8_t, 64> bytes{};
  const auto refused = [](const Outcome& outcome) { return outcome.status == PLIANT_INVALID_ARGUMENT; };
  void* at = bytes.data();
  void* odd = bytes.data() + 1;
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, at, at, 1, 8, PLIANT_SUM, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, at, at, 1, PLIANT_F32, 4, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, odd, odd, 1, PLIANT_F32, PLIANT_SUM, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_reduce, comm, nullptr, at, 1, PLIANT_F32, PLIANT_SUM, stream)));
  CHECK(refused(device.call(&pliant_collectives::all_gather, comm, at, at, UINT64_MAX / 4, PLIANT_F32, stream)));
  CHECK(refused(device.call(&pliant_collectives::broadcast, comm, at, 1, PLIANT_F32, 1, stream)));
  CHECK(refused(device.call(&pliant_collectives::barrier, nullptr, stream)));
  CHECK(stream.synchronize().ok());
}
