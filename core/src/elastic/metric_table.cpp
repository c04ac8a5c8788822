// MetricTable over exact sums.
#include "elastic/metric_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "pliant/error.hpp"

namespace pliant::elastic {
namespace {

bool takes_extreme(MetricRule rule) {
  return rule == MetricRule::kMax || rule == MetricRule::kMin;
}

[[noreturn]] void refuse_metric(const std::string& why) {
  throw Error(Status::kInvalidArgument, why);
}

}  // namespace

bool is_metric_name(std::string_view name) {
  const auto fits = [](char c) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_letter || (c >= '0' && c <= '9') || std::string_view(".-_/:").find(c) != std::string_view::npos;
  };
  return !name.empty() && name.size() <= kLongestMetricName && std::all_of(name.begin(), name.end(), fits);
}

void MetricTable::Entry::take_extreme(double value) {
  const bool is_first = !std::exchange(has_extreme, true);
  const bool is_further = rule == MetricRule::kMax ? value > extreme : value < extreme;
  if (is_first || std::isnan(value) || (!std::isnan(extreme) && is_further)) extreme = value;
}

void MetricTable::add(std::string_view name, double value, double weight, MetricRule rule) {
  if (!is_metric_name(name)) {
    refuse_metric(fmt::format("'{}' is no name of a metric: 1 to {} letters, digits and any of \".-_/:\"",
                              name.substr(0, kLongestMetricName), kLongestMetricName));
  }
  if (!std::isfinite(weight) || weight < 0)
    refuse_metric(fmt::format("the weight of metric '{}' is {}; it is 0 or more, and finite", name, weight));
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    if (entries_.size() >= kMostMetrics)
      refuse_metric(
          fmt::format("metric '{}' is one too many: a step or an evaluation has {} at most", name, kMostMetrics));
    found = entries_.emplace(name, Entry{}).first;
    found->second.rule = rule;
  }
  Entry& entry = found->second;
  if (entry.rule != rule) refuse_metric(fmt::format("metric '{}' was combined by another rule before", name));
  if (takes_extreme(rule)) return entry.take_extreme(value);
  if (rule == MetricRule::kSum) return entry.sum.add(value);
  if (weight == 0) return;  // also of a value that is not finite
  entry.sum.add_product(value, weight);
  entry.weight.add(weight);
}

bool MetricTable::take(const MetricShare& share) {
  const auto [found, is_new] = entries_.try_emplace(share.name);
  Entry& entry = found->second;
  if (is_new) entry.rule = share.rule;
  if (entry.rule != share.rule) {
    entry.disputed = true;
    return false;
  }
  if (takes_extreme(share.rule)) {
    for (const double value : share.sum) entry.take_extreme(value);
  } else {
    entry.sum.add(share.sum);
    entry.weight.add(share.weight);
  }
  return true;
}

std::vector<MetricShare> MetricTable::shares() const {
  std::vector<MetricShare> made;
  for (const auto& [name, entry] : entries_) {
    MetricShare share{name, entry.rule, entry.sum.parts(), entry.weight.parts()};
    if (takes_extreme(entry.rule)) share.sum = {entry.extreme};
    made.push_back(std::move(share));
  }
  return made;
}

std::map<std::string, double> MetricTable::values() const {
  std::map<std::string, double> made;
  for (const auto& [name, entry] : entries_) {
    if (entry.disputed) continue;
    if (takes_extreme(entry.rule)) {
      made[name] = entry.extreme;
    } else if (entry.rule == MetricRule::kSum) {
      made[name] = entry.sum.value();
    } else if (const double weight = entry.weight.value(); weight != 0) {
      made[name] = entry.sum.value() / weight;
    }
  }
  return made;
}

}  // namespace pliant::elastic
