// Costs of a simulation: what collectives, other work of the device and the program's computation take.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharded/step_clock.hpp"

namespace pliant::cli {

/// A collective takes start_ns, and the bytes that the rank gets which gets most: (N - 1) / N of them where all N ranks
/// own as much.
struct CollectiveCost {
  uint64_t start_ns = 20000;
  double bytes_per_s = 25e9;
};

struct SimulationCosts {
  CollectiveCost gather;
  CollectiveCost reduce;
  uint64_t launch_ns = 5000;                ///< of any other piece of work on the stream of the exchange
  double memory_bytes_per_s = 1e12;         ///< read and written by it
  double flops = 1e14;                      ///< a second, of the program's computation
  double tokens = 4096;                     ///< that a rank computes in a pass
  std::string from = "flags and defaults";  ///< where the costs of collectives come from
};

/// What the flags of the command line said; empty: nothing.
struct CostArguments {
  std::string bench_file;  ///< of `pliant accel bench --json`
  std::string latency;
  std::string bandwidth;
  std::string launch;
  std::string memory_bandwidth;
  std::string flops;
  std::string tokens;
};

/// Flags before the file, the file before the defaults. Throws (exit 2) for a flag that is no such number, a file that
/// is not there or no benchmark, and for one without all_gather.
SimulationCosts costs_of(const CostArguments& arguments);

/// The same, for the clock.
sharded::StepCosts step_costs(const SimulationCosts& costs);

/// What each module of a model takes to compute, by the elements that it uses: two operations for each element and
/// token forward, twice that backward.
class ComputeTimes {
 public:
  ComputeTimes(const sharded::ModelTables& model, const SimulationCosts& costs);
  [[nodiscard]] uint64_t of(uint32_t module, bool backward) const {
    return backward ? 2 * forward_ns_[module] : forward_ns_[module];
  }

 private:
  std::vector<uint64_t> forward_ns_;
};

}  // namespace pliant::cli
