// What lies below the accelerators on processors: every variant of a loop gives the same bits, ranks of different
// versions do not share memory, ranks show where they run, and a stream runs what is left to it.
#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "common/cpu/stream.hpp"
#include "common/cpu/streamed_copy.hpp"
#include "common/exchange/group.hpp"
#include "common/exchange/segment.hpp"
#include "common/exchange/shared_link.hpp"
#include "pliant/sdk/arithmetic.hpp"

namespace {

using pliant::sdk::DType;
using pliant::sdk::Instructions;
using pliant::sdk::ReduceOp;

constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kI32, DType::kI64, DType::kU8, DType::kF16, DType::kBF16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax};

/// Any bits but those of NaN, whose payload no addition promises, and of huge numbers, which become NaN.
std::vector<std::byte> some_values(DType dtype, size_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(count * pliant::sdk::size_of(dtype));
  std::vector<float> floats(count);
  for (float& value : floats) value = static_cast<float>(static_cast<int32_t>(random())) * 0x1p-19F;
  if (dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8) {
    for (std::byte& one : bytes) one = static_cast<std::byte>(random());
  } else {
    pliant::sdk::cast(DType::kF32, floats.data(), dtype, bytes.data(), count);
  }
  return bytes;
}

struct Results {
  std::vector<std::byte> out;
  std::vector<std::byte> also;
  bool operator==(const Results&) const = default;
};

Results reduced(Instructions instructions, DType dtype, ReduceOp op, const std::vector<const void*>& inputs,
                double scale, size_t count) {
  Results made;
  // One byte more, and results that begin off a cache line.
  made.out.resize(count * pliant::sdk::size_of(dtype) + 1);
  made.also.resize(made.out.size());
  pliant::sdk::reduce_with(instructions, dtype, op, inputs, scale, count, made.out.data(), made.also.data());
  return made;
}

}  // namespace

TEST_CASE("a reduction gives the same bits with AVX2 and without, for every type and operation") {
  if (!pliant::sdk::has(Instructions::kAvx2)) {
    MESSAGE("this machine has no AVX2: nothing to compare");
    return;
  }
  std::mt19937 random(11);
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t sources : {size_t{1}, size_t{2}, size_t{4}, size_t{5}, size_t{9}}) {
        const size_t count = 5003;
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const void*> pointers;
        for (size_t i = 0; i < sources; ++i) inputs.push_back(some_values(dtype, count, random));
        for (const auto& one : inputs) pointers.push_back(one.data());
        const bool whole = dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8;
        const double scale = whole ? 1 : 1.0 / 3;
        CAPTURE(static_cast<int>(dtype));
        CAPTURE(static_cast<int>(op));
        CAPTURE(sources);
        const Results plain = reduced(Instructions::kEveryMachine, dtype, op, pointers, scale, count);
        CHECK(reduced(Instructions::kAvx2, dtype, op, pointers, scale, count) == plain);
      }
    }
  }
}

TEST_CASE("a streamed copy equals memcpy at every alignment and leaves what is around it") {
  std::vector<unsigned char> source(600);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<unsigned char>(i * 7 + 1);
  for (size_t to = 0; to < 64; ++to) {
    for (const size_t from : {size_t{0}, size_t{1}, size_t{31}}) {
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200}, size_t{449}}) {
        std::vector<unsigned char> target(600, 0xee);
        std::vector<unsigned char> wanted = target;
        pliant::accelerator::streamed_copy(target.data() + to, source.data() + from, bytes);
        std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from), bytes,
                    wanted.begin() + static_cast<std::ptrdiff_t>(to));
        CAPTURE(to);
        CAPTURE(from);
        CAPTURE(bytes);
        CHECK(target == wanted);
      }
    }
  }
}

TEST_CASE("ranks of different versions of the accelerator are told so, and share no memory") {
  using pliant::accelerator::kSegmentLayout;
  using pliant::accelerator::Segment;
  pliant_comm_id id{};
  const auto fd = Segment::reserve(2, 4096, id);
  CHECK_NOTHROW(Segment(id, 2));
  for (const uint32_t layout : {uint32_t{0}, kSegmentLayout + 1}) {
    std::memcpy(id.bytes + offsetof(pliant::accelerator::SegmentId, layout), &layout, sizeof(layout));
    std::string told;
    try {
      const Segment joined(id, 2);
    } catch (const pliant::sdk::Failure& refused) {
      CHECK(refused.status() == PLIANT_FAILED_PRECONDITION);
      told = refused.what();
    }
    CHECK(told == "the communicator id comes from another version of this accelerator (memory layout " +
                      std::to_string(layout) + ", here " + std::to_string(kSegmentLayout) +
                      "); all ranks must run the same release");
  }
}

