// Collectives of NCCL, of the accelerator cuda; on NCCL in software. The checks of collectives are those of the
// conformance kit.
#include <array>
#include <memory>
#include <thread>

#include "cuda_device.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;
using Collectives = pliant_collectives;

/// The ranks of a test are threads, and share a device.
OptionSettings with_nccl(const std::string& library) {
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  return {{}, {}, {}, {{"collectives", "nccl"}, {"nccl", library}}};
}

/// Whether there are collectives, and what was logged about it, when they are asked for twice.
struct Offer {
  bool offered = false;
  std::vector<std::string> log;
};

Offer offer_of(const std::string& collectives, const std::string& nccl) {
  use_software_cuda();
  Offer made;
  pliant_host host{};
  host.struct_size = sizeof(host);
  host.context = &made.log;
  host.log = [](void* context, int32_t, pliant_str line) {
    static_cast<std::vector<std::string>*>(context)->emplace_back(line.data, line.size);
  };
  void* library = ::dlopen(kCudaFile, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const pliant_plugin& record = *reinterpret_cast<pliant_plugin_entry>(::dlsym(library, PLIANT_PLUGIN_ENTRY_SYMBOL))();
  std::vector<pliant_value> values;
  for (uint32_t i = 0; i < record.option_count; ++i) {
    pliant_value value = *record.options[i].default_value;
    const std::string key = record.options[i].key;
    if (key == "collectives") value.text = {collectives.data(), collectives.size()};
    if (key == "nccl") value.text = {nccl.data(), nccl.size()};
    values.push_back(value);
  }
  const pliant_option_values view{sizeof(view), record.option_count, sizeof(pliant_value), values.data()};
  pliant_error error{};
  error.struct_size = sizeof(error);
  void* self = nullptr;
  REQUIRE(record.create(&host, &view, &self, &error) == PLIANT_OK);
  made.offered = record.extension(self, PLIANT_COLLECTIVES) != nullptr;
  CHECK(made.offered == (record.extension(self, PLIANT_COLLECTIVES) != nullptr));
  record.destroy(self);
  ::dlclose(library);
  return made;
}

}  // namespace

TEST_CASE("NCCL that is there is used without a word") {
  const Offer offer = offer_of("nccl", PLIANT_SOFT_NCCL);
  CHECK(offer.offered);
  CHECK(offer.log.empty());
}

TEST_CASE("without NCCL there are no collectives of its own, and why is logged once") {
  const Offer offer = offer_of("auto", "libnccl_that_is_not_there.so.2");
  CHECK(!offer.offered);
  REQUIRE(offer.log.size() == 1);
  CHECK(contains(offer.log.front(), "generic collectives instead of NCCL's: NCCL cannot be opened"));
  CHECK(contains(offer.log.front(), "libnccl_that_is_not_there.so.2"));
}

TEST_CASE("an NCCL that is too old is named with both versions") {
  const Setting old("PLIANT_SOFT_NCCL_VERSION", "21702");
  const Offer offer = offer_of("auto", PLIANT_SOFT_NCCL);
  CHECK(!offer.offered);
  REQUIRE(offer.log.size() == 1);
  CHECK(contains(offer.log.front(), "is NCCL 2.17.2, and at least 2.18.0 is needed"));
}

TEST_CASE("generic collectives are what the option asks for, and NCCL is not opened") {
  const Offer offer = offer_of("generic", "libnccl_that_is_not_there.so.2");
  CHECK(!offer.offered);
  CHECK(offer.log.empty());
}

TEST_CASE("who asks for NCCL gets no other collectives where it is missing or too old, and is told why") {
  const auto refusal = [](const std::string& library) {
    const SoftwareCuda device(with_nccl(library));
    pliant_comm_id id{};
    const Outcome made = device.call(&Collectives::comm_id, 1, &id);
    CHECK(made.status == PLIANT_FAILED_PRECONDITION);
    CHECK(Comm(device, id, 0, 1).made().text() == made.text());
    CHECK(device.log().empty());
    return made.message;
  };
  const std::string missing = refusal("libnccl_that_is_not_there.so.2");
  CAPTURE(missing);
  CHECK(contains(missing, "collectives = \"nccl\", and NCCL cannot be opened"));
  CHECK(contains(missing, "collectives = \"auto\" takes the generic ones"));
  const Setting old("PLIANT_SOFT_NCCL_VERSION", "21702");
  CHECK(contains(refusal(PLIANT_SOFT_NCCL), "is NCCL 2.17.2, and at least 2.18.0 is needed"));
}

