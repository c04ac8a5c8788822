// The thread on which streams of a driver run what the driver cannot.
#include <doctest/doctest.h>

#include <latch>
#include <thread>

#include "common/devices/host_thread.hpp"

using pliant::devices::FailureSlot;
using pliant::devices::HostThread;

TEST_CASE("who waits past a piece of work goes on when it has ended, and not when it has only told so") {
  HostThread host(std::make_shared<FailureSlot>());
  std::latch told(1);
  std::latch first_may_end(1);
  std::latch second_may_end(1);
  host.push(
      [&] {
        told.count_down();
        first_may_end.wait();
      },
      1);
  host.push([&] { second_may_end.wait(); }, 2);
  told.wait();
  host.wait_past(0);
  std::thread ends([&] { first_may_end.count_down(); });
  host.wait_past(1);
  CHECK(first_may_end.try_wait());
  CHECK(!host.idle());
  second_may_end.count_down();
  host.wait_past(2);
  CHECK(host.idle());
  ends.join();
}
