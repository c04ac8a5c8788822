// Random sets and options for the packing samplers.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sampler_plugin.hpp"

namespace pliant::test {

inline const std::vector<std::string> kPackers{"next_fit", "best_fit", "streaming", "padded_budget", "bucketed"};

/// A packing sampler with options, and what it is asked.
struct Case {
  std::string sampler;
  OptionMap options;
  Asked asked;
  int64_t budget = 0;

  [[nodiscard]] int64_t integer(const std::string& key) const { return std::get<int64_t>(options.at(key)); }
  [[nodiscard]] std::string word(const std::string& key) const { return std::get<std::string>(options.at(key)); }
  [[nodiscard]] bool is_padded() const { return sampler == "padded_budget" || sampler == "bucketed"; }
  [[nodiscard]] Planned plan() const { return or_throw(OpenedSampler(sampler, options).plan(asked)); }
};

inline int64_t below(int64_t bound) {
  return *rc::gen::inRange<int64_t>(0, bound);
}

inline Case random_case(const std::string& name) {
  Case made;
  made.sampler = name;
  made.budget = 1 + below(60);
  made.asked.lengths = *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(1, 70));
  made.asked.rows_per_batch = 1 + below(5);
  made.asked.seed = *rc::gen::arbitrary<uint64_t>();
  made.asked.epoch = below(3);
  const int64_t fewest = below(3);
  made.options = {{"max_tokens", made.budget},
                  {"order", *rc::gen::elementOf(std::vector<std::string>{"dataloader", "seqlen", "random"})},
                  {"min_sequences", fewest},
                  {"max_sequences", below(2) == 0 ? int64_t{0} : fewest + 1 + below(4)},
                  {"over_long", *rc::gen::elementOf(std::vector<std::string>{"drop", "truncate", "split"})},
                  {"tail", *rc::gen::elementOf(std::vector<std::string>{"keep", "pad", "fill", "drop"})}};
  if (made.word("over_long") == "split") {
    made.options["min_sequences"] = int64_t{0};
    if (made.word("tail") == "drop") made.options["tail"] = "fill";
  }
  if (name == "streaming") {
    made.options["open_packs"] = int64_t{1 + below(5)};
    made.options["max_wait"] = 2 * made.integer("open_packs") + below(60);
    made.options["window"] = 1 + below(40);
  }
  if (below(3) == 0 && !made.asked.lengths.empty()) {
    made.asked.has_ids = true;
    for (size_t id = 0; id < made.asked.lengths.size(); ++id) {
      if (below(2) == 0) made.asked.ids.push_back(static_cast<int64_t>(id));
    }
    std::reverse(made.asked.ids.begin(), made.asked.ids.end());
  }
  return made;
}

/// The rows of `plan` with sequences: those before the ones that fill up the last batch, which are checked.
inline size_t rows_with_sequences(const Case& asked, const Planned& plan) {
  size_t count = plan.rows.size();
  while (count > 0 && plan.rows[count - 1].empty()) --count;
  const auto batch = static_cast<size_t>(asked.asked.rows_per_batch);
  if (asked.word("tail") == "pad") RC_ASSERT(plan.rows.size() % batch == 0);
  RC_ASSERT(plan.rows.size() - count < (asked.word("tail") == "pad" ? batch : 1));
  return count;
}

}  // namespace pliant::test
