// The configs of the planning benchmarks.
#include "cases.hpp"

namespace bench {
namespace {

std::string list_of(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

}  // namespace

std::vector<Case> cases() {
  const std::vector<int64_t> three{2, 4, 6};  // DeepSpeed's example
  std::vector<int64_t> sixteen;               // none divides all of them
  for (int64_t size = 8; size < 24; ++size) sixteen.push_back(size);
  std::vector<Case> all;
  for (const int64_t cap : {int64_t{2000}, int64_t{10'000}, int64_t{100'000}, int64_t{1'000'000}, int64_t{10'000'000},
                            int64_t{1'000'000'000}, int64_t{1'000'000'000'000}}) {
    for (const auto& micro_batches : {three, sixteen}) {
      for (const int64_t max_gpus : {int64_t{10'000}, int64_t{1'000'000'000}}) {
        all.push_back({cap, micro_batches, max_gpus});
      }
    }
  }
  return all;
}

std::string name_of(const Case& one) {
  return "cap:" + std::to_string(one.cap) + "/sizes:" + std::to_string(one.micro_batches.size()) +
         "/devices:" + std::to_string(one.max_gpus);
}

std::string json_of(const Case& one) {
  return "{\"max_train_batch_size\": " + std::to_string(one.cap) +
         ", \"micro_batch_sizes\": " + list_of(one.micro_batches) + ", \"max_gpus\": " + std::to_string(one.max_gpus) +
         "}";
}

std::string toml_of(const Case& one, const std::string& policy) {
  return "config_version = 1\n[elasticity]\nuse = \"" + policy + "\"\n[elasticity.\"" + policy +
         "\"]\nmax_train_batch_size = " + std::to_string(one.cap) +
         "\nmicro_batch_sizes = " + list_of(one.micro_batches) + "\nmax_gpus = " + std::to_string(one.max_gpus) + "\n";
}

}  // namespace bench
