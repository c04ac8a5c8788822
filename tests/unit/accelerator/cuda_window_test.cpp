// Windows of NCCL, of the accelerator cuda; on NCCL in software.
#include <array>
#include <barrier>
#include <memory>
#include <thread>

#include "cuda_device.hpp"
#include "pliant/arena.hpp"
#include "wrapper.hpp"

using namespace pliant_test;

namespace {

using Slots = pliant_accelerator;
using Collectives = pliant_collectives;

constexpr uint64_t kPage = 4096;

/// The ranks of a test are threads, and share a device.
OptionSettings with_nccl(const std::string& library = PLIANT_SOFT_NCCL) {
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  return {{}, {}, {}, {{"collectives", "nccl"}, {"nccl", library}}};
}

/// A number that the software NCCL tells.
int64_t told_by_nccl(const char* symbol) {
  void* library = ::dlopen(PLIANT_SOFT_NCCL, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto ask = reinterpret_cast<int64_t (*)()>(::dlsym(library, symbol));
  REQUIRE((ask != nullptr));
  const int64_t told = ask();
  ::dlclose(library);
  return told;
}
int64_t gathers_by_copy_engines() {
  return told_by_nccl("pliant_soft_nccl_copy_engine_gathers");
}

bool has_windows(const Device& device) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  REQUIRE(device.call(&Slots::device_properties, 0, &properties).ok());
  return (properties.capabilities & PLIANT_CAP_WINDOW_MEMORY) != 0;
}

/// Memory of one rank.
class Window {
 public:
  Window(const SoftwareCuda& device, uint64_t bytes) : device_(device) {
    const Outcome made = device.alloc(bytes, &memory_, 0, PLIANT_MEMORY_WINDOW);
    if (!made.ok()) throw std::runtime_error(made.text());
  }
  ~Window() { device_.slots().free(device_.self(), 0, PLIANT_MEMORY_WINDOW, memory_); }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  [[nodiscard]] std::byte* at(uint64_t offset = 0) const { return static_cast<std::byte*>(memory_) + offset; }

 private:
  const SoftwareCuda& device_;
  void* memory_ = nullptr;
};

/// Runs `body(rank)` as so many threads.
template <class Body>
void as_ranks(int32_t ranks, const Body& body) {
  std::vector<std::thread> all;
  for (int32_t rank = 0; rank < ranks; ++rank) all.emplace_back([&, rank] { body(rank); });
  for (std::thread& one : all) one.join();
}

/// Gathers a page of each rank, filled with its number, to `to`; what came of it, or the failure.
std::string gathered(const SoftwareCuda& device, pliant_comm* comm, const Stream& stream, int32_t rank,
                     int32_t world_size, std::byte* to) {
  void* own = nullptr;
  if (const Outcome made = device.alloc(kPage, &own); !made.ok()) return made.text();
  Outcome outcome = device.call(&Slots::fill_async, own, rank + 1, kPage, stream);
  if (outcome.ok()) outcome = device.call(&Collectives::all_gather, comm, own, to, kPage, PLIANT_U8, stream);
  if (outcome.ok()) outcome = stream.synchronize();
  std::vector<std::byte> got(kPage * static_cast<size_t>(world_size));
  if (outcome.ok()) outcome = device.call(&Slots::copy_async, got.data(), to, got.size(), stream);
  if (outcome.ok()) outcome = stream.synchronize();
  device.free(own);
  if (!outcome.ok()) return outcome.text();
  std::string ranks;
  for (int32_t r = 0; r < world_size; ++r) {
    const auto first = static_cast<int>(got[kPage * static_cast<size_t>(r)]);
    const auto last = static_cast<int>(got[kPage * static_cast<size_t>(r + 1) - 1]);
    ranks += std::to_string(first - 1) + (first == last ? " " : "? ");
  }
  return ranks;
}

struct Way {
  uint64_t offset_of_rank_1 = 0;
  uint64_t bytes_of_rank_1 = 4 * kPage;
};

/// Each of two ranks makes its memory a window and gathers into it.
std::array<std::string, 2> gathered_into_windows(const SoftwareCuda& device, const Way& way = {}) {
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 2, &id).ok());
  std::array<std::string, 2> told;
  as_ranks(2, [&](int32_t rank) {
    const Window window(device, 4 * kPage);
    const Comm comm(device, id, rank, 2);
    const Stream stream(device, PLIANT_STREAM_GATHER);
    const uint64_t bytes = rank == 1 ? way.bytes_of_rank_1 : 4 * kPage;
    const Outcome known =
        device.call(&Collectives::register_window, comm, static_cast<void*>(window.at()), bytes, stream);
    Outcome done = known.ok() ? stream.synchronize() : known;
    const uint64_t offset = rank == 1 ? way.offset_of_rank_1 : 0;
    told[static_cast<size_t>(rank)] =
        done.ok() ? gathered(device, comm, stream, rank, 2, window.at(offset)) : done.text();
  });
  return told;
}

}  // namespace

