// Where the system has no more to give: shared memory, /dev/shm, control groups.
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/processes/memory_left.hpp"
#include "common/processes/process.hpp"
#include "full_shm.hpp"
#include "handles.hpp"
#include "pliant/sdk/failure.hpp"
#include "ranks.hpp"
#include "scratch_folder.hpp"

using namespace pliant_test;
using pliant::accelerator::memory_left;

namespace {

using Slots = pliant_accelerator;
constexpr uint64_t kMiB = uint64_t{1} << 20U;

/// Every kind of memory that the device has is filled and read back.
std::string memory_serves(const Device& device) {
  const Stream stream(device);
  constexpr uint64_t kBytes = 3 * kMiB;
  for (const int32_t kind :
       {PLIANT_MEMORY_DEVICE, PLIANT_MEMORY_PINNED, PLIANT_MEMORY_SHARED, PLIANT_MEMORY_EXCHANGE}) {
    void* memory = nullptr;
    const Outcome made = device.call(&Slots::alloc, 0, kind, kBytes, &memory);
    if (made.status == PLIANT_UNIMPLEMENTED) continue;
    if (!made.ok()) return "memory of kind " + std::to_string(kind) + ": " + made.text();
    std::vector<char> got(kBytes);
    device.call(&Slots::fill_async, memory, kind, kBytes, stream);
    device.call(&Slots::copy_async, got.data(), memory, kBytes, stream);
    const Outcome ended = stream.synchronize();
    device.slots().free(device.self(), 0, kind, memory);
    if (!ended.ok()) return ended.text();
    if (got != std::vector<char>(kBytes, static_cast<char>(kind))) return "memory does not hold what was filled in";
  }
  return "";
}

std::string sum_serves(const Rank& self) {
  Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  std::vector<float> values(kMiB, static_cast<float>(self.rank + 1));
  const Outcome made = self.device.call(&pliant_collectives::all_reduce, comm, values.data(), values.data(),
                                        values.size(), PLIANT_F32, PLIANT_SUM, stream);
  if (!made.ok()) return made.text();
  const Outcome ended = stream.synchronize();
  if (!ended.ok()) return ended.text();
  return values.back() == 3 ? memory_serves(self.device) : "a wrong sum";
}

void check_ranks_with_full_shm(const OptionSettings& settings, const char* file) {
  check_unless_skipped(with_full_shm([&] {
    Processes ranks(2, sum_serves, settings, file);
    return ranks.end_of(0).text + ranks.end_of(1).text;
  }));
}

}  // namespace

TEST_CASE("memory of every kind is there where /dev/shm is full") {
  check_unless_skipped(with_full_shm([] {
    const Device device;
    return memory_serves(device);
  }));
}

TEST_CASE("ranks form a communicator and exchange where /dev/shm is full") {
  check_ranks_with_full_shm({}, kHostFile);
}

TEST_CASE("ranks of the simulator form a communicator and exchange where /dev/shm is full") {
  check_ranks_with_full_shm({}, kSimFile);
}

TEST_CASE("ranks over Gloo exchange where /dev/shm is full") {
  check_ranks_with_full_shm({{}, {}, {}, {{"transport", "gloo"}, {"interface", "lo"}}}, kHostFile);
}

TEST_CASE("memory that processes share is there, all of it, when it is handed out") {
  for (const char* file : {kHostFile, kSimFile}) {
    const Device device({}, file);
    const Ipc ipc(device);
    void* memory = nullptr;
    constexpr uint64_t kBytes = 5 * kMiB;
    REQUIRE(device.call(&Slots::alloc, 0, PLIANT_MEMORY_EXCHANGE, kBytes, &memory).ok());
    const pliant_ipc_handle handle = ipc.handle_to(memory);
    struct stat held {};
    REQUIRE(::fstat(handle.descriptor, &held) == 0);
    CHECK(static_cast<uint64_t>(held.st_blocks) * 512 >= kBytes);  // without, a write would end the process by SIGBUS
    close_descriptor(handle);
    device.slots().free(device.self(), 0, PLIANT_MEMORY_EXCHANGE, memory);
  }
}

