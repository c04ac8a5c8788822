// A run's course as JSON.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "metric_json.hpp"
#include "report/views.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

/// By name a list with an entry a step: null where a step has none.
Json metrics_of(const std::vector<StepReport>& steps) {
  std::map<std::string, Json> lists;
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const auto& [name, value] : steps[i].metrics) {
      const auto [list, is_new] = lists.try_emplace(name);
      if (is_new) list->second = std::vector<Json>(steps.size());
      if (std::isfinite(value)) list->second[i] = value;
    }
  }
  Json metrics = Json::object();
  for (auto& [name, list] : lists) metrics[name] = std::move(list);
  return metrics;
}

/// Lists of the same length, one entry a step. A loss that is not finite is null.
Json columns_of(const std::vector<StepReport>& steps) {
  Json columns{{"step", Json::array()},   {"generation", Json::array()},    {"world_size", Json::array()},
               {"loss", Json::array()},   {"learning_rate", Json::array()}, {"tokens", Json::array()},
               {"skipped", Json::array()}};
  const auto real = [](double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); };
  for (const StepReport& one : steps) {
    columns["step"].push_back(one.step);
    columns["generation"].push_back(one.generation);
    columns["world_size"].push_back(one.world_size);
    columns["loss"].push_back(real(one.loss));
    columns["learning_rate"].push_back(real(one.learning_rate));
    columns["tokens"].push_back(one.tokens);
    columns["skipped"].push_back(one.skipped);
  }
  columns["metrics"] = metrics_of(steps);
  return columns;
}

}  // namespace

std::string report_json(const RunReport& report) {
  Json json;
  json["schema"] = "pliant.report/1";
  json["run_id"] = report.run_id;
  json["directory"] = report.directory.string();
  json["steps"] = report.steps.size();
  json["steps_skipped"] = report.steps_skipped();
  json["steps_discarded"] = report.steps_discarded();
  json["losses_not_finite"] = losses_not_finite(report);
  json["groups"] = Json::array();
  for (const GroupReport& one : report.groups) {
    json["groups"].push_back({{"generation", one.generation},
                              {"step", one.step},
                              {"world_size", one.world_size},
                              {"cause", word_of(one.cause)},
                              {"reason", one.reason},
                              {"steps_discarded", one.steps_discarded}});
  }
  json["not_finite"] = nullptr;
  if (report.not_finite_step)
    json["not_finite"] = {{"step", *report.not_finite_step}, {"reason", report.not_finite_reason}};
  json["ended_early"] = nullptr;
  if (report.ended_early) json["ended_early"] = {{"step", *report.ended_early}, {"reason", report.reason_to_end}};
  json["evaluations"] = Json::array();
  for (const Evaluation& one : report.evaluations) json["evaluations"].push_back(json_of(one));
  json["by_step"] = columns_of(report.steps);
  json["discarded"] = Json::array();
  for (const std::vector<StepReport>& run : report.discarded) json["discarded"].push_back(columns_of(run));
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace pliant::cli