TEST_CASE("gathers into a window go by copy engines where NCCL knows how") {
  const SoftwareCuda device(with_nccl());
  const int64_t before = gathers_by_copy_engines();
  for (const std::string& got : gathered_into_windows(device)) CHECK(got == "0 1 ");
  CHECK(gathers_by_copy_engines() == before + 2);
}

TEST_CASE("an NCCL that has windows and no policy for copy engines still gathers into them") {
  const Setting version("PLIANT_SOFT_NCCL_VERSION", "22703");
  const SoftwareCuda device(with_nccl());
  const int64_t before = gathers_by_copy_engines();
  for (const std::string& got : gathered_into_windows(device)) CHECK(got == "0 1 ");
  CHECK(gathers_by_copy_engines() == before);
}

TEST_CASE("gathers outside of windows are computed as ever") {
  const SoftwareCuda device(with_nccl());
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  const Stream stream(device);
  const int64_t before = gathers_by_copy_engines();
  const Window window(device, kPage);
  CHECK(gathered(device, comm, stream, 0, 1, window.at()) == "0 ");
  CHECK(gathers_by_copy_engines() == before);
}

TEST_CASE("where NCCL makes no window collectives go on as before, and that is logged once") {
  const Setting none("PLIANT_SOFT_NCCL_WINDOWS", "0");
  const SoftwareCuda device(with_nccl());
  const int64_t before = gathers_by_copy_engines();
  for (const std::string& got : gathered_into_windows(device)) CHECK(got == "0 1 ");
  CHECK(gathers_by_copy_engines() == before);
  REQUIRE(device.log().size() == 1);
  CHECK(contains(device.log().front(), "NCCL creates no windows between these devices"));
}

TEST_CASE("an NCCL without windows has no memory for them, and says what serves") {
  const SoftwareCuda device(with_nccl(PLIANT_SOFT_OLD_NCCL));
  CHECK(!has_windows(device));
  CHECK((device.collectives().register_window == nullptr));
  void* memory = nullptr;
  const Outcome refused = device.alloc(kPage, &memory, 0, PLIANT_MEMORY_WINDOW);
  CHECK(refused.status == PLIANT_UNIMPLEMENTED);
  CHECK(contains(refused.message, "no PLIANT_MEMORY_WINDOW; use PLIANT_MEMORY_DEVICE"));
  const SoftwareCuda generic;
  CHECK(!has_windows(generic));
}

TEST_CASE("only window memory of this device becomes a window, and only as far as it goes") {
  const SoftwareCuda device(with_nccl());
  CHECK(has_windows(device));
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  const Stream stream(device);
  const Window window(device, 2 * kPage);
  const auto refusal = [&](void* memory, uint64_t bytes) {
    return device.call(&Collectives::register_window, comm, memory, bytes, stream).text();
  };
  void* plain = nullptr;
  REQUIRE(device.alloc(kPage, &plain, 0, PLIANT_MEMORY_EXCHANGE).ok());
  CHECK(contains(refusal(plain, kPage), "not of PLIANT_MEMORY_WINDOW of this device and instance"));
  device.free(plain);
  CHECK(contains(refusal(window.at(), 3 * kPage), "the window leaves its memory"));
  CHECK(contains(refusal(window.at(64), kPage), "begins 64 bytes past a multiple of 4096"));
  CHECK(refusal(window.at(kPage), kPage) == "0: ");
  CHECK(stream.synchronize().ok());
}

TEST_CASE("window memory begins at a multiple of 4096, is counted, and running out of it is no end") {
  const Setting small("PLIANT_SOFT_CUDA_MEMORY_BYTES", std::to_string(uint64_t{16} << 20U).c_str());
  const SoftwareCuda device(with_nccl());
  {
    const Window window(device, 100);
    CHECK(reinterpret_cast<uintptr_t>(window.at()) % kPage == 0);
    void* memory = nullptr;
    const Outcome refused = device.alloc(uint64_t{1} << 40U, &memory, 0, PLIANT_MEMORY_WINDOW);
    CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
    CHECK(contains(refused.message, "out of device memory"));
    const Window another(device, kPage);
    const Window empty(device, 0);
  }
  CHECK(told_by_nccl("pliant_soft_nccl_allocations") == 0);
}