TEST_CASE("a rank shows on which processor it made progress") {
  namespace host = pliant::accelerator;
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof(allowed), &allowed) == 0);
  pliant_comm_id id{};
  const host::UniqueFd memory = host::Segment::reserve(2, 4096, id);
  host::Group one(host::SharedTransport(id, 2), 0, 2, nullptr);
  host::Group other(host::SharedTransport(id, 2), 1, 2, nullptr);
  CHECK(other.segment().rank(0).processor.load() == 0);
  uint64_t ticks = 0;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &allowed)) continue;
    cpu_set_t single;
    CPU_ZERO(&single);
    CPU_SET(processor, &single);
    std::thread([&] {
      REQUIRE(::sched_setaffinity(0, sizeof(single), &single) == 0);
      one.publish(host::Stage::kPosted, ++ticks);
    }).join();
    CHECK(other.segment().rank(0).processor.load() == processor + 1);
  }
}

namespace {

using pliant::accelerator::Stream;
using pliant::accelerator::WorkKind;

/// Collectives of which each is waited for, so that the stream learns that its thread is not needed.
void run_waited_for(Stream& stream) {
  int ran = 0;
  for (int i = 0; i < 20; ++i) {
    stream.enqueue([&] { ++ran; }, {.kind = WorkKind::kCollective});
    stream.synchronize();
  }
  CHECK(ran == 20);
}

}  // namespace

namespace {

/// For as long as that this thread does something else.
void pass(std::chrono::microseconds time) {
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
    std::this_thread::yield();
  }
}

/// True when the waiting thread ran a collective that it waits for after `late`.
bool waiting_thread_runs(Stream& stream, std::chrono::microseconds late) {
  std::thread::id ran;
  stream.enqueue([&] { ran = std::this_thread::get_id(); }, {.kind = WorkKind::kCollective});
  pass(late);
  stream.synchronize();
  return ran == std::this_thread::get_id();
}

}  // namespace

TEST_CASE("a stream leaves a collective to the waiting thread after many that were waited for and a pause") {
  // So patient that only habit decides, however busy the machine is.
  Stream stream(nullptr, 0, pliant::sdk::StreamRole::kCompute,
                {.soon = std::chrono::hours(1), .grace = std::chrono::hours(1)});
  bool left = false;
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
       !left && std::chrono::steady_clock::now() < end;) {
    run_waited_for(stream);  // it learns from those that it has not run before they are waited for
    pass(std::chrono::milliseconds(3));
    left = waiting_thread_runs(stream, std::chrono::milliseconds(20));
  }
  CHECK(left);
}

TEST_CASE("a stream begins by itself again when its collectives come to be waited for late") {
  Stream stream(nullptr, 0);
  for (int round = 0; round < 20; ++round) run_waited_for(stream);
  bool left = true;
  for (int round = 0; round < 200 && left; ++round) left = waiting_thread_runs(stream, std::chrono::microseconds(200));
  CHECK_FALSE(left);
}

TEST_CASE("a stream runs a collective that nobody waits for, also after many that were waited for") {
  Stream stream(nullptr, 0);
  for (int round = 0; round < 5; ++round) {
    run_waited_for(stream);
    std::promise<std::thread::id> ran;
    auto where = ran.get_future();
    stream.enqueue([&] { ran.set_value(std::this_thread::get_id()); }, {.kind = WorkKind::kCollective});
    REQUIRE(where.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
    CHECK(where.get() != std::this_thread::get_id());
  }
}

TEST_CASE("a stream runs a collective and what follows it when somebody asks or waits in another way") {
  using Clock = std::chrono::steady_clock;
  Stream stream(nullptr, 0);
  std::atomic<int> ran{0};
  const auto enqueue = [&](WorkKind kind) { stream.enqueue([&] { ++ran; }, {.kind = kind}); };
  run_waited_for(stream);
  enqueue(WorkKind::kCollective);
  for (const auto limit = Clock::now() + std::chrono::seconds(20); !stream.query();) REQUIRE(Clock::now() < limit);
  CHECK(ran == 1);
  run_waited_for(stream);
  enqueue(WorkKind::kCollective);
  stream.mark()->wait();
  CHECK(ran == 2);
  run_waited_for(stream);
  enqueue(WorkKind::kCollective);
  enqueue(WorkKind::kCopy);
  enqueue(WorkKind::kCollective);
  stream.synchronize();
  CHECK(ran == 5);
}

TEST_CASE("a stream that is destroyed first runs the collectives that were left to whoever waits") {
  std::atomic<int> ran{0};
  {
    Stream stream(nullptr, 0);
    run_waited_for(stream);
    for (int i = 0; i < 3; ++i) stream.enqueue([&] { ++ran; }, {.kind = WorkKind::kCollective});
  }
  CHECK(ran == 3);
}

TEST_CASE("threads that wait for one stream at the same time run each of its collectives once, in order") {
  Stream stream(nullptr, 0);
  std::vector<int> order;
  std::mutex enqueueing;
  int next = 0;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        {
          const std::lock_guard lock(enqueueing);
          stream.enqueue([&order, number = next++] { order.push_back(number); }, {.kind = WorkKind::kCollective});
        }
        stream.synchronize();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  std::vector<int> wanted(600);
  for (int i = 0; i < 600; ++i) wanted[static_cast<size_t>(i)] = i;
  CHECK(order == wanted);
}
