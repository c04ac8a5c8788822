// Memory that a rank cannot use: pieces and arrays in it are refused by name, and the step goes on.
#include "elastic/memory_check.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include "base/memory_map.hpp"
#include "base/readable.hpp"
#include "device_machines.hpp"
#include "elastic/reduction.hpp"
#include "elastic/state_arrays.hpp"

namespace pliant::elastic {
namespace {

using test::Machine;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kLarge = uint64_t{40} << 20U;  ///< bytes that the C library gives back when they are freed
void* const kNowhere = reinterpret_cast<void*>(uintptr_t{1} << 16U);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kKeepsFreed = true;  ///< what malloc gave
#else
constexpr bool kKeepsFreed = false;
#endif

/// Two pages, of which the second has no access.
class Pages {
 public:
  Pages() : at_(::mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(at_ != MAP_FAILED);
    ::mprotect(page(1), kPage, PROT_NONE);
  }
  ~Pages() { ::munmap(at_, 2 * kPage); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] char* page(uint64_t number) const { return static_cast<char*>(at_) + number * kPage; }

 private:
  void* at_;
};

/// Three pages to read and write.
class Three {
 public:
  Three() : at_(::mmap(nullptr, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(at_ != MAP_FAILED);
  }
  ~Three() {
    if (!has_hole_) ::munmap(page(1), kPage);
    ::munmap(page(0), kPage);
    ::munmap(page(2), kPage);
  }
  Three(const Three&) = delete;
  Three& operator=(const Three&) = delete;
  [[nodiscard]] char* page(uint64_t number) const { return static_cast<char*>(at_) + number * kPage; }
  /// Once.
  void give_middle_back() {
    ::munmap(page(1), kPage);
    has_hole_ = true;
  }

 private:
  void* at_;
  bool has_hole_ = false;
};

void* freed_memory(const Accelerator& accelerator) {
  const Buffer freed(accelerator, 0, kLarge);
  return freed.pointer();
}

std::vector<Machine> all_machines() {
  std::vector<Machine> all = test::machines();
  all.push_back({"host", "use = \"host\"\n"});
  return all;
}

TEST_CASE("what the CPU can read is known without touching it, by its ends and by what is mapped between them") {
  const Pages pages;
  CHECK(is_readable(pages.page(0), 1));
  CHECK(is_readable(pages.page(0) + 1, kPage - 1));
  CHECK_FALSE(is_readable(pages.page(0) + 1, kPage));
  CHECK_FALSE(is_readable(pages.page(1), 1));
  CHECK_FALSE(is_readable(kNowhere, 1));
  CHECK_FALSE(is_readable(nullptr, 1));
  CHECK_FALSE(is_readable(pages.page(0), UINT64_MAX));
  CHECK(is_readable("text", 5));
  Three three;
  CHECK(is_readable(three.page(0), 3 * kPage));
  three.give_middle_back();
  CHECK_FALSE(is_readable(three.page(0), 3 * kPage));
  CHECK_FALSE(is_readable(three.page(0) + 1, 2 * kPage));
  CHECK(is_readable(three.page(2), kPage));
}

TEST_CASE("what may be done with memory is known of every byte of it") {
  Three three;
  const auto refusal = [&three](uint64_t offset, uint64_t bytes, MemoryMap::Access access) {
    return MemoryMap().refusal_of(three.page(0) + offset, bytes, access);
  };
  constexpr MemoryMap::Access kReadWrite = MemoryMap::Access::kReadWrite;
  CHECK_FALSE(refusal(0, 3 * kPage, kReadWrite));
  ::mprotect(three.page(1), kPage, PROT_READ);
  CHECK_FALSE(refusal(0, 3 * kPage, MemoryMap::Access::kRead));
  CHECK_FALSE(refusal(100, kPage - 100, kReadWrite));
  CHECK_FALSE(refusal(2 * kPage, kPage, kReadWrite));
  const auto read_only = refusal(100, kPage, kReadWrite);
  REQUIRE(read_only);
  CHECK(read_only->at == kPage - 100);
  CHECK(read_only->is_readable);
  ::mprotect(three.page(1), kPage, PROT_NONE);
  for (const bool is_mapped : {true, false}) {
    if (!is_mapped) three.give_middle_back();
    const auto hole = refusal(100, 2 * kPage, MemoryMap::Access::kRead);
    REQUIRE(hole);
    CHECK(hole->at == kPage - 100);
    CHECK_FALSE(hole->is_readable);
  }
  CHECK(MemoryMap().refusal_of(kNowhere, 1, MemoryMap::Access::kRead));
  CHECK(MemoryMap().refusal_of(three.page(2), UINT64_MAX, MemoryMap::Access::kRead));
}

/// Two devices of each double.
struct Two {
  pliant_test::Setting cuda{"PLIANT_SOFT_CUDA_DEVICES", "2"};
  pliant_test::Setting level_zero{"PLIANT_SOFT_ZE_DEVICES", "2"};
};

struct BadMemory {
  std::string name;
  void* at;
  std::string words;
};

/// Memory that is none for 1000 floats of device 0. `kept` lives as long as it.
std::vector<BadMemory> bad_memory(const Machine& machine, const Accelerator& accelerator, const Pages& pages,
                                  std::vector<Buffer>& kept) {
  std::vector<BadMemory> all;
  const std::string nobodys = "is memory of neither the accelerator nor this process: it was freed";
  for (int32_t device = 1; device < accelerator.device_count(); ++device) {
    const Buffer& foreign = kept.emplace_back(accelerator, device, 4000);
    all.push_back({"foreign", foreign.pointer(), "is memory of device 1, but this rank computes on device 0"});
  }
  const Buffer& device = kept.emplace_back(accelerator, 0, 3000);
  all.push_back({"short", device.pointer(), "exceeds its allocation: 4000 bytes from byte 0 of 3000"});
  const Buffer& offset = kept.emplace_back(accelerator, 0, 4000);
  all.push_back({"offset", static_cast<std::byte*>(offset.pointer()) + 4,
                 "exceeds its allocation: 4000 bytes from byte 4 of 4000"});
  const Buffer& pinned = kept.emplace_back(accelerator, 0, 100, MemoryKind::kPinned);
  all.push_back({"pinned", pinned.pointer(), "exceeds its allocation: 4000 bytes from byte 0 of 100"});
  const bool is_malloc = machine.name == "host" || machine.name == "sim";
  if (!is_malloc || !kKeepsFreed) all.push_back({"freed", freed_memory(accelerator), nobodys});
  all.push_back({"unmapped", kNowhere, nobodys});
  all.push_back({"without access", pages.page(1), nobodys});
  all.push_back({"half mapped", pages.page(1) - 400, nobodys});
  return all;
}

TEST_CASE("a piece in memory that the device cannot use is refused, and the step goes on with a right one") {
  const Two devices;
  const Pages pages;
  for (const Machine& machine : all_machines()) {
    const Accelerator accelerator = test::open(machine);
    test::run_healthy_ranks(accelerator, 1, [&](int32_t, Communicator& communicator, Stream& stream) {
      Stream program(accelerator, 0);
      std::vector<Buffer> kept;
      kept.reserve(8);
      const Buffer right = test::full_of(1.0F, accelerator, program, 1000);
      for (const bool deterministic : {false, true}) {
        GradientReduction reduction(accelerator, 0, program, 1000, deterministic);
        reduction.begin(2, 1, test::alone(2), 0);
        for (int64_t row = 0; row < 2; ++row) {
          kept.clear();
          for (const BadMemory& bad : bad_memory(machine, accelerator, pages, kept)) {
            INFO(machine.name << ", " << bad.name);
            const auto error = test::error_of([&] {
              reduction.add_piece({row, 1}, {.offset = 0, .count = 1000, .data = bad.at});
            });
            REQUIRE(error);
            CHECK(error->status() == Status::kInvalidArgument);
            const std::string whole = "a piece of the gradient of row " + std::to_string(row) + " " + bad.words;
            CHECK_MESSAGE(error->message().find(whole) != std::string::npos, error->message());
            CHECK(error->message().find(": elements 0..999") != std::string::npos);
          }
          reduction.add_piece({row, 1}, {.offset = 0, .count = 400, .data = right.pointer()});
          reduction.add_piece({row, 1}, {.offset = 400, .count = 600, .data = right.pointer()});
          reduction.add({row, 1}, 1, 1, 1);
        }
        const ReductionResult result = reduction.reduce(communicator, stream, {});
        CHECK(test::on_host(result.gradient, stream) == std::vector<float>(1000, 2.0F));
      }
    });
  }
  test::check_doubles_are_clean();
}

struct Program final : TrainingState {
  std::vector<StateArray> parts;
  [[nodiscard]] uint64_t gradient_size() const override { return 0; }
  [[nodiscard]] std::vector<StateArray> arrays() override { return parts; }
  void save(std::ostream&) const override {}
  void load(std::istream&) override {}
};

TEST_CASE("arrays in memory that the device cannot use are refused at the beginning, and when they have moved there") {
  const Two devices;
  const Pages pages;
  for (const Machine& machine : all_machines()) {
    const Accelerator accelerator = test::open(machine);
    const MemoryCheck check(accelerator, 0);
    std::vector<Buffer> kept;
    kept.reserve(8);
    const Buffer right(accelerator, 0, 4000);
    Program program;
    program.parts = {{"none", DType::kF32, {0}, nullptr}, {"w", DType::kF32, {1000}, right.pointer()}};
    const StateArrays arrays(program, check);
    for (const BadMemory& bad : bad_memory(machine, accelerator, pages, kept)) {
      INFO(machine.name << ", " << bad.name);
      program.parts[1].data = bad.at;
      for (const auto& error : {test::error_of([&] { static_cast<void>(StateArrays(program, check)); }),
                                test::error_of([&] { static_cast<void>(arrays.now()); })}) {
        REQUIRE(error);
        CHECK(error->status() == Status::kInvalidArgument);
        CHECK_MESSAGE(error->message().find("TrainingState::arrays: 'w' " + bad.words) == 0, error->message());
      }
    }
    program.parts[1].data = right.pointer();
    CHECK(arrays.now()[1].data == right.pointer());
  }
}

TEST_CASE(
    "arrays in memory that cannot be written, or is not there in the middle, are refused before they are written") {
  const Two devices;
  const Three three;
  for (const Machine& machine : all_machines()) {
    INFO(machine.name);
    const MemoryCheck check(test::open(machine), 0);
    Program program;
    program.parts = {{"w", DType::kF32, {3 * kPage / sizeof(float)}, three.page(0)}};
    const StateArrays arrays(program, check);
    const auto refused = [&](const std::string& words) {
      const auto none = [](void*, uint64_t) {};
      for (const auto& error : {test::error_of([&] { static_cast<void>(StateArrays(program, check)); }),
                                test::error_of([&] { arrays.each_chunk(none); })}) {
        REQUIRE(error);
        CHECK(error->status() == Status::kInvalidArgument);
        CHECK_MESSAGE(error->message().find("TrainingState::arrays: 'w' " + words) == 0, error->message());
      }
    };
    ::mprotect(three.page(2), kPage, PROT_READ);
    refused("is read-only memory from byte 8192 of 12288 on");
    ::mprotect(three.page(2), kPage, PROT_READ | PROT_WRITE);
    ::mprotect(three.page(1), kPage, PROT_NONE);
    refused("is memory with a hole: this process cannot read byte 4096 of 12288");
    ::mprotect(three.page(1), kPage, PROT_READ);
    const Three other;
    program.parts[0].data = other.page(0);
    CHECK(arrays.now()[0].data == other.page(0));
    program.parts[0].data = three.page(0);
    const auto moved = test::error_of([&] { static_cast<void>(arrays.now()); });
    REQUIRE(moved);
    CHECK(moved->message().find("is read-only memory from byte 4096 of 12288 on") != std::string::npos);
    ::mprotect(three.page(1), kPage, PROT_READ | PROT_WRITE);
  }
}

#ifdef PLIANT_SOFT_CUDA
TEST_CASE("memory that somebody else in this process has of CUDA is known, too") {
  const Two devices;
  const Accelerator accelerator = test::open(test::machines().front());
  const MemoryCheck check(accelerator, 0);
  REQUIRE(accelerator.device_count() == 2);  // opens the runtime
  void* const runtime = ::dlopen(PLIANT_SOFT_CUDA, RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(runtime != nullptr);
  const auto call = [&](const char* name) { return reinterpret_cast<int (*)(void*)>(::dlsym(runtime, name)); };
  const auto choose = reinterpret_cast<int (*)(int)>(::dlsym(runtime, "cudaSetDevice"));
  const auto allocate = reinterpret_cast<int (*)(void**, size_t)>(::dlsym(runtime, "cudaMalloc"));
  for (const int device : {0, 1}) {
    void* memory = nullptr;
    REQUIRE(choose(device) == 0);
    REQUIRE(allocate(&memory, 4000) == 0);
    const auto info = accelerator.pointer_info(memory);
    REQUIRE(info);
    CHECK(info->kind == MemoryKind::kDevice);
    CHECK(info->device == device);
    const MemoryCheck::Finding found = check.look_at(memory, 4000);
    CHECK(found.refusal == (device == 0 ? "" : "is memory of device 1, but this rank computes on device 0"));
    CHECK_FALSE(found.is_for_cpu);
    REQUIRE(call("cudaFree")(memory) == 0);
    CHECK(check.look_at(memory, 4000).refusal.find("it was freed") != std::string::npos);
  }
  REQUIRE(choose(0) == 0);
  ::dlclose(runtime);
}
#endif

}  // namespace
}  // namespace pliant::elastic