TEST_CASE("plain memory is refused as a buffer of NCCL") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  REQUIRE(comm.status(-1).ok());
  const Stream stream(device);
  std::array<float, 4> plain{};
  const Outcome refused =
      device.call(&Collectives::all_reduce, comm, plain.data(), plain.data(), 4, PLIANT_F32, PLIANT_SUM, stream);
  CHECK(refused.status == PLIANT_INVALID_ARGUMENT);
  CHECK(contains(refused.message, "plain memory, which NCCL cannot use"));
}

TEST_CASE("ranks of a machine that call different things on NCCL are told whom they differ from") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 2, &id).ok());
  std::array<std::unique_ptr<Comm>, 2> comms;
  for (int32_t rank = 0; rank < 2; ++rank)
    comms[static_cast<size_t>(rank)] = std::make_unique<Comm>(device, id, rank, 2);
  for (const auto& comm : comms) REQUIRE(comm->status(-1).ok());
  void* memory = nullptr;
  REQUIRE(device.alloc(4 * sizeof(float), &memory).ok());
  {
    const Stream first(device);
    const Stream second(device);
    REQUIRE(device.call(&Collectives::all_reduce, *comms[0], memory, memory, 4, PLIANT_F32, PLIANT_SUM, first).ok());
    const Outcome called = device.call(&Collectives::broadcast, *comms[1], memory, 4, PLIANT_F32, 1, second);
    const Outcome waited = second.synchronize();
    const Outcome& told = called.ok() ? waited : called;
    CHECK(told.status == PLIANT_INVALID_ARGUMENT);
    CHECK(told.rank == 0);
    CHECK(contains(told.message, "rank 1 broadcast of 4 f32 from rank 1, rank 0 all_reduce of 4 f32 (sum)"));
    const Outcome other = first.synchronize();
    CHECK(other.status == PLIANT_INVALID_ARGUMENT);
    CHECK(other.rank == 1);
    CHECK(comms[0]->status(0).status == PLIANT_INVALID_ARGUMENT);
  }
  for (auto& comm : comms) comm.reset();
  device.free(memory);
}

TEST_CASE("an abort from another thread ends the wait for a rank that never comes, and all later ones") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 2, &id).ok());
  Comm mine(device, id, 0, 2);
  Comm other(device, id, 1, 2);
  REQUIRE(mine.status(-1).ok());
  REQUIRE(other.status(-1).ok());
  const Stream stream(device);
  REQUIRE(device.call(&Collectives::barrier, mine, stream).ok());
  std::thread aborting([&] { mine.abort(); });
  CHECK(stream.synchronize().status == PLIANT_ABORTED);
  aborting.join();
  CHECK(mine.status(0).status == PLIANT_ABORTED);
  REQUIRE(device.call(&Collectives::barrier, mine, stream).ok());
  CHECK(stream.synchronize().status == PLIANT_ABORTED);
  CHECK(stream.synchronize().ok());  // told once
}

