// Devices and communicators in C: what they give is what the C++ API of this process gives, bit by bit.
#include "pliant/communicator.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <functional>
#include <latch>
#include <thread>

#include "c_handles.hpp"
#include "pliant/config.hpp"

using namespace pliant::test;

namespace {

using Id = std::array<uint8_t, PLIANT_COMMUNICATOR_ID_BYTES>;

constexpr int32_t kRanks = 2;
constexpr size_t kCount = 6;

Id id_for(const OwnedAccelerator& accelerator, int32_t ranks) {
  Id id{};
  REQUIRE(pliant_communicator_make_id(accelerator.get(), ranks, id.data(), nullptr) == PLIANT_OK);
  return id;
}

/// What rank `rank` has in `count` elements of an array.
std::vector<float> own_values(int32_t rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 0.1F * static_cast<float>(i + 1) + 0.37F * static_cast<float>(rank);
  return values;
}

/// Runs `body` for each rank in a thread of its own, and appends what they return.
std::vector<float> of_ranks(const std::function<std::vector<float>(int32_t rank)>& body) {
  std::vector<std::vector<float>> answers(kRanks);
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] { answers[static_cast<size_t>(rank)] = body(rank); });
  for (std::thread& thread : threads) thread.join();
  std::vector<float> all;
  for (const auto& one : answers) all.insert(all.end(), one.begin(), one.end());
  return all;
}

const std::vector<uint64_t> kCounts{2, 4};             // of all_gather_v
const std::vector<int32_t> kOwners{1, 0, 1};           // of pieces
const std::vector<uint64_t> kParts{0, 2, 2, 3, 5, 1};  // offset and count of each
const std::vector<uint8_t> kAdds{1, 1};

/// What a rank works with, and the answers that it has so far.
struct Work {
  explicit Work(int32_t of) : rank(of), own(own_values(of, kCount)), room(kRanks * kCount) {}
  void keep() { answers.insert(answers.end(), room.begin(), room.end()); }
  int32_t rank;
  std::vector<float> own;
  std::vector<float> room;
  std::vector<float> answers;
};

