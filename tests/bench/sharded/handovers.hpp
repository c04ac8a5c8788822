// What waiting for work of another stream adds to it, and the floor of that: a thread that wakes another.
#pragma once

#include <string>
#include <vector>

#include "bench/sharded/times.hpp"
#include "pliant/accelerator.hpp"

namespace pliant::bench {

struct Handover {
  std::string what;
  Spread us;
};

/// A copy of 4 KiB to its end on one stream, and on through another; by turns, so that what else the machine does slows
/// both, and what the second adds. Then one way of two threads that wake each other by turns, by each means. All of it
/// one sample after the other, and with a rest before each, after which the threads sleep. Last what reading the clock
/// of a thread takes.
std::vector<Handover> measure_handovers(const Accelerator& accelerator);

}  // namespace pliant::bench