TEST_CASE("collectives of one communicator on two streams run in the order of the calls on every rank") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 2, &id).ok());
  std::array<std::unique_ptr<Comm>, 2> comms;
  for (int32_t rank = 0; rank < 2; ++rank)
    comms[static_cast<size_t>(rank)] = std::make_unique<Comm>(device, id, rank, 2);
  void* memory = nullptr;
  REQUIRE(device.alloc(4 * sizeof(int32_t), &memory).ok());
  auto* const words = static_cast<int32_t*>(memory);
  {
    // Rank 0 calls on two streams in turn, of which the first is held up by the CPU; rank 1 on one stream.
    const Stream first(device);
    const Stream second(device);
    const Stream only(device);
    REQUIRE(device.call(&Slots::fill_async, memory, 0, 4 * sizeof(int32_t), only).ok());
    REQUIRE(only.synchronize().ok());
    std::atomic<bool> open{false};
    const auto gate = [](void* context) { static_cast<std::atomic<bool>*>(context)->wait(false); };
    REQUIRE(device.call(&Slots::host_function, +gate, &open, first).ok());
    REQUIRE(device.call(&Slots::fill_async, words, 1, sizeof(int32_t), first).ok());
    const auto reduce = [&](const Comm& comm, int32_t* word, const Stream& stream) {
      return device.call(&Collectives::all_reduce, comm, word, word, 1, PLIANT_I32, PLIANT_SUM, stream).ok();
    };
    REQUIRE(reduce(*comms[0], words, first));
    REQUIRE(reduce(*comms[0], words + 1, second));
    REQUIRE(reduce(*comms[1], words + 2, only));
    REQUIRE(reduce(*comms[1], words + 3, only));
    open = true;
    open.notify_all();
    for (const Stream* stream : {&first, &second, &only}) CHECK(stream->synchronize().text() == "0: ");
    std::array<int32_t, 4> got{};
    REQUIRE(device.call(&Slots::copy_async, got.data(), memory, sizeof(got), only).ok());
    REQUIRE(only.synchronize().ok());
    CHECK(got == std::array<int32_t, 4>{0x01010101, 0, 0x01010101, 0});
  }
  // Ranks leave together: each from a thread of its own.
  std::thread leaving([&] { comms[1].reset(); });
  comms[0].reset();
  leaving.join();
  device.free(memory);
}

TEST_CASE("survivors of a rank that left shrink their communicator, close the gap and go on") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 3, &id).ok());
  std::array<std::unique_ptr<Comm>, 3> comms;
  for (int32_t rank = 0; rank < 3; ++rank)
    comms[static_cast<size_t>(rank)] = std::make_unique<Comm>(device, id, rank, 3);
  for (const auto& comm : comms) REQUIRE(comm->status(-1).ok());
  void* memory = nullptr;
  REQUIRE(device.alloc(4 * sizeof(int32_t), &memory).ok());
  auto* const words = static_cast<int32_t*>(memory);
  {
    const Stream first(device);
    const Stream last(device);
    // Rank 0 waits for rank 1, which leaves; rank 2 has noticed nothing.
    REQUIRE(device.call(&Collectives::barrier, *comms[0], first).ok());
    comms[1]->abort();
    comms[1]->destroy();
    CHECK(first.synchronize().status != PLIANT_OK);
    const int32_t leaving = 1;
    std::array<pliant_comm*, 2> smaller{};
    REQUIRE(device.call(&Collectives::comm_shrink, *comms[0], &leaving, 1, &id, &smaller[0]).ok());
    REQUIRE(device.call(&Collectives::comm_shrink, *comms[2], &leaving, 1, &id, &smaller[1]).ok());
    comms[0]->destroy();
    for (pliant_comm* one : smaller) REQUIRE(device.call(&Collectives::comm_status, one, -1).text() == "0: ");
    REQUIRE(device.call(&Slots::fill_async, words, 1, sizeof(int32_t), first).ok());
    REQUIRE(device.call(&Slots::fill_async, words + 1, 2, sizeof(int32_t), last).ok());
    REQUIRE(device.call(&Collectives::all_gather, smaller[0], words, words + 2, 1, PLIANT_I32, first).ok());
    // In the place of rank 1 of 2.
    void* other = nullptr;
    REQUIRE(device.alloc(2 * sizeof(int32_t), &other).ok());
    REQUIRE(device.call(&Collectives::all_gather, smaller[1], words + 1, other, 1, PLIANT_I32, last).ok());
    CHECK(first.synchronize().text() == "0: ");
    CHECK(last.synchronize().text() == "0: ");
    std::array<int32_t, 2> got{};
    REQUIRE(device.call(&Slots::copy_async, got.data(), words + 2, sizeof(got), first).ok());
    REQUIRE(first.synchronize().ok());
    CHECK(got == std::array<int32_t, 2>{0x01010101, 0x02020202});
    device.free(other);
    for (pliant_comm* one : smaller) device.collective_calls()->comm_destroy(device.collective_calls().self(), one);
  }
  for (auto& comm : comms) comm.reset();
  device.free(memory);
}

