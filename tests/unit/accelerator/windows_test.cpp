// Windows on `host`: ranks of one machine read each other's memory.
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

#include "window_memory.hpp"

using namespace pliant_test;

namespace {

constexpr uint64_t kWindowBytes = uint64_t{8} << 20U;
const Kind kOfWindows[] = {Kind::kAllReduce, Kind::kAllGather, Kind::kReduceScatter, Kind::kBroadcast,
                           Kind::kAllGatherV};

template <class T>
std::string every_kind(const Rank& self, pliant_comm* comm, const Stream& stream, const WindowMemory& window,
                       uint64_t count) {
  for (const Kind kind : kOfWindows) {
    const bool reduces = kind == Kind::kAllReduce || kind == Kind::kReduceScatter;
    for (const int32_t op : {PLIANT_SUM, PLIANT_MAX}) {
      if (!reduces && op != PLIANT_SUM) continue;
      for (const bool in_place : {false, true}) {
        if (in_place && !may_be_in_place(kind)) continue;
        const std::string fault =
            run_in<T>(self, comm, stream, window, kind, count, op, in_place, {true, true, 13 * count % 5});
        if (!fault.empty()) return (in_place ? "in place: " : "") + fault;
      }
    }
  }
  return "";
}

/// Sizes on both sides of all limits: nothing, less than is read directly, several pieces, and more than caches hold.
std::string every_size(const Rank& self) {
  const WindowMemory window(self.device, kWindowBytes);
  Comm comm(self.device, self.id(), self.rank, self.world_size);
  const Stream stream(self.device);
  if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
  std::string fault;
  for (const uint64_t count : std::initializer_list<uint64_t>{0, 1, 1023, 33000, 40011, 70001}) {
    if (fault.empty()) fault = every_kind<float>(self, comm, stream, window, count);
    if (fault.empty()) fault = every_kind<double>(self, comm, stream, window, count);
    if (fault.empty()) fault = every_kind<uint8_t>(self, comm, stream, window, count);
  }
  return fault.empty() ? every_kind<float>(self, comm, stream, window, 200003) : fault;
}

/// Files with this word in their name that this process has mapped.
int mapped(const std::string& word) {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find(word) != std::string::npos ? 1 : 0;
  return found;
}

/// What both ranks were told together; each has failed with PLIANT_INVALID_ARGUMENT.
std::string told(const RankBody& body) {
  Processes processes(2, body);
  std::string both;
  for (const RankEnd& end : processes.ends()) {
    CHECK(end.text.rfind(std::to_string(PLIANT_INVALID_ARGUMENT) + ": ", 0) == 0);
    both += end.text + "\n";
  }
  return both;
}

}  // namespace

TEST_CASE("collectives between windows equal the reference bit by bit at 1, 2, 3 and 4 ranks") {
  for (const int32_t world_size : {1, 2, 3, 4}) {
    INFO("world size ", world_size);
    Processes processes(world_size, every_size);
    expect_all_well(processes);
  }
}

TEST_CASE("collectives between windows of threads equal the reference") {
  const Device device(OptionSettings{}, kHostFile);
  for (const std::string& fault : run_threads(device, 3, every_size)) CHECK(fault == "");
}

TEST_CASE("a rank maps the windows of all, and lets them go with the communicator") {
  Processes processes(3, [](const Rank& self) -> std::string {
    const WindowMemory window(self.device, kWindowBytes);
    const int before = mapped("pliant-exchange");
    {
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
      if (const int now = mapped("pliant-exchange"); now != before + 3) return std::to_string(now - before);
    }
    return mapped("pliant-exchange") == before ? "" : "still mapped";
  });
  expect_all_well(processes);
}

TEST_CASE("what only one rank needs may lie outside of windows, on some ranks or on all") {
  for (const int outside : {1, 2, 7}) {  // a bit for each rank
    Processes processes(3, [outside](const Rank& self) -> std::string {
      const WindowMemory window(self.device, kWindowBytes);
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
      const bool plain = ((outside >> self.rank) & 1) != 0;
      std::string fault;
      for (const Kind kind : {Kind::kAllGather, Kind::kAllGatherV, Kind::kReduceScatter, Kind::kAllGather}) {
        const bool scatters = kind == Kind::kReduceScatter;
        if (fault.empty()) {
          fault = run_in<float>(self, comm, stream, window, kind, 40011, PLIANT_SUM, false,
                                {scatters || !plain, !scatters || !plain, 0});
        }
      }
      return fault;
    });
    expect_all_well(processes);
  }
}