TEST_CASE("memory that processes share is refused where the machine has less left, and nobody is killed for it") {
  const Device device({{{"memory_bytes", int64_t{1} << 50U}}, {}, {}}, kHostFile);
  void* memory = nullptr;
  const Outcome refused = device.call(&Slots::alloc, 0, PLIANT_MEMORY_EXCHANGE, memory_left() + kMiB * 4096, &memory);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(refused.message.find("MiB left") != std::string::npos);
  CHECK(memory == nullptr);
  CHECK(memory_serves(device) == "");
}

TEST_CASE("memory that processes share is refused past the limit on files, in words and without a signal") {
  const Device device({}, kHostFile);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{kMiB, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  void* memory = nullptr;
  const Outcome refused = device.call(&Slots::alloc, 0, PLIANT_MEMORY_EXCHANGE, 2 * kMiB, &memory);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  CHECK(refused.status == PLIANT_RESOURCE_EXHAUSTED);
  CHECK(refused.message.find("ulimit -f") != std::string::npos);
  CHECK(memory_serves(device) == "");
}

#ifndef __SANITIZE_ADDRESS__  // UBSan needs descriptors to look at an object's type
TEST_CASE("a process that cannot be looked at for want of a descriptor is not taken for one that has ended") {
  using pliant::accelerator::ProcessId;
  const ProcessId living = ProcessId::self();
  check_unless_skipped(in_a_process([living]() -> std::string {
    const int next = ::dup(0);
    ::close(next);
    const auto leave_free = [next](int count) {
      const auto limit = static_cast<rlim_t>(next + count);
      const rlimit few{limit, limit};
      ::setrlimit(RLIMIT_NOFILE, &few);
    };
    leave_free(1);  // for the pidfd, not for its start time
    if (pliant::accelerator::watch_process(living)) return "it is watched";
    if (errno != EMFILE) return std::string("watch_process: ") + std::strerror(errno);
    leave_free(0);
    try {
      ProcessId::self_for_others();
      return "it tells others an identity without a start";
    } catch (const pliant::sdk::Failure& refused) {
      return std::string(refused.what()).find("/proc/self/stat") != std::string::npos ? "" : refused.what();
    }
  }));
}
#endif

TEST_CASE("the memory that is left is that of the machine, or of the tightest control group") {
  const pliant::test::ScratchFolder machine;  // of which only /proc and /sys are there
  CHECK(memory_left(machine.path()) == UINT64_MAX);
  machine.write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:  8192 kB\nSwapFree: 1024 kB\n");
  CHECK(memory_left(machine.path()) == 9 * kMiB);
  machine.write("proc/self/cgroup", "0::/job.slice/rank\n");
  CHECK(memory_left(machine.path()) == 9 * kMiB);
  machine.write("sys/fs/cgroup/job.slice/rank/memory.max", "max\n");
  machine.write("sys/fs/cgroup/job.slice/rank/memory.current", "4096\n");
  CHECK(memory_left(machine.path()) == 9 * kMiB);
  machine.write("sys/fs/cgroup/job.slice/memory.max", std::to_string(4 * kMiB) + "\n");
  machine.write("sys/fs/cgroup/job.slice/memory.current", std::to_string(3 * kMiB) + "\n");
  CHECK(memory_left(machine.path()) == kMiB);
  machine.write("sys/fs/cgroup/job.slice/memory.stat", "anon 5\ninactive_file " + std::to_string(2 * kMiB) + "\n");
  CHECK(memory_left(machine.path()) == 3 * kMiB);
}

TEST_CASE("the memory that is left in a control group of the old kind is known, too") {
  const pliant::test::ScratchFolder machine;  // of which only /proc and /sys are there
  machine.write("proc/meminfo", "MemAvailable:  8192 kB\n");
  machine.write("proc/self/cgroup", "4:memory:/docker/0815\n1:cpu:/\n");
  // In a container its own group is the root of what it sees.
  machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(6 * kMiB) + "\n");
  machine.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(7 * kMiB) + "\n");
  CHECK(memory_left(machine.path()) == 0);
  machine.write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file " + std::to_string(3 * kMiB) + "\n");
  CHECK(memory_left(machine.path()) == 2 * kMiB);
}