TEST_CASE("an NCCL that cannot revoke, shrink and grow leaves that to the host") {
  const SoftwareCuda old(with_nccl(PLIANT_SOFT_OLD_NCCL));
  CHECK(!old.collectives().comm_shrink);
  CHECK(!old.collectives().comm_grow);
  CHECK(!old.collectives().comm_grow_id);
  const SoftwareCuda fresh(with_nccl(PLIANT_SOFT_NCCL));
  CHECK(!!fresh.collectives().comm_shrink);
  CHECK(!!fresh.collectives().comm_grow);
  CHECK(!!fresh.collectives().comm_grow_id);
}

TEST_CASE("a communicator of 2 ranks grows to 4 when its work has run, and old ranks keep their numbers") {
  const Setting seed("PLIANT_SOFT_CUDA_SEED", "5");
  const Setting delay("PLIANT_SOFT_CUDA_MAX_DELAY_US", "3000");
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 2, &id).ok());
  std::array<std::unique_ptr<Comm>, 2> old;
  for (int32_t rank = 0; rank < 2; ++rank) old[static_cast<size_t>(rank)] = std::make_unique<Comm>(device, id, rank, 2);
  for (const auto& comm : old) REQUIRE(comm->status(-1).ok());
  void* memory = nullptr;
  REQUIRE(device.alloc(24 * sizeof(int32_t), &memory).ok());
  auto* const words = static_cast<int32_t*>(memory);
  {
    std::array<std::unique_ptr<Stream>, 4> streams;
    for (auto& stream : streams) stream = std::make_unique<Stream>(device);
    REQUIRE(device.call(&Slots::fill_async, words, 1, 4 * sizeof(int32_t), *streams[0]).ok());
    REQUIRE(streams[0]->synchronize().ok());
    REQUIRE(device.call(&Collectives::comm_grow_id, *old[1], 4, &id).ok());
    // Both have work that has not run.
    for (size_t r = 0; r < 2; ++r) {
      REQUIRE(
          device.call(&Collectives::all_reduce, *old[r], words + r, words + r, 1, PLIANT_I32, PLIANT_SUM, *streams[r])
              .ok());
    }
    std::array<pliant_comm*, 4> grown{};
    for (size_t r = 0; r < 4; ++r) {
      pliant_comm* const from = r < 2 ? static_cast<pliant_comm*>(*old[r]) : nullptr;
      REQUIRE(device.call(&Collectives::comm_grow, 0, from, &id, r, 4, &grown[r]).text() == "0: ");
    }
    const Outcome late =
        device.call(&Collectives::all_reduce, *old[0], words, words, 1, PLIANT_I32, PLIANT_SUM, *streams[0]);
    CHECK(late.status == PLIANT_FAILED_PRECONDITION);
    CHECK(contains(late.message, "has grown to another"));
    for (pliant_comm* one : grown) CHECK(device.call(&Collectives::comm_status, one, -1).text() == "0: ");
    for (auto& comm : old) comm->destroy();
    for (size_t r = 0; r < 4; ++r) {
      REQUIRE(
          device.call(&Slots::fill_async, words + 4 + r, static_cast<int>(r) + 1, sizeof(int32_t), *streams[r]).ok());
      REQUIRE(
          device.call(&Collectives::all_gather, grown[r], words + 4 + r, words + 8 + 4 * r, 1, PLIANT_I32, *streams[r])
              .ok());
    }
    for (const auto& stream : streams) CHECK(stream->synchronize().text() == "0: ");
    std::array<int32_t, 24> got{};
    REQUIRE(device.call(&Slots::copy_async, got.data(), memory, sizeof(got), *streams[0]).ok());
    REQUIRE(streams[0]->synchronize().ok());
    CHECK(got[0] == 0x02020202);
    CHECK(got[1] == 0x02020202);
    for (size_t i = 0; i < 16; ++i) CHECK(got[8 + i] == 0x01010101 * (static_cast<int32_t>(i % 4) + 1));
    std::vector<std::thread> leaving;
    for (pliant_comm* one : grown) {
      leaving.emplace_back(
          [&device, one] { device.collective_calls()->comm_destroy(device.collective_calls().self(), one); });
    }
    for (std::thread& one : leaving) one.join();
  }
  for (auto& comm : old) comm.reset();
  device.free(memory);
}