/// Every collective in C, one after the other.
std::vector<float> collectives_in_c(const OwnedAccelerator& accelerator, const Id& id, int32_t rank, std::latch& done) {
  Work w(rank);
  const OwnedStream stream = stream_on(accelerator);
  const OwnedCommunicator group = made_by<OwnedCommunicator>([&](auto to, auto error) {
    return pliant_communicator_make(accelerator.get(), 0, id.data(), rank, kRanks, to, error);
  });
  int32_t said_rank = -1;
  int32_t said_size = -1;
  CHECK(pliant_communicator_look(group.get(), &said_rank, &said_size, nullptr) == PLIANT_OK);
  CHECK(said_rank == rank);
  CHECK(said_size == kRanks);
  CHECK(pliant_communicator_wait_ready(group.get(), -1, nullptr) == PLIANT_OK);
  const auto take = [&](int32_t status) {
    CHECK(status == PLIANT_OK);
    CHECK(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
    w.keep();
  };
  pliant_communicator_t* const g = group.get();
  pliant_stream_t* const s = stream.get();
  const float* const own = w.own.data();
  float* const room = w.room.data();
  constexpr int32_t kType = PLIANT_DTYPE_F32;
  take(pliant_communicator_all_reduce(g, own, room, kCount, kType, PLIANT_REDUCE_SUM, s, nullptr));
  take(pliant_communicator_all_reduce(g, own, room, kCount, kType, PLIANT_REDUCE_MAX, s, nullptr));
  take(pliant_communicator_reduce_scatter(g, own, room, kCount / kRanks, kType, PLIANT_REDUCE_SUM, s, nullptr));
  take(pliant_communicator_all_gather(g, own, room, kCount, kType, s, nullptr));
  take(pliant_communicator_all_gather_v(g, own, room, kCounts.data(), kRanks, kType, s, nullptr));
  take(pliant_communicator_broadcast(g, room, kCount, kType, 1, s, nullptr));
  take(pliant_communicator_barrier(g, s, nullptr));
  take(pliant_communicator_gather_pieces(g, own, room, kOwners.data(), kParts.data(), kOwners.size(), kType, s,
                                         nullptr));
  take(pliant_communicator_scatter_pieces(g, own, room, kOwners.data(), kParts.data(), kOwners.size(), kAdds.data(),
                                          kAdds.size(), kType, s, nullptr));
  CHECK(pliant_communicator_begin_group(g, nullptr) == PLIANT_OK);
  CHECK(pliant_communicator_send(g, own, kCount, kType, 1 - rank, s, nullptr) == PLIANT_OK);
  CHECK(pliant_communicator_receive(g, room, kCount, kType, 1 - rank, s, nullptr) == PLIANT_OK);
  take(pliant_communicator_end_group(g, nullptr));
  done.arrive_and_wait();  // nobody leaves while another still waits
  return w.answers;
}

/// The same in C++.
std::vector<float> collectives_in_cpp(const pliant::Accelerator& accelerator, const pliant::CommId& id, int32_t rank,
                                      std::latch& done) {
  Work w(rank);
  pliant::Stream stream(accelerator, 0);
  pliant::Communicator group(accelerator, 0, id, rank, kRanks);
  group.wait_ready();
  std::vector<pliant::ArrayPiece> pieces;
  for (size_t i = 0; i < kOwners.size(); ++i) pieces.push_back({kOwners[i], kParts[2 * i], kParts[2 * i + 1]});
  const auto take = [&] {
    stream.synchronize();
    w.keep();
  };
  const float* const own = w.own.data();
  float* const room = w.room.data();
  constexpr auto kType = pliant::DType::kF32;
  group.all_reduce(own, room, kCount, kType, pliant::ReduceOp::kSum, stream);
  take();
  group.all_reduce(own, room, kCount, kType, pliant::ReduceOp::kMax, stream);
  take();
  group.reduce_scatter(own, room, kCount / kRanks, kType, pliant::ReduceOp::kSum, stream);
  take();
  group.all_gather(own, room, kCount, kType, stream);
  take();
  group.all_gather_v(own, room, kCounts, kType, stream);
  take();
  group.broadcast(room, kCount, kType, 1, stream);
  take();
  group.barrier(stream);
  take();
  group.gather_pieces(own, room, pieces, kType, stream);
  take();
  group.scatter_pieces(own, room, pieces, {true, true}, kType, stream);
  take();
  group.begin_group();
  group.send(own, kCount, kType, 1 - rank, stream);
  group.recv(room, kCount, kType, 1 - rank, stream);
  group.end_group();
  take();
  done.arrive_and_wait();
  return w.answers;
}

}  // namespace

TEST_CASE("every collective in C gives two ranks what the C++ API gives them, bit by bit") {
  const OwnedAccelerator accelerator = host();
  const Id id = id_for(accelerator, kRanks);
  std::latch done_in_c(kRanks);
  const std::vector<float> in_c =
      of_ranks([&](int32_t rank) { return collectives_in_c(accelerator, id, rank, done_in_c); });

  pliant::ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  const pliant::Accelerator other(pliant::Config::parse(kHost, {"accelerator"}, overrides));
  const pliant::CommId other_id = other.make_comm_id(kRanks);
  std::latch done_in_cpp(kRanks);
  const std::vector<float> in_cpp =
      of_ranks([&](int32_t rank) { return collectives_in_cpp(other, other_id, rank, done_in_cpp); });
  REQUIRE(in_c.size() == kRanks * 10 * kRanks * kCount);
  CHECK(in_c == in_cpp);
  const float sum = own_values(0, 1)[0] + own_values(1, 1)[0];
  CHECK(in_c.front() == sum);
}

