// Random configs of the elasticity policies, each a function of its number alone.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exact_oracle.hpp"
#include "oracle.hpp"

namespace cases {

/// SplitMix64: the same numbers on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next();
  /// From low to high, both included.
  int64_t in(int64_t low, int64_t high);
  bool one_in(int64_t n) { return in(1, n) == 1; }

 private:
  uint64_t state_;
};

/// For v0.1 and v0.2, some with strict. Mostly small, now and then up to 10^6 rows.
oracle::Config deepspeed(Random& random);
/// The same with nodes and model parallelism.
oracle::Config deepspeed_nodes(Random& random);
/// For `exact`.
oracle::ExactConfig exact(Random& random);

/// Numbers up to 2^63 - 1, for any policy: nothing that brute force could plan.
nlohmann::json extreme(Random& random, const std::string& policy);

nlohmann::json options_of(const oracle::Config& config);
nlohmann::json options_of(const oracle::ExactConfig& config);

/// In another order, some of them twice.
std::vector<int64_t> shuffled(std::vector<int64_t> micro_batches, Random& random);

/// As a pliant.toml.
std::string toml_of(const std::string& policy, const nlohmann::json& options);

}  // namespace cases
