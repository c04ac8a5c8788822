// What a group of gathers or scatters costs: the thread that asks for it (memory, one collective, an event), and until
// it has ended. Ranks are threads on `host`. Prints a table; the thread's is time of its own, so that ranks that share
// a core do not count one another's.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"
#include "pliant/config.hpp"
#include "sharded/exchange.hpp"
#include "sharded/whole_memory.hpp"

using namespace pliant;

namespace {

constexpr int64_t kElements = 16384;  // of a parameter
constexpr size_t kTimes = 400;

double thread_micros() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

Accelerator open_host() {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Accelerator(Config::parse("config_version = 1\n[accelerator]\nuse = \"host\"\n", {"accelerator"}, overrides));
}

/// What a rank asks for, and how chunks lie with their owners.
enum class Way { kGather, kGatherMoved, kScatterMoved };
constexpr Way kWays[] = {Way::kGather, Way::kGatherMoved, Way::kScatterMoved};

const char* name_of(Way way) {
  const char* const names[] = {"gather", "gather, moved", "scatter, moved"};
  return names[static_cast<size_t>(way)];
}

/// Dealt out, or as after many moves: every other run of three chunks lies with another rank.
sharded::Ownership owners(Way way, int32_t chunks, int32_t world_size) {
  if (way == Way::kGather || world_size == 1) return or_throw(sharded::Ownership::deal(chunks, world_size));
  std::vector<sharded::Ownership::Run> runs;
  for (int32_t chunk = 0; chunk < chunks; chunk += 3) {
    runs.push_back({std::min(3, chunks - chunk), (chunk / 3 * 7 + chunk / 9) % world_size});
  }
  return or_throw(sharded::Ownership::of_runs(runs, world_size, 1));
}

struct Times {
  std::vector<double> thread_us;  ///< of the calling thread, sorted
  std::vector<double> whole_us;   ///< until the group has ended, sorted
};

double wall_micros() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// For each group of each rank.
Times measure(const Accelerator& accelerator, Way way, int32_t world_size, size_t parameters) {
  const CommId id = accelerator.make_comm_id(world_size);
  Times all;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Stream stream(accelerator, 0);
      Communicator group(accelerator, 0, id, rank, world_size);
      group.wait_ready(60000);
      const int64_t total = kElements * static_cast<int64_t>(parameters);
      const auto layout = or_throw(sharded::FlatLayout::create(total));
      const auto ownership = owners(way, layout.chunks(), world_size);
      sharded::Exchange exchange(group, stream);
      std::vector<sharded::OwnersOfRange> ranges;
      for (size_t i = 0; i < parameters; ++i) {
        ranges.push_back(exchange.owners_of(layout, ownership, {static_cast<int64_t>(i) * kElements, kElements}));
      }
      const std::vector<float> shard(static_cast<size_t>(ownership.chunks_of(rank) * layout.chunk_elements()), 1.0F);
      const std::vector<bool> adds(static_cast<size_t>(world_size), true);
      sharded::WholeMemory memory(accelerator, 0, stream, 0);
      Event done(accelerator, 0);
      Times own;
      for (size_t time = 0; time < kTimes; ++time) {
        const double wall_begin = wall_micros();
        const double begin = thread_micros();
        std::vector<sharded::WholePiece> whole;
        std::vector<sharded::GatherItem> gathers;
        std::vector<sharded::ScatterItem> scatters;
        for (const sharded::OwnersOfRange& one : ranges) {
          whole.push_back(memory.take(static_cast<uint64_t>(kElements) * sizeof(float), {"a parameter"}));
          gathers.push_back({&one, whole.back().floats()});
          if (way != Way::kScatterMoved) continue;
          const void* const addend = whole.back().floats();
          const uint64_t received = one.owned * static_cast<uint64_t>(world_size - 1) * sizeof(float);
          whole.push_back(memory.take(received, {"parts of a gradient"}));
          scatters.push_back({&one, addend, whole.back().floats()});
        }
        if (way == Way::kScatterMoved) {
          exchange.scatter(scatters, adds, DType::kF32);
        } else {
          exchange.gather(gathers, shard.data(), DType::kF32);
        }
        done.record(stream);
        own.thread_us.push_back(thread_micros() - begin);
        done.synchronize();
        own.whole_us.push_back(wall_micros() - wall_begin);
      }
      const std::lock_guard lock(mutex);
      const auto append = [](std::vector<double>& to, const std::vector<double>& from) {
        to.insert(to.end(), from.begin() + kTimes / 10, from.end());
      };
      append(all.thread_us, own.thread_us);
      append(all.whole_us, own.whole_us);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(all.thread_us.begin(), all.thread_us.end());
  std::sort(all.whole_us.begin(), all.whole_us.end());
  return all;
}

/// Sorted; the first tenth is left out.
template <class Do>
std::vector<double> micros_of(const Do& once) {
  std::vector<double> made;
  for (size_t time = 0; time < kTimes; ++time) {
    const double begin = wall_micros();
    once();
    if (time >= kTimes / 10) made.push_back(wall_micros() - begin);
  }
  std::sort(made.begin(), made.end());
  return made;
}

/// Two threads that wake each other in turn.
class PingPong {
 public:
  PingPong() : other_([this] { answer(); }) {}
  ~PingPong() {
    pass(true);
    other_.join();
  }
  /// Wakes the other and waits for its answer.
  void once() {
    pass(false);
    std::unique_lock lock(mutex_);
    wakes_.wait(lock, [this] { return !is_others_; });
  }