TEST_CASE("a wait for a rank that does not come ends after its time, and with an abort from any other thread") {
  const OwnedAccelerator accelerator = host();
  const Id id = id_for(accelerator, kRanks);
  const OwnedStream stream = stream_on(accelerator);
  const OwnedCommunicator group = made_by<OwnedCommunicator>([&](auto to, auto error) {
    return pliant_communicator_make(accelerator.get(), 0, id.data(), 0, kRanks, to, error);
  });
  CHECK(pliant_communicator_wait_ready(group.get(), 1, nullptr) == PLIANT_DEADLINE_EXCEEDED);
  int32_t ended = -1;
  std::thread waiting([&] {
    do {
      ended = pliant_communicator_wait_ready(group.get(), -1, nullptr);
    } while (ended == PLIANT_FAILED_PRECONDITION);  // the call below had its turn
  });
  const auto is_busy = [&] {  // refused for its dtype where nothing else is under way
    return pliant_communicator_send(group.get(), nullptr, 0, 77, 1, stream.get(), nullptr) ==
           PLIANT_FAILED_PRECONDITION;
  };
  while (!is_busy()) {
  }
  CHECK(last_message() == "another thread's call on this communicator is under way");
  CHECK(pliant_communicator_free(group.get()) == PLIANT_FAILED_PRECONDITION);
  CHECK(pliant_communicator_abort(group.get(), nullptr) == PLIANT_OK);
  waiting.join();
  CHECK(ended == PLIANT_ABORTED);
}