TEST_CASE("a rank that has nothing for an all_gather_v may name no buffer") {
  Processes processes(3, [](const Rank& self) -> std::string {
    const WindowMemory window(self.device, kWindowBytes);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
    const uint64_t counts[] = {200000, 0, 300000};
    const uint64_t begin = self.rank == 2 ? counts[0] : 0;
    std::byte* const send = self.rank == 1 ? nullptr : window.at(begin);
    if (send != nullptr) std::memset(send, self.rank + 1, counts[self.rank]);
    Outcome outcome =
        self.device.call(&pliant_collectives::all_gather_v, comm, send, window.at(), &counts[0], PLIANT_U8, stream);
    if (outcome.ok()) outcome = stream.synchronize();
    if (!outcome.ok()) return outcome.text();
    const auto all = [](std::byte wanted) { return [wanted](std::byte one) { return one == wanted; }; };
    const bool right = std::all_of(window.at(), window.at(counts[0]), all(std::byte{1})) &&
                       std::all_of(window.at(counts[0]), window.at(500000), all(std::byte{3}));
    return right ? "" : "wrong";
  });
  expect_all_well(processes);
}

TEST_CASE("ranks whose buffers lie at different places of a window are told where each has its own") {
  const auto body = [](uint64_t count, bool one_outside) -> RankBody {
    return [count, one_outside](const Rank& self) {
      const WindowMemory window(self.device, kWindowBytes);
      Comm comm(self.device, self.id(), self.rank, self.world_size);
      const Stream stream(self.device);
      if (const Outcome known = window.become_window(comm, stream); !known.ok()) return "not known: " + known.text();
      Placement placement;
      if (self.rank == 1) placement = {true, !one_outside, one_outside ? uint64_t{0} : uint64_t{64}};
      return run_in<float>(self, comm, stream, window, Kind::kAllGather, count, PLIANT_SUM, false, placement);
    };
  };
  for (const uint64_t count : std::initializer_list<uint64_t>{10, 100000}) {
    const std::string what = "all_gather of " + std::to_string(count) + " f32";
    const std::string apart = told(body(count, false));
    INFO(apart);
    CHECK(apart.find(what + " at byte 0 of window 0") != std::string::npos);
    CHECK(apart.find(what + " at byte 256 of window 0") != std::string::npos);
    const std::string outside = told(body(count, true));
    INFO(outside);
    CHECK(outside.find(what + " at byte 0 of window 0, rank ") != std::string::npos);
  }
}

TEST_CASE("ranks whose buffers lie at the same place of different windows are told which") {
  const std::string both = told([](const Rank& self) {
    const WindowMemory first(self.device, kWindowBytes);
    const WindowMemory second(self.device, kWindowBytes);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    for (const WindowMemory* const one : {&first, &second}) {
      if (const Outcome known = one->become_window(comm, stream); !known.ok()) return "not known: " + known.text();
    }
    return run_in<float>(self, comm, stream, self.rank == 0 ? first : second, Kind::kAllReduce, 10);
  });
  INFO(both);
  CHECK(both.find("at byte 0 of window 0, rank ") != std::string::npos);
  CHECK(both.find("at byte 0 of window 1") != std::string::npos);
}

TEST_CASE("windows of different sizes are told") {
  const std::string both = told([](const Rank& self) {
    const WindowMemory window(self.device, (self.rank == 0 ? 1 : 2) * kPage);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    return window.become_window(comm, stream).text();
  });
  INFO(both);
  CHECK(both.find("4096") != std::string::npos);
  CHECK(both.find("8192") != std::string::npos);
}