 private:
  void pass(bool ends) {
    {
      const std::lock_guard lock(mutex_);
      is_others_ = true;
      ends_ = ends;
    }
    wakes_.notify_all();
  }
  void answer() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wakes_.wait(lock, [this] { return is_others_; });
      if (ends_) return;
      is_others_ = false;
      lock.unlock();
      wakes_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wakes_;
  bool is_others_ = false;
  bool ends_ = false;
  std::thread other_;
};

void print_stream_to_stream(const Accelerator& accelerator) {
  Stream first(accelerator, 0);
  Stream second(accelerator, 0);
  Event copied(accelerator, 0);
  Event done(accelerator, 0);
  std::vector<char> from(4096), to(4096);
  const auto alone = micros_of([&] {
    first.copy(to.data(), from.data(), to.size());
    done.record(first);
    done.synchronize();
  });
  const auto through = micros_of([&] {
    first.copy(to.data(), from.data(), to.size());
    copied.record(first);
    second.wait(copied);
    done.record(second);
    done.synchronize();
  });
  PingPong pair;
  const auto floor = micros_of([&] { pair.once(); });
  fmt::print("a copy of 4 KiB to its end, median and 9 in 10 below, us\n");
  for (const auto& [name, times] : {std::pair{"on one stream", &alone}, std::pair{"and on through another", &through},
                                    std::pair{"two threads that wake each other", &floor}}) {
    fmt::print("{:>34}  {:>6.1f}  {:>6.1f}\n", name, (*times)[times->size() / 2], (*times)[times->size() * 9 / 10]);
  }
}

}  // namespace

/// bench_gather [RANKS [PARAMETERS]]: only these.
int main(int count, char** arguments) {
  const auto wanted = [&](int place, uint64_t value) {
    return place >= count || std::strtoull(arguments[place], nullptr, 10) == value;
  };
  const Accelerator accelerator = open_host();
  fmt::print("parameters of {} elements; us for a group: of the calling thread, and until it has ended\n", kElements);
  fmt::print("{:>14}  ranks  parameters  thread  9 in 10 below   whole  9 in 10 below\n", "");
  for (const Way way : kWays) {
    for (const int32_t ranks : {1, 2, 4}) {
      for (const size_t parameters : {size_t{1}, size_t{4}, size_t{16}}) {
        if (!wanted(1, static_cast<uint64_t>(ranks)) || !wanted(2, parameters)) continue;
        const Times found = measure(accelerator, way, ranks, parameters);
        const size_t half = found.thread_us.size() / 2;
        const size_t most = found.thread_us.size() * 9 / 10;
        fmt::print("{:>14}  {:>5}  {:>10}  {:>6.1f}  {:>13.1f}  {:>6.1f}  {:>13.1f}\n", name_of(way), ranks, parameters,
                   found.thread_us[half], found.thread_us[most], found.whole_us[half], found.whole_us[most]);
      }
    }
  }
  print_stream_to_stream(accelerator);
  return EXIT_SUCCESS;
}
