// What a gather group costs the thread that asks for it: memory, one collective, an event. Ranks are threads on `host`.
// Prints a table; time of the thread itself, so that ranks that share a core do not count one another's.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

/// Microseconds of the thread for each group of each rank, sorted.
std::vector<double> measure(const Accelerator& accelerator, int32_t world_size, size_t parameters) {
  const CommId id = accelerator.make_comm_id(world_size);
  std::vector<double> all;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      Stream stream(accelerator, 0);
      Communicator group(accelerator, 0, id, rank, world_size);
      group.wait_ready(60000);
      const int64_t total = kElements * static_cast<int64_t>(parameters);
      const auto layout = or_throw(sharded::FlatLayout::create(total));
      const auto ownership = or_throw(sharded::Ownership::deal(layout.chunks(), world_size));
      sharded::Exchange exchange(group, stream);
      std::vector<sharded::OwnersOfRange> owners;
      for (size_t i = 0; i < parameters; ++i) {
        owners.push_back(exchange.owners_of(layout, ownership, {static_cast<int64_t>(i) * kElements, kElements}));
      }
      const std::vector<float> shard(static_cast<size_t>(ownership.chunks_of(rank) * layout.chunk_elements()), 1.0F);
      sharded::WholeMemory memory(accelerator, 0, stream, 0);
      Event done(accelerator, 0);
      std::vector<double> micros;
      for (size_t time = 0; time < kTimes; ++time) {
        const double begin = thread_micros();
        std::vector<sharded::WholePiece> whole;
        std::vector<sharded::GatherItem> items;
        for (const sharded::OwnersOfRange& one : owners) {
          whole.push_back(memory.take(static_cast<uint64_t>(kElements) * sizeof(float), "a parameter"));
          items.push_back({&one, whole.back().floats()});
        }
        exchange.gather(items, shard.data(), DType::kF32);
        done.record(stream);
        micros.push_back(thread_micros() - begin);
        done.synchronize();
      }
      const std::lock_guard lock(mutex);
      all.insert(all.end(), micros.begin() + kTimes / 10, micros.end());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

int main() {
  const Accelerator accelerator = open_host();
  fmt::print("parameters of {} elements; us of the calling thread for a gather group\n", kElements);
  fmt::print("ranks  parameters  median  9 in 10 below\n");
  for (const int32_t ranks : {1, 2, 4}) {
    for (const size_t parameters : {size_t{1}, size_t{4}, size_t{16}}) {
      const std::vector<double> found = measure(accelerator, ranks, parameters);
      fmt::print("{:>5}  {:>10}  {:>6.1f}  {:>13.1f}\n", ranks, parameters, found[found.size() / 2],
                 found[found.size() * 9 / 10]);
    }
  }
  return EXIT_SUCCESS;
}
