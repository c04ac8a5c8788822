// RankGroup: the ranks of a group as threads of this process, on an accelerator plugin.
#pragma once

#include <doctest/doctest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pliant/communicator.hpp"
#include "pliant/error.hpp"
#include "scratch_folder.hpp"

namespace pliant::test {

/// The plugin `host`, opened through a config file as a program would. `options`: lines of [accelerator.host].
inline Accelerator open_host(const std::string& options = "") {
  const ScratchFolder folder;
  write_all(folder / "pliant.toml",
            "config_version = 1\n[accelerator]\nuse = \"host\"\n[accelerator.host]\n" + options + "\n");
  const ConfigNeeds needs{"accelerator"};
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Accelerator(Config::open(folder / "pliant.toml", needs, overrides));
}

/// Runs `body(rank, communicator, stream)` on each rank; outcome[r] is what rank r threw. A rank that throws aborts its
/// side.
inline std::vector<std::exception_ptr> run_ranks(const Accelerator& accelerator, int32_t world_size,
                                                 const std::function<void(int32_t, Communicator&, Stream&)>& body) {
  const CommId id = accelerator.make_comm_id(world_size);
  std::vector<std::exception_ptr> outcome(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Stream stream(accelerator, 0);
        Communicator communicator(accelerator, 0, id, rank, world_size);
        communicator.wait_ready(60000);
        body(rank, communicator, stream);
        stream.synchronize();
      } catch (...) {
        outcome[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcome;
}

/// The same, and no rank may throw.
inline void run_healthy_ranks(const Accelerator& accelerator, int32_t world_size,
                              const std::function<void(int32_t, Communicator&, Stream&)>& body) {
  for (const std::exception_ptr& thrown : run_ranks(accelerator, world_size, body)) {
    if (thrown) std::rethrow_exception(thrown);
  }
}

}  // namespace pliant::test