TEST_CASE("a communicator that has failed does not grow") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  REQUIRE(comm.status(-1).ok());
  comm.abort();
  CHECK(device.call(&Collectives::comm_grow_id, comm, 2, &id).status == PLIANT_FAILED_PRECONDITION);
  pliant_comm* grown = nullptr;
  const Outcome refused = device.call(&Collectives::comm_grow, 0, static_cast<pliant_comm*>(comm), &id, 0, 2, &grown);
  CHECK(refused.status == PLIANT_FAILED_PRECONDITION);
  CHECK(contains(refused.message, "has failed cannot grow; create a new one"));
}

TEST_CASE("communicators for gathers and for scatters run side by side, each in its own order") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_NCCL));
  std::array<std::array<std::unique_ptr<Comm>, 2>, 2> comms;  // by purpose, then rank
  for (auto& pair : comms) {
    pliant_comm_id id{};
    REQUIRE(device.call(&Collectives::comm_id, 2, &id).ok());
    for (int32_t rank = 0; rank < 2; ++rank) {
      pair[static_cast<size_t>(rank)] = std::make_unique<Comm>(device, id, rank, 2);
    }
    for (const auto& comm : pair) REQUIRE(comm->status(-1).ok());
  }
  void* memory = nullptr;
  REQUIRE(device.alloc(16 * sizeof(int32_t), &memory).ok());
  auto* const words = static_cast<int32_t*>(memory);
  {
    const Stream gather0(device, PLIANT_STREAM_GATHER);
    const Stream gather1(device, PLIANT_STREAM_GATHER);
    const Stream scatter0(device, PLIANT_STREAM_SCATTER);
    const Stream scatter1(device, PLIANT_STREAM_SCATTER);
    REQUIRE(device.call(&Slots::fill_async, words, 1, 16 * sizeof(int32_t), gather0).ok());
    REQUIRE(gather0.synchronize().ok());
    // Rank 0 gathers first, rank 1 scatters first: with one communicator neither would go on.
    REQUIRE(device.call(&Collectives::all_gather, *comms[0][0], words, words + 4, 1, PLIANT_I32, gather0).ok());
    REQUIRE(
        device.call(&Collectives::reduce_scatter, *comms[1][1], words, words + 10, 1, PLIANT_I32, PLIANT_SUM, scatter1)
            .ok());
    REQUIRE(
        device.call(&Collectives::reduce_scatter, *comms[1][0], words, words + 8, 1, PLIANT_I32, PLIANT_SUM, scatter0)
            .ok());
    REQUIRE(device.call(&Collectives::all_gather, *comms[0][1], words, words + 6, 1, PLIANT_I32, gather1).ok());
    for (const Stream* stream : {&gather0, &gather1, &scatter0, &scatter1})
      CHECK(stream->synchronize().text() == "0: ");
    std::array<int32_t, 16> got{};
    REQUIRE(device.call(&Slots::copy_async, got.data(), memory, sizeof(got), gather0).ok());
    REQUIRE(gather0.synchronize().ok());
    for (const size_t i : {4U, 5U, 6U, 7U}) CHECK(got[i] == 0x01010101);
    CHECK(got[8] == 0x02020202);
    CHECK(got[10] == 0x02020202);
  }
  for (auto& pair : comms) {
    std::thread leaving([&] { pair[1].reset(); });
    pair[0].reset();
    leaving.join();
  }
  device.free(memory);
}
