// Micro-batch sizes with and without common factors, limits that bite and that do not, nodes, weights, extremes.
#include "plan_cases.hpp"

#include <algorithm>

namespace cases {
namespace {

std::vector<int64_t> some_of(Random& random, const std::vector<int64_t>& from, int64_t most) {
  std::vector<int64_t> some;
  for (int64_t i = random.in(1, most); i > 0; --i) {
    some.push_back(from[static_cast<size_t>(random.in(0, std::ssize(from) - 1))]);
  }
  return some;
}

std::vector<int64_t> up_to(Random& random, int64_t largest, int64_t most) {
  std::vector<int64_t> some;
  for (int64_t i = random.in(1, most); i > 0; --i) some.push_back(random.in(1, largest));
  return some;
}

std::vector<int64_t> micro_batches(Random& random) {
  switch (random.in(0, 5)) {
    case 0:
      return up_to(random, 12, 5);
    case 1:
      return up_to(random, 4, 8);  // many twice
    case 2:
      return some_of(random, {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}, 5);  // mostly co-prime
    case 3:
      return some_of(random, {4, 6, 8, 9, 10, 12, 14, 15, 16, 18, 20, 21, 22, 24}, 16);
    case 4:
      return some_of(random, {53, 59, 106, 61 * 67, 53 * 53, 97}, 3);  // primes that no table has
    default:
      return some_of(random, {1, 2, 4, 8, 16, 32, 64}, 7);
  }
}

int64_t some_extreme(Random& random) {
  const int64_t base = random.one_in(2) ? int64_t{1} << random.in(0, 62) : INT64_MAX;
  return std::max<int64_t>(1, base - random.in(0, 2) * random.in(0, 1000));
}

}  // namespace

uint64_t Random::next() {
  state_ += 0x9e3779b97f4a7c15U;
  uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

int64_t Random::in(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(next() % (static_cast<uint64_t>(high - low) + 1));
}

oracle::Config deepspeed(Random& random) {
  oracle::Config config;
  config.micro_batches = micro_batches(random);
  const bool wide = random.one_in(2000);
  config.cap = wide ? random.in(10'000, 1'000'000) : random.in(1, random.one_in(2) ? 300 : 2500);
  config.low = random.one_in(3) ? random.in(1, 40) : 1;
  config.high = config.low + random.in(0, wide && random.one_in(2) ? 1'000'000 : 600);
  config.prefer_larger = random.one_in(2);
  config.lcm_may_exceed_cap = random.one_in(3);
  config.strict = random.one_in(3);
  return config;
}

oracle::Config deepspeed_nodes(Random& random) {
  oracle::Config config = deepspeed(random);
  config.devices_per_node = random.in(1, 8);
  config.model_parallel = random.one_in(2) ? 1 : random.in(1, 4);
  return config;
}

oracle::ExactConfig exact(Random& random) {
  oracle::ExactConfig config;
  config.micro_batches = random.one_in(2) ? up_to(random, 9, 3) : some_of(random, {2, 4, 6, 8, 12, 16, 20, 24, 30}, 4);
  const int64_t least = *std::min_element(config.micro_batches.begin(), config.micro_batches.end());
  const bool wide = random.one_in(2000);
  config.cap = random.in(std::max<int64_t>(1, least - 1), wide ? 20'000 : least + 120);
  const int64_t common = oracle::granule_of(config);
  if (random.one_in(4)) {
    for (config.granule = random.in(1, common); common % config.granule != 0;) --config.granule;
  }
  config.calls = random.one_in(2);
  config.model_parallel = random.one_in(3) ? random.in(1, 4) : 1;
  config.devices_per_node = random.one_in(3) ? config.model_parallel * random.in(1, 4) : 1;
  config.whole_nodes = config.devices_per_node % config.model_parallel == 0 && random.one_in(2);
  const int64_t most = std::max<int64_t>(1, config.cap / oracle::granule_of(config)) * config.model_parallel;
  config.min_devices = random.one_in(2) ? 1 : random.in(1, std::min<int64_t>(most + 2, 60));
  config.max_devices = config.min_devices + random.in(0, wide ? 500 : 40);
  if (!random.one_in(3)) return config;
  const auto plan = oracle::exact(config);
  if (!plan) return config;
  config.weighted_sizes = some_of(random, plan->counted, 6);
  if (random.one_in(2)) config.weights.assign(config.weighted_sizes.size(), 1);
  for (int64_t& weight : config.weights) weight = random.one_in(4) ? 1'000'000 : random.in(1, 9);
  return config;
}

nlohmann::json extreme(Random& random, const std::string& policy) {
  std::vector<int64_t> sizes;
  for (int64_t i = random.in(1, 4); i > 0; --i) {
    sizes.push_back(random.one_in(2) ? random.in(1, 100) : std::min(some_extreme(random), int64_t{1} << 42));
  }
  nlohmann::json options{{"max_train_batch_size", random.one_in(2) ? int64_t{1} << 62 : some_extreme(random)},
                         {"micro_batch_sizes", sizes},
                         {"min_gpus", random.one_in(2) ? 1 : some_extreme(random)},
                         {"max_gpus", random.one_in(2) ? int64_t{1} << 31 : some_extreme(random)}};
  if (policy != "exact") options["strict"] = random.one_in(2);
  if (policy != "exact") options["lcm_may_exceed_max"] = random.one_in(4);
  if (policy == "exact" && random.one_in(2)) options["cost"] = "calls";
  if (policy == "exact" && random.one_in(2)) options["whole_nodes"] = true;
  if (policy == "v0.1" || random.one_in(2)) return options;
  options["num_gpus_per_node"] = random.one_in(2) ? random.in(1, 16) : some_extreme(random);
  options["model_parallel_size"] = random.one_in(2) ? random.in(1, 4) : some_extreme(random);
  return options;
}

nlohmann::json options_of(const oracle::Config& config) {
  return {{"max_train_batch_size", config.cap},
          {"micro_batch_sizes", config.micro_batches},
          {"min_gpus", config.low},
          {"max_gpus", config.high},
          {"prefer_larger_batch", config.prefer_larger},
          {"lcm_may_exceed_max", config.lcm_may_exceed_cap},
          {"strict", config.strict},
          {"num_gpus_per_node", config.devices_per_node},
          {"model_parallel_size", config.model_parallel}};
}

nlohmann::json options_of(const oracle::ExactConfig& config) {
  return {{"max_train_batch_size", config.cap},
          {"micro_batch_sizes", config.micro_batches},
          {"min_gpus", config.min_devices},
          {"max_gpus", config.max_devices},
          {"model_parallel_size", config.model_parallel},
          {"num_gpus_per_node", config.devices_per_node},
          {"whole_nodes", config.whole_nodes},
          {"granule", config.granule},
          {"cost", config.calls ? "calls" : "rows"},
          {"weighted_sizes", config.weighted_sizes},
          {"weights", config.weights}};
}

std::vector<int64_t> shuffled(std::vector<int64_t> micro_batches, Random& random) {
  for (int64_t i = random.in(0, 2); i > 0; --i) {
    micro_batches.push_back(micro_batches[static_cast<size_t>(random.in(0, std::ssize(micro_batches) - 1))]);
  }
  for (size_t i = micro_batches.size(); i-- > 1;) {
    std::swap(micro_batches[i], micro_batches[static_cast<size_t>(random.in(0, static_cast<int64_t>(i)))]);
  }
  return micro_batches;
}

std::string toml_of(const std::string& policy, const nlohmann::json& options) {
  std::string text = "config_version = 1\n[elasticity]\nuse = \"" + policy + "\"\n[elasticity.\"" + policy + "\"]\n";
  for (const auto& [key, value] : options.items()) text += key + " = " + value.dump() + "\n";
  return text;
}

}  // namespace cases
