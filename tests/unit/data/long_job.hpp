// A job of six epochs, and which of them its sampler plans.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pliant/batches.hpp"
#include "pliant/log.hpp"
#include "scratch.hpp"

namespace pliant::test {

inline const char* const kLongJob = R"(
[sampler]
use = "seqlen"
[sampler.seqlen]
max_tokens = 40
[run]
seed = 3
epochs = 6
)";

struct LongJob {
  explicit LongJob(const std::string& toml = kLongJob) : config(scratch.config(toml)) {
    plan.global_batch = 7;
    std::vector<int32_t> tokens(300);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(3 + i * 7 % 29);
    dataset.lengths = std::move(tokens);
  }
  [[nodiscard]] Batches start() const { return {config, plan, dataset}; }
  [[nodiscard]] Batches open(const std::string& saved) const { return {config, plan, dataset, saved}; }

  Scratch scratch;
  Config config;
  Plan plan;
  Dataset dataset;
};

inline const char* const kCounting = R"(
[plugins]
dirs = ["DIR"]
[sampler]
use = "counting"
[run]
epochs = 6
)";

/// Epochs that the sampler `counting` plans while this lives, as "0 3 ".
class Planned {
 public:
  Planned() {
    set_log_sink(
        [this](LogLevel, std::string_view, std::string_view line) {
          constexpr std::string_view kWords = "plans epoch ";
          if (line.substr(0, kWords.size()) == kWords) epochs_ += std::string(line.substr(kWords.size())) + " ";
        },
        LogLevel::kInfo);
  }
  ~Planned() { set_log_sink({}); }
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  [[nodiscard]] const std::string& epochs() const { return epochs_; }

 private:
  std::string epochs_;
};

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace pliant::test
