// The embedding API's Accelerator over the host plugin.
#include <doctest/doctest.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "pliant/communicator.hpp"
#include "wrapper.hpp"

using pliant::test::error_of;
using pliant::test::host;
using pliant::test::sim;

TEST_CASE("an accelerator from a config describes its device") {
  const pliant::Accelerator accelerator = host("memory_bytes = 12345");
  CHECK(accelerator.device_count() == 1);
  const pliant::DeviceProperties properties = accelerator.properties(0);
  CHECK(properties.name == "host");
  CHECK(properties.memory_bytes == 12345);
  CHECK(properties.host_visible);
  CHECK(properties.fixed_order);
}

TEST_CASE("buffers, streams and communicators keep the plugin alive") {
  std::optional<pliant::Accelerator> accelerator = host();
  pliant::Buffer from(*accelerator, 0, 4);
  pliant::Buffer to(*accelerator, 0, 4, pliant::MemoryKind::kPinned);
  pliant::Stream stream(*accelerator, 0);
  pliant::Communicator alone(*accelerator, 0, accelerator->make_comm_id(1), 0, 1);
  accelerator.reset();
  *static_cast<int32_t*>(from.pointer()) = 42;
  stream.copy(to.pointer(), from.pointer(), 4);
  alone.all_reduce(to.pointer(), to.pointer(), 1, pliant::DType::kI32, pliant::ReduceOp::kSum, stream);
  stream.synchronize();
  CHECK(*static_cast<int32_t*>(to.pointer()) == 42);
}

TEST_CASE("a moved buffer leaves nothing behind and is freed once") {
  const pliant::Accelerator accelerator = host("memory_bytes = 1024");
  pliant::Buffer first(accelerator, 0, 1024);
  void* const pointer = first.pointer();
  pliant::Buffer second = std::move(first);
  CHECK(second.pointer() == pointer);
  CHECK(second.bytes() == 1024);
  {
    const pliant::Buffer third = std::move(second);
    CHECK(error_of([&] { pliant::Buffer(accelerator, 0, 1); })->status() == pliant::Status::kResourceExhausted);
  }
  CHECK(pliant::Buffer(accelerator, 0, 1024).pointer() != nullptr);
}

TEST_CASE("all collectives of the embedding API reach the plugin, or the generic ones where it has none") {
  std::optional<pliant::Accelerator> made;
  SUBCASE("own") {
    made = host();
  }
  SUBCASE("generic") {
    made = pliant::test::generic();
  }
  const pliant::Accelerator& accelerator = *made;
  const pliant::CommId id = accelerator.make_comm_id(2);
  std::vector<std::vector<float>> results(2);
  const auto rank_body = [&](int32_t rank) {
    pliant::Communicator comm(accelerator, 0, id, rank, 2);
    pliant::Stream stream(accelerator, 0);
    comm.wait_ready();
    const auto own = static_cast<float>(rank + 1);
    const std::vector<float> pair = {own, 10 * own};
    std::vector<float> reduced(2);
    std::vector<float> gathered(4);
    float scattered = 0;
    float sent = rank == 1 ? 7.0F : 0.0F;
    comm.all_reduce(pair.data(), reduced.data(), 2, pliant::DType::kF32, pliant::ReduceOp::kSum, stream);
    comm.all_gather(pair.data(), gathered.data(), 2, pliant::DType::kF32, stream);
    comm.reduce_scatter(pair.data(), &scattered, 1, pliant::DType::kF32, pliant::ReduceOp::kMax, stream);
    comm.broadcast(&sent, 1, pliant::DType::kF32, 1, stream);
    comm.barrier(stream);
    const std::vector<uint64_t> counts = {2, 1};
    std::vector<float> uneven(3);
    comm.all_gather_v(pair.data(), uneven.data(), counts, pliant::DType::kF32, stream);
    float received = 0;
    comm.begin_group();
    comm.send(&own, 1, pliant::DType::kF32, 1 - rank, stream);
    comm.recv(&received, 1, pliant::DType::kF32, 1 - rank, stream);
    comm.end_group();
    const std::vector<pliant::ArrayPiece> pieces = {{1, 0, 1}, {0, 2, 2}};
    std::vector<float> whole(4, -1.0F);
    std::vector<float> parts(2, -1.0F);
    comm.gather_pieces(pair.data(), whole.data(), pieces, pliant::DType::kF32, stream);
    comm.scatter_pieces(rank == 1 ? gathered.data() : nullptr, parts.data(), pieces, {false, true}, pliant::DType::kF32,
                        stream);
    stream.synchronize();
    std::vector<float>& all = results[static_cast<size_t>(rank)];
    all = reduced;
    all.insert(all.end(), gathered.begin(), gathered.end());
    all.insert(all.end(), uneven.begin(), uneven.end());
    all.insert(all.end(), whole.begin(), whole.end());
    all.insert(all.end(), parts.begin(), parts.end());
    all.insert(all.end(),
               {received, scattered, sent, static_cast<float>(comm.rank()), static_cast<float>(comm.world_size())});
  };
  std::thread other([&] { rank_body(1); });
  rank_body(0);
  other.join();
  CHECK(results[0] == std::vector<float>{3, 30, 1, 10, 2, 20, 1, 10, 2, 2, -1, 1, 10, 2, 20, 2, 2, 7, 0, 2});
  CHECK(results[1] == std::vector<float>{3, 30, 1, 10, 2, 20, 1, 10, 2, 2, -1, 1, 10, -1, -1, 1, 20, 7, 1, 2});
}

