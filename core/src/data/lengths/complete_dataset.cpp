// What a config names beside the lengths: rows for its sampler, and costs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "data/lengths/given_rows.hpp"
#include "pliant/batches.hpp"

namespace pliant {

namespace {

[[noreturn]] void refuse_given(Status status, const std::string& why) {
  throw Error(status, why, Origin::kInput);
}

/// `error` with the position of the option that names its file; `key`: of the sampler.
Error at_row_file(const Config& config, const config::RowFiles& files, Error error) {
  error.about(error.options() == "ids" ? files.ids_key : files.offsets_key);
  return config::at_option(config, "sampler", error);
}

Integers read_given_rows(const Config& config, const std::string& key, const std::string& file) {
  Result<Integers> read = data::read_integers(file);
  if (!read) throw config::at_option(config, "sampler", Error(read.error()).about(key));
  return std::move(*read);
}

void add_given_rows(const Config& config, Dataset& dataset) {
  const config::RowFiles files = config::row_files(config);
  if (!dataset.rows.empty() && !files.taken) {
    refuse_given(
        Status::kInvalidArgument,
        fmt::format("rows are given with the data set, but sampler '{}' makes its own; sampler 'rows' takes those that "
                    "are given",
                    config.use("sampler")));
  }
  const bool from_files = dataset.rows.empty() && !(files.offsets.empty() && files.ids.empty());
  if (from_files) {
    if (files.offsets.empty() || files.ids.empty()) {
      const std::string& missing = files.offsets.empty() ? files.offsets_key : files.ids_key;
      const std::string& there = files.offsets.empty() ? files.ids_key : files.offsets_key;
      throw config::at_option(
          config, "sampler",
          Error(Status::kInvalidArgument, fmt::format("{} is set but {} is not; rows need both files", there, missing),
                Origin::kInput)
              .about(there));
    }
    dataset.rows = {read_given_rows(config, files.offsets_key, files.offsets),
                    read_given_rows(config, files.ids_key, files.ids), files.offsets, files.ids};
  }
  const Result<> checked = data::check_rows(dataset);
  if (checked) return;
  throw from_files ? at_row_file(config, files, checked.error()) : checked.error();
}

Integers read_given_costs(const Config& config, const char* key, const std::string& file) {
  Result<Integers> read = data::read_costs(file);
  if (!read) throw config::at_core_option(config, "balancer", key, read.error());
  return std::move(*read);
}

/// Costs of rows become costs of sequences.
Result<> spread_row_costs(Dataset& dataset) {
  const Integers& costs = dataset.row_costs;
  if (costs.empty()) return {};
  const std::string name = dataset.costs_source.empty() ? "the costs of rows" : dataset.costs_source;
  if (dataset.rows.empty()) {
    return failed(
        Status::kInvalidArgument,
        fmt::format("{}: rows have costs of their own only where rows are given, as to sampler 'rows'; give the "
                    "cost of each sequence instead",
                    name),
        Origin::kInput);
  }
  if (costs.size() != dataset.rows.count()) {
    return failed(Status::kInvalidArgument,
                  fmt::format("{}: {} costs for {} rows; give one for each", name, costs.size(), dataset.rows.count()),
                  Origin::kInput);
  }
  const auto below = std::find_if(costs.begin(), costs.end(), [](int64_t cost) { return cost < 0; });
  if (below != costs.end()) {
    return failed(
        Status::kInvalidArgument,
        fmt::format("{}: cost {} is {}; a cost must be finite and 0 or more", name, below - costs.begin(), *below),
        Origin::kInput);
  }
  dataset.costs = data::costs_of_rows(dataset.rows, costs, dataset.lengths.size());
  dataset.row_costs = {};
  return {};
}

void add_given_costs(const Config& config, Dataset& dataset) {
  if (!dataset.costs.empty() && !dataset.row_costs.empty()) {
    refuse_given(Status::kInvalidArgument, "costs are given for sequences and for rows; give one of them");
  }
  const BalancerOptions& balancer = config.balancer();
  const char* key = nullptr;
  if (dataset.costs.empty() && dataset.row_costs.empty()) {
    if (!balancer.costs.empty()) key = "costs";
    if (!balancer.row_costs.empty()) key = "row_costs";
    if (key == nullptr) return;
    const bool of_rows = !balancer.row_costs.empty();
    dataset.costs_source = of_rows ? balancer.row_costs : balancer.costs;
    (of_rows ? dataset.row_costs : dataset.costs) = read_given_costs(config, key, dataset.costs_source);
    if ((of_rows ? dataset.row_costs : dataset.costs).empty()) {
      throw config::at_core_option(
          config, "balancer", key,
          Error(Status::kInvalidArgument, fmt::format("{}: it has no costs", dataset.costs_source), Origin::kInput));
    }
  }
  Result<> checked = spread_row_costs(dataset);
  if (checked) checked = data::check_costs(dataset);
  if (checked) return;
  throw key != nullptr ? config::at_core_option(config, "balancer", key, checked.error()) : checked.error();
}

}  // namespace

Dataset complete_dataset(const Config& config, Dataset dataset) {
  if (config::is_open(config, "sampler")) add_given_rows(config, dataset);
  add_given_costs(config, dataset);
  return dataset;
}

}  // namespace pliant