TEST_CASE("the memory outlives its communicator and is a window of the next, which shrank") {
  const int64_t before = gathers_by_copy_engines();
  const SoftwareCuda device(with_nccl());
  pliant_comm_id id{};
  REQUIRE(device.call(&Collectives::comm_id, 3, &id).ok());
  std::array<std::string, 2> told;
  std::barrier known(3);
  as_ranks(3, [&](int32_t rank) {
    const Window window(device, 4 * kPage);
    auto comm = std::make_unique<Comm>(device, id, rank, 3);
    const Stream stream(device, PLIANT_STREAM_GATHER);
    void* const memory = window.at();
    CHECK(device.call(&Collectives::register_window, *comm, memory, 4 * kPage, stream).ok());
    CHECK(stream.synchronize().ok());
    known.arrive_and_wait();
    if (rank == 2) return;  // leaves with its memory
    pliant_comm* handle = nullptr;
    const int32_t leaving = 2;
    const int32_t* const list = &leaving;
    const pliant_comm_id unused{};
    CHECK(device.call(&Collectives::comm_shrink, *comm, list, 1, &unused, &handle).ok());
    comm.reset();
    CHECK(device.call(&Collectives::register_window, handle, memory, 4 * kPage, stream).ok());
    told[static_cast<size_t>(rank)] = gathered(device, handle, stream, rank, 2, window.at());
    device.collective_calls()->comm_destroy(device.collective_calls().self(), handle);
  });
  for (const std::string& got : told) CHECK(got == "0 1 ");
  CHECK(gathers_by_copy_engines() == before + 2);
}

TEST_CASE("ranks whose buffers lie at different offsets of their windows are found out by the software NCCL") {
  const SoftwareCuda device(with_nccl());
  const auto [one, other] = gathered_into_windows(device, {.offset_of_rank_1 = kPage});
  CHECK(contains(one + other, "different offsets"));
  CHECK(contains(one, "has failed"));
  CHECK(contains(other, "has failed"));
}

TEST_CASE("windows of different sizes end the communicator, not the wait for it") {
  const SoftwareCuda device(with_nccl());
  const auto [one, other] = gathered_into_windows(device, {.bytes_of_rank_1 = 2 * kPage});
  CHECK(contains(one + other, "called different collectives"));
  for (const std::string& got : {one, other}) CHECK(!contains(got, "0 1 "));
}

TEST_CASE("an arena is a window of NCCL's communicators however the ranks came to them, and memory for all others") {
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const Setting many("PLIANT_SOFT_CUDA_DEVICES", "2");
  use_software_cuda();
  struct Case {
    std::string collectives;
    std::string nccl;
    bool is_window;
  };
  for (const Case& one : {Case{"nccl", PLIANT_SOFT_NCCL, true}, Case{"auto", PLIANT_SOFT_NCCL, true},
                          Case{"auto", PLIANT_SOFT_OLD_NCCL, false}, Case{"generic", PLIANT_SOFT_NCCL, false}}) {
    INFO(one.collectives, " with ", one.nccl);
    const pliant::Accelerator accelerator(
        pliant::test::ConfigFile("use = \"cuda\"\n[accelerator.cuda]\ncollectives = \"" + one.collectives +
                                 "\"\nnccl = \"" + one.nccl + "\"\n")
            .open());
    const pliant::CommId id = accelerator.make_comm_id(2);
    const int64_t before = gathers_by_copy_engines();
    std::array<std::array<uint8_t, 2>, 2> got{};
    as_ranks(2, [&](int32_t rank) {
      pliant::Arena arena(accelerator, rank, 8 * kPage);
      pliant::Stream stream(accelerator, rank, pliant::StreamRole::kGather);
      pliant::Communicator gathers(accelerator, rank, id, rank, 2);
      arena.register_with(gathers, stream);
      stream.synchronize();
      const pliant::ArenaBuffer first(arena, stream, kPage);
      const pliant::ArenaBuffer all(arena, stream, 2);
      const pliant::Buffer own(accelerator, rank, 1);
      stream.fill(own.pointer(), static_cast<uint8_t>(rank + 1), 1);
      gathers.all_gather(own.pointer(), all.pointer(), 1, pliant::DType::kU8, stream);
      stream.copy(got[static_cast<size_t>(rank)].data(), all.pointer(), 2);
      stream.synchronize();
    });
    for (const auto& each : got) CHECK(each == std::array<uint8_t, 2>{1, 2});
    CHECK(gathers_by_copy_engines() - before == (one.is_window ? 2 : 0));
  }
}