TEST_CASE("what is no memory for windows, or more than there is of it, is refused at once") {
  const Device device(OptionSettings{}, kHostFile);
  pliant_comm_id id{};
  REQUIRE(device.call(&pliant_collectives::comm_id, 1, &id).ok());
  const Comm comm(device, id, 0, 1);
  const Stream stream(device);
  const WindowMemory window(device, 2 * kPage);
  alignas(4096) static std::byte plain[kPage];
  const auto refused = [&](std::byte* begin, uint64_t bytes) {
    const Outcome outcome =
        device.call(&pliant_collectives::register_window, comm, static_cast<void*>(begin), bytes, stream);
    CHECK(outcome.status == PLIANT_INVALID_ARGUMENT);
    return outcome.message;
  };
  const char* const wanted = "the window leaves its memory, or is not of PLIANT_MEMORY_WINDOW of this instance";
  CHECK(refused(plain, kPage) == wanted);
  CHECK(refused(window.at(kPage), 2 * kPage) == wanted);
  CHECK(refused(window.at(), 100) == "a window of 100 bytes; its size is a multiple of 4096");
  CHECK(device.call(&pliant_collectives::register_window, comm, static_cast<void*>(window.at(kPage)), kPage, stream)
            .ok());
  CHECK(stream.synchronize().ok());
}

TEST_CASE("memory that was a window and was freed is a window no more, whatever is at its address now") {
  Processes processes(2, [](const Rank& self) -> std::string {
    WindowMemory window(self.device, kWindowBytes);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
    std::string fault = run_in<float>(self, comm, stream, window, Kind::kAllGather, 100000);
    if (!fault.empty()) return fault;
    window.free();
    const WindowMemory next(self.device, kWindowBytes);
    for (const Kind kind : kOfWindows) {
      if (fault.empty()) fault = run_in<float>(self, comm, stream, next, kind, 100000);
    }
    if (!fault.empty()) return fault;
    if (const Outcome known = next.become_window(comm, stream); !known.ok()) return known.text();
    for (const Kind kind : kOfWindows) {
      if (fault.empty()) fault = run_in<float>(self, comm, stream, next, kind, 100000);
    }
    return fault;
  });
  expect_all_well(processes);
}

// UBSan's own check of an object's type opens a pipe: without a free descriptor it reports what is not there.
#ifndef __SANITIZE_ADDRESS__
namespace {

/// Until this process watches as many others: that takes a descriptor for each.
void await_watch_of(int others) {
  const auto watched = [] {
    int found = 0;
    for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      found += std::filesystem::read_symlink(one.path(), gone).string().find("pidfd") != std::string::npos ? 1 : 0;
    }
    return found;
  };
  while (watched() < others) std::this_thread::yield();
}

}  // namespace

TEST_CASE("a rank without a free descriptor goes on with the windows that it has") {
  Processes processes(2, [](const Rank& self) -> std::string {
    const WindowMemory window(self.device, kWindowBytes);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome known = window.become_window(comm, stream); !known.ok()) return known.text();
    std::string fault = run_in<float>(self, comm, stream, window, Kind::kAllGather, 100000);
    await_watch_of(1);
    const rlimit none{3, 1024};
    if (self.rank == 1) ::setrlimit(RLIMIT_NOFILE, &none);
    for (const Kind kind : kOfWindows) {
      if (fault.empty()) fault = run_in<float>(self, comm, stream, window, kind, 100000);
    }
    return fault;
  });
  expect_all_well(processes);
}
#endif

// Sanitizers reserve addresses of their own without end.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("where one rank cannot map the others, all go on without windows") {
  // More than the addresses that malloc takes for a moment, 128 MiB, where another thread begins.
  constexpr uint64_t kBytes = uint64_t{512} << 20U;
  Processes processes(3, [](const Rank& self) -> std::string {
    const WindowMemory window(self.device, kBytes);
    Comm comm(self.device, self.id(), self.rank, self.world_size);
    const Stream stream(self.device);
    if (const Outcome ready = comm.status(-1); !ready.ok()) return ready.text();
    const int before = mapped("pliant-exchange");
    rlimit usual{};
    ::getrlimit(RLIMIT_AS, &usual);
    if (self.rank == 1) {
      uint64_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const rlimit tight{pages * kPage + kBytes / 4, usual.rlim_max};
      ::setrlimit(RLIMIT_AS, &tight);
    }
    const Outcome known = window.become_window(comm, stream);
    ::setrlimit(RLIMIT_AS, &usual);
    if (!known.ok()) return known.text();
    if (mapped("pliant-exchange") != before) return "mapped";
    std::string fault;
    for (const Kind kind : kOfWindows) {
      if (fault.empty()) fault = run_in<float>(self, comm, stream, window, kind, 100000);
    }
    return fault;
  });
  expect_all_well(processes);
}
#endif