TEST_CASE("errors of the plugin arrive with status, words and an origin that does not blame the plugin") {
  const pliant::Accelerator accelerator = host();
  pliant::Communicator comm(accelerator, 0, accelerator.make_comm_id(2), 0, 2);
  const auto late = error_of([&] { comm.wait_ready(0); });
  REQUIRE(late);
  CHECK(late->status() == pliant::Status::kDeadlineExceeded);
  CHECK(late->origin() == pliant::Origin::kRun);

  pliant::Stream stream(accelerator, 0);
  comm.barrier(stream);
  comm.abort();
  const auto aborted = error_of([&] { stream.synchronize(); });
  REQUIRE(aborted);
  CHECK(aborted->status() == pliant::Status::kAborted);
  const std::vector<uint64_t> one = {1};
  CHECK(error_of([&] { comm.all_gather_v(nullptr, nullptr, one, pliant::DType::kF32, stream); })->message() ==
        "all_gather_v needs a count for each of 2 ranks; got 1");
  CHECK(aborted->message().find("accelerator 'host'") != std::string::npos);
  CHECK(aborted->message().find("this rank aborted the communicator") != std::string::npos);

  const auto refused = error_of([&] { pliant::Communicator(accelerator, 0, pliant::CommId{}, 0, 2); });
  REQUIRE(refused);
  CHECK(refused->status() == pliant::Status::kInvalidArgument);
}

TEST_CASE("the simulator can be named like any accelerator where the testkit is searched") {
  const pliant::Accelerator accelerator = sim("fail_alloc_at = [1]\n");
  CHECK(error_of([&] { pliant::Buffer(accelerator, 0, 1); })->status() == pliant::Status::kResourceExhausted);
  CHECK(pliant::Buffer(accelerator, 0, 1).pointer() != nullptr);
}

TEST_CASE("work on streams reaches the plugin: fill, reduce, cast, and events between streams") {
  const pliant::Accelerator accelerator = host();
  pliant::Stream first(accelerator, 0, pliant::StreamRole::kToDevice, pliant::Priority::kHigh);
  pliant::Stream second(accelerator, 0);
  const pliant::Buffer whole(accelerator, 0, 4 * sizeof(int32_t));
  const pliant::Buffer real(accelerator, 0, 4 * sizeof(double));
  auto* const numbers = static_cast<int32_t*>(whole.pointer());
  pliant::Event filled(accelerator, 0, true);
  pliant::Event begun(accelerator, 0, true);
  CHECK(filled.is_reached());
  begun.record(first);
  first.fill(numbers, 1, 4 * sizeof(int32_t));
  filled.record(first);
  second.wait(filled);
  const void* const sources[] = {numbers, numbers, numbers};
  second.reduce(numbers, sources, 4, pliant::DType::kI32, pliant::ReduceOp::kSum);
  second.cast(real.pointer(), pliant::DType::kF64, numbers, pliant::DType::kI32, 4);
  second.synchronize();
  CHECK(second.is_idle());
  CHECK(static_cast<double*>(real.pointer())[3] == 3.0 * 0x01010101);
  filled.synchronize();
  CHECK(filled.is_reached());
  CHECK(filled.seconds_since(begun) >= 0);
  const auto refused = error_of([&] { second.reduce(numbers, {}, 4, pliant::DType::kI32, pliant::ReduceOp::kSum); });
  REQUIRE(refused);
  CHECK(refused->status() == pliant::Status::kInvalidArgument);
}

TEST_CASE(
    "a stream is busy for as long as it is told, also where a function of the host waits in place of the device") {
  using std::chrono::milliseconds;
  for (const pliant::Accelerator& accelerator : {host(), sim("spends = true"), sim("spends = false")}) {
    pliant::Stream stream(accelerator, 0);
    pliant::Stream beside(accelerator, 0, pliant::StreamRole::kGather);
    pliant::Event begin(accelerator, 0, true);
    pliant::Event end(accelerator, 0, true);
    uint8_t to = 0;
    begin.record(stream);
    stream.spend(milliseconds(20));
    stream.spend(milliseconds(0));
    stream.fill(&to, 7, 1);
    end.record(stream);
    uint8_t there = 0;
    beside.fill(&there, 1, 1);
    beside.synchronize();
    CHECK(there == 1);
    stream.synchronize();
    CHECK(to == 7);
    CHECK(end.seconds_since(begin) >= 0.02);
    for (const std::chrono::nanoseconds none :
         {std::chrono::nanoseconds(-1), std::chrono::nanoseconds(1000000000001)}) {
      const auto refused = error_of([&] { stream.spend(none); });
      REQUIRE(refused);
      CHECK(refused->status() == pliant::Status::kInvalidArgument);
    }
  }
}
