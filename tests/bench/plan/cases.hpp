// What is planned: the same configs for every policy, for what policies share and for the reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct Case {
  int64_t cap = 0;
  std::vector<int64_t> micro_batches;
  int64_t max_gpus = 0;
};

/// Caps from 2,000 to 10^12, each with 3 and with 16 micro-batch sizes, for 10^4 and for 10^9 devices.
std::vector<Case> cases();

/// "cap:2000/sizes:3/devices:10000"
std::string name_of(const Case& one);

/// {"max_train_batch_size":2000,"micro_batch_sizes":[2,4,6],"max_gpus":10000}: the label, for the reference to read.
std::string json_of(const Case& one);

/// For Config::parse.
std::string toml_of(const Case& one, const std::string& policy);

/// Registers the benchmarks of common_bench.cpp.
void register_common();

}  // namespace bench