TEST_CASE("a communicator shrinks to the ranks that stay and grows again, and the old one takes no more calls") {
  const OwnedAccelerator accelerator = host();
  const Id first = id_for(accelerator, kRanks);
  const Id second = id_for(accelerator, 1);
  std::latch all_ready(kRanks);
  std::atomic<bool> has_shrunk{false};
  const auto both = of_ranks([&](int32_t rank) {
    const OwnedStream stream = stream_on(accelerator);
    OwnedCommunicator old = made_by<OwnedCommunicator>([&](auto to, auto error) {
      return pliant_communicator_make(accelerator.get(), 0, first.data(), rank, kRanks, to, error);
    });
    CHECK(pliant_communicator_wait_ready(old.get(), -1, nullptr) == PLIANT_OK);
    all_ready.arrive_and_wait();  // before one of them gives it up
    if (rank == 1) {
      has_shrunk.wait(false);
      return std::vector<float>();
    }
    const std::array<int32_t, 1> without{1};
    const OwnedCommunicator alone = made_by<OwnedCommunicator>([&](auto to, auto error) {
      return pliant_communicator_shrink(old.get(), without.data(), 1, second.data(), to, error);
    });
    has_shrunk = true;
    has_shrunk.notify_all();
    CHECK(pliant_communicator_barrier(old.get(), stream.get(), nullptr) == PLIANT_FAILED_PRECONDITION);
    CHECK(last_message().find("was shrunk or grown") != std::string::npos);
    CHECK(pliant_communicator_abort(old.get(), nullptr) == PLIANT_OK);
    old.reset();
    std::vector<float> values{3};
    CHECK(pliant_communicator_all_reduce(alone.get(), values.data(), values.data(), 1, PLIANT_DTYPE_F32,
                                         PLIANT_REDUCE_SUM, stream.get(), nullptr) == PLIANT_OK);
    CHECK(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
    Id third{};
    CHECK(pliant_communicator_make_grow_id(alone.get(), kRanks, third.data(), nullptr) == PLIANT_OK);
    std::latch both_done(kRanks);
    std::thread joins([&] {
      const OwnedStream own = stream_on(accelerator);
      const OwnedCommunicator joined = made_by<OwnedCommunicator>([&](auto to, auto error) {
        return pliant_communicator_join(accelerator.get(), 0, third.data(), 1, kRanks, to, error);
      });
      float one = 4;
      CHECK(pliant_communicator_all_reduce(joined.get(), &one, &one, 1, PLIANT_DTYPE_F32, PLIANT_REDUCE_SUM, own.get(),
                                           nullptr) == PLIANT_OK);
      CHECK(pliant_stream_synchronize(own.get(), nullptr) == PLIANT_OK);
      CHECK(one == 7);
      both_done.arrive_and_wait();
    });
    const OwnedCommunicator grown = made_by<OwnedCommunicator>(
        [&](auto to, auto error) { return pliant_communicator_grow(alone.get(), third.data(), kRanks, to, error); });
    CHECK(pliant_communicator_all_reduce(grown.get(), values.data(), values.data(), 1, PLIANT_DTYPE_F32,
                                         PLIANT_REDUCE_SUM, stream.get(), nullptr) == PLIANT_OK);
    CHECK(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
    both_done.arrive_and_wait();
    joins.join();
    return values;
  });
  CHECK(both == std::vector<float>{7});
}

TEST_CASE("devices, their memory, streams and events in C") {
  const OwnedAccelerator accelerator = host();
  pliant_accelerator_facts_t facts = PLIANT_INIT(pliant_accelerator_facts_t);
  REQUIRE(pliant_accelerator_look(accelerator.get(), &facts, nullptr) == PLIANT_OK);
  REQUIRE(facts.devices > 0);
  CHECK(std::string(facts.why_none).empty());
  pliant_device_t device = PLIANT_INIT(pliant_device_t);
  REQUIRE(pliant_accelerator_device(accelerator.get(), 0, &device, nullptr) == PLIANT_OK);
  CHECK((device.flags & PLIANT_DEVICE_HOST_VISIBLE) != 0);
  CHECK(std::string(device.name).size() > 2);
  CHECK(device.memory_bytes >= device.free_bytes);
  CHECK(pliant_accelerator_device(accelerator.get(), facts.devices, &device, nullptr) == PLIANT_INVALID_ARGUMENT);

  const auto buffer_of = [&](int32_t kind) {
    return made_by<OwnedBuffer>(
        [&](auto to, auto error) { return pliant_buffer_make(accelerator.get(), 0, 4096, kind, to, error); });
  };
  const OwnedBuffer one = buffer_of(PLIANT_BUFFER_DEVICE);
  const OwnedBuffer other = buffer_of(PLIANT_BUFFER_WINDOW);
  void* from = nullptr;
  void* to = nullptr;
  uint64_t bytes = 0;
  REQUIRE(pliant_buffer_look(one.get(), &from, &bytes, nullptr) == PLIANT_OK);
  REQUIRE(pliant_buffer_look(other.get(), &to, nullptr, nullptr) == PLIANT_OK);
  CHECK(bytes == 4096);
  CHECK(reinterpret_cast<uintptr_t>(to) % 4096 == 0);

  const OwnedStream stream = stream_on(accelerator);
  const OwnedStream beside = stream_on(accelerator);
  const OwnedEvent event =
      made_by<OwnedEvent>([&](auto out, auto error) { return pliant_event_make(accelerator.get(), 0, out, error); });
  const std::array<float, 3> values{1.5F, -2, 4};
  std::array<float, 3> back{};
  std::array<double, 3> wide{};
  REQUIRE(pliant_stream_fill(stream.get(), from, 0, 4096, nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_copy(stream.get(), from, values.data(), sizeof(values), nullptr) == PLIANT_OK);
  const std::array<const void*, 2> sources{from, from};
  REQUIRE(pliant_stream_reduce(stream.get(), to, sources.data(), 2, 3, PLIANT_DTYPE_F32, PLIANT_REDUCE_SUM, 0.5,
                               nullptr) == PLIANT_OK);
  REQUIRE(pliant_event_record(event.get(), stream.get(), nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_wait(beside.get(), event.get(), nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_copy(beside.get(), back.data(), to, sizeof(back), nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_synchronize(beside.get(), nullptr) == PLIANT_OK);
  CHECK(back == values);
  REQUIRE(pliant_event_synchronize(event.get(), nullptr) == PLIANT_OK);
  const OwnedBuffer third = buffer_of(PLIANT_BUFFER_PINNED);
  void* doubles = nullptr;
  REQUIRE(pliant_buffer_look(third.get(), &doubles, nullptr, nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_cast(stream.get(), doubles, PLIANT_DTYPE_F64, to, PLIANT_DTYPE_F32, 3, nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_copy(stream.get(), wide.data(), doubles, sizeof(wide), nullptr) == PLIANT_OK);
  REQUIRE(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
  CHECK(wide == std::array<double, 3>{1.5, -2, 4});
  int32_t is_idle = 0;
  REQUIRE(pliant_stream_is_idle(stream.get(), &is_idle, nullptr) == PLIANT_OK);
  CHECK(is_idle == 1);
}

TEST_CASE("numbers that are no dtype, op, kind, role or rank are refused, and NULL for what is copied") {
  const OwnedAccelerator accelerator = host();
  const OwnedStream stream = stream_on(accelerator);
  const Id id = id_for(accelerator, 1);
  pliant_communicator_t* none = nullptr;
  CHECK(pliant_communicator_make(accelerator.get(), 0, nullptr, 0, 1, &none, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_communicator_make(accelerator.get(), 0, id.data(), 1, 1, &none, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(none == nullptr);
  const OwnedCommunicator group = made_by<OwnedCommunicator>(
      [&](auto to, auto error) { return pliant_communicator_make(accelerator.get(), 0, id.data(), 0, 1, to, error); });
  float value = 1;
  const auto reduce = [&](int32_t dtype, int32_t op) {
    return pliant_communicator_all_reduce(group.get(), &value, &value, 1, dtype, op, stream.get(), nullptr);
  };
  CHECK(reduce(0, PLIANT_REDUCE_SUM) == PLIANT_INVALID_ARGUMENT);
  CHECK(reduce(PLIANT_DTYPE_F32, 4) == PLIANT_INVALID_ARGUMENT);
  CHECK(last_message() == "op 4 is none of PLIANT_REDUCE_...");
  CHECK(reduce(PLIANT_DTYPE_F32, PLIANT_REDUCE_SUM) == PLIANT_OK);
  pliant_buffer_t* buffer = nullptr;
  CHECK(pliant_buffer_make(accelerator.get(), 0, 64, 9, &buffer, nullptr) == PLIANT_INVALID_ARGUMENT);
  pliant_stream_t* other = nullptr;
  CHECK(pliant_stream_make(accelerator.get(), 0, 5, 0, &other, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_stream_make(accelerator.get(), 0, 0, 2, &other, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_stream_copy(stream.get(), nullptr, &value, sizeof(value), nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_stream_copy(stream.get(), &value, nullptr, sizeof(value), nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_stream_fill(stream.get(), nullptr, 0, 1, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_communicator_all_gather_v(group.get(), &value, &value, nullptr, 2, PLIANT_DTYPE_F32, stream.get(),
                                         nullptr) == PLIANT_INVALID_ARGUMENT);
  REQUIRE(pliant_stream_synchronize(stream.get(), nullptr) == PLIANT_OK);
}

TEST_CASE("handles of devices are freed in any order") {
  OwnedAccelerator accelerator = host();
  OwnedStream stream = stream_on(accelerator);
  const Id id = id_for(accelerator, 1);
  OwnedCommunicator group = made_by<OwnedCommunicator>(
      [&](auto to, auto error) { return pliant_communicator_make(accelerator.get(), 0, id.data(), 0, 1, to, error); });
  accelerator.reset();
  float value = 2;
  CHECK(pliant_communicator_begin_group(group.get(), nullptr) == PLIANT_OK);
  CHECK(pliant_communicator_all_reduce(group.get(), &value, &value, 1, PLIANT_DTYPE_F32, PLIANT_REDUCE_SUM,
                                       stream.get(), nullptr) == PLIANT_OK);
  stream.reset();  // the group has it until its end
  CHECK(pliant_communicator_end_group(group.get(), nullptr) == PLIANT_OK);
  group.reset();
  CHECK(value == 2);
}
