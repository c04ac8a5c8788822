// Plans as JSON. docs/reference/run-json.md documents the keys.
#include <nlohmann/json.hpp>

#include "plan/views.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

Json or_null(const std::optional<double>& number) {
  return number ? Json(*number) : Json(nullptr);
}
Json or_null(const std::optional<int64_t>& number) {
  return number ? Json(*number) : Json(nullptr);
}

Json range_json(const WorldRange& range) {
  return range.step == 1 ? Json{range.first, range.last} : Json{range.first, range.last, range.step};
}

Json report_json(const SizeReport& report) {
  return {{"world_size", report.world_size},
          {"devices", report.devices},
          {"nodes", or_null(report.nodes)},
          {"micro_batch", report.micro_batch},
          {"gradient_accumulation_steps", report.accumulation_steps},
          {"largest_share", report.largest_share},
          {"efficiency", report.efficiency},
          {"learning_rate", or_null(report.learning_rate)}};
}

/// What a scheduler may put into PLIANT_ELASTICITY_CONFIG as it is.
Json block_json(const Planner& planner) {
  Json block = Json::parse(planner.block());
  block["digest"] = planner.digest();
  return block;
}

}  // namespace

std::string plan_json(const Study& study) {
  const Plan& plan = study.plan();
  Json json;
  json["schema"] = "pliant.plan/1";
  json["policy"] = study.planner().policy();
  json["global_batch"] = plan.global_batch;
  json.update(report_json(study.shown()));
  json["mean_efficiency"] = study.mean_efficiency();
  json["largest_counted"] = study.largest_counted();
  json["granule"] = plan.granule;
  json["model_parallel_size"] = plan.model_parallel_size;
  json["devices_per_node"] = plan.devices_per_node;
  json["min_resize_interval_s"] = plan.min_resize_interval_s;
  json["world_size_count"] = plan.count();
  auto ranges = Json::array();
  auto sizes = Json::array();
  const bool listed = plan.count() <= kMostListed;
  for (const WorldRange& range : plan.world_sizes) {
    ranges.push_back(range_json(range));
    for (int64_t size = range.first; listed && size <= range.last; size += range.step) sizes.push_back(size);
  }
  json["world_sizes"] = listed ? sizes : Json(nullptr);
  json["world_size_ranges"] = std::move(ranges);
  json["unusable_count"] = study.unusable_count();
  const std::vector<WorldRange> gaps = study.unusable(kMostListed + 1);
  auto unusable = Json::array();
  for (const WorldRange& gap : gaps) unusable.push_back(range_json(gap));
  json["unusable_ranges"] = gaps.size() <= static_cast<size_t>(kMostListed) ? unusable : Json(nullptr);
  auto by_size = Json::array();
  for (const SizeReport& report : study.reports(listed ? kMostListed : kSomeListed))
    by_size.push_back(report_json(report));
  json["by_world_size"] = std::move(by_size);
  json["elasticity"] = block_json(study.planner());
  json["warnings"] = study.warnings();
  return json.dump() + "\n";
}

WorldRange compared_sizes(const std::vector<Compared>& policies) {
  WorldRange sizes;
  for (const Compared& one : policies) {
    if (!one.study) continue;
    const bool fresh = sizes.first == 0;
    sizes.first = fresh ? one.study->first_size() : std::min(sizes.first, one.study->first_size());
    sizes.last = std::max(sizes.last, one.study->largest_counted());
  }
  return sizes;
}

std::string compare_json(const std::vector<Compared>& policies, int64_t world_size) {
  const WorldRange sizes = compared_sizes(policies);
  Json json;
  json["schema"] = "pliant.plan_compare/1";
  json["cluster_sizes"] = {sizes.first, sizes.last};
  json["policies"] = Json::array();
  for (const Compared& one : policies) {
    Json row{{"policy", one.policy}};
    if (!one.study) {
      row["error"] = one.refusal;
      json["policies"].push_back(std::move(row));
      continue;
    }
    const Study& study = *one.study;
    row["global_batch"] = study.plan().global_batch;
    row["granule"] = study.plan().granule;
    row["world_size_count"] = study.plan().count();
    row["largest_world_size"] = study.last_size();
    row["mean_efficiency"] = study.mean_efficiency();
    row["largest_counted"] = study.largest_counted();
    row["mean_efficiency_of_clusters"] = study.mean_efficiency(sizes.first, sizes.last);
    row["digest"] = study.planner().digest();
    if (world_size > 0) {
      const bool valid = study.shown().world_size == world_size;
      row["at_world_size"] = valid ? report_json(study.shown()) : Json(nullptr);
      if (!one.remark.empty()) row["remark"] = one.remark;
      row["efficiency_of_cluster"] = study.efficiency_of(world_size);
    }
    json["policies"].push_back(std::move(row));
  }
  return json.dump() + "\n";
}

}  // namespace pliant::cli
