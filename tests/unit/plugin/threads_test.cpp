// Threads that open and close plugins at will. Under TSan: what one thread read of a plugin that it then closed is over
// before another thread's opening writes there, though nothing else orders the two.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>

#include "plugin/plugin.hpp"

using pliant::plugin::kind_of;
using pliant::plugin::Plugin;

TEST_CASE("a thread opens a plugin where another has just closed it") {
  constexpr int kTurns = 20;
  const std::string file = std::string(PLIANT_PLUGIN_DIR) + "/coordinator-eager.pliant.so";
  std::atomic<int> turn{0};  // relaxed: it says whose turn it is, and orders nothing
  std::atomic<int> opened{0};
  const auto take_turns = [&](int parity) {
    for (int mine = parity; mine < kTurns; mine += 2) {
      while (turn.load(std::memory_order_relaxed) != mine) std::this_thread::yield();
      if (Plugin::open(file, *kind_of("coordinator"))) opened.fetch_add(1, std::memory_order_relaxed);
      turn.store(mine + 1, std::memory_order_relaxed);
    }
  };
  std::thread even(take_turns, 0);
  std::thread odd(take_turns, 1);
  even.join();
  odd.join();
  CHECK(opened == kTurns);
}
