// What the packing benchmarks share: lengths, and a sampler opened through the plugin host.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/batch_sampler.h"
#include "plugin/option_values.hpp"
#include "plugin/plugin.hpp"

namespace pliant::bench {

inline std::vector<int32_t> wikipedia(size_t n, int64_t budget) {
  const auto counts = nlohmann::json::parse(std::ifstream(WIKIPEDIA_HISTOGRAM)).at("counts").get<std::vector<double>>();
  std::discrete_distribution<int64_t> length(counts.begin(), counts.end());
  std::mt19937_64 engine(7020);
  std::vector<int32_t> lengths(n);
  for (int32_t& one : lengths) one = static_cast<int32_t>(std::min(length(engine) + 1, budget));
  return lengths;
}

inline std::vector<int32_t> lognormal(size_t n, int64_t budget) {
  std::lognormal_distribution<double> length(std::log(300.0), 1.0);
  std::mt19937_64 engine(7020);
  std::vector<int32_t> lengths(n);
  for (int32_t& one : lengths) {
    one = static_cast<int32_t>(std::clamp(static_cast<int64_t>(std::ceil(length(engine))), int64_t{1}, budget));
  }
  return lengths;
}

/// `order`: empty = the default. `threads` for samplers that have the option.
inline plugin::Instance make(const std::string& name, int64_t budget, const std::string& order, int64_t threads) {
  const auto opened = or_throw(plugin::Plugin::open(std::string(PLIANT_PLUGIN_DIR) + "/sampler-" + name + ".pliant.so",
                                                    *plugin::kind_of("sampler")));
  plugin::OptionValues values;
  values.state().reset(opened->options());
  for (size_t i = 0; i < opened->options().size(); ++i) {
    values.state().set_default(i, opened->options()[i]);
    if (std::string(opened->options()[i].key) == "max_tokens") values.state().set_integer(i, budget);
    if (std::string(opened->options()[i].key) == "order" && !order.empty()) values.state().set_text(i, order);
    if (std::string(opened->options()[i].key) == "threads") values.state().set_integer(i, threads);
    if (std::string(opened->options()[i].key) == "strict") values.state().set_integer(i, 1);
  }
  return or_throw(plugin::Instance::create(opened, values));
}

inline pliant_epoch_request request_of(const std::vector<int32_t>& lengths) {
  pliant_epoch_request request{};
  request.struct_size = sizeof(request);
  request.seed = 1234;
  request.rows_per_batch = 8;
  request.sequence_count = lengths.size();
  request.lengths = lengths.data();
  return request;
}

}  // namespace pliant::bench
