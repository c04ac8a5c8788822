// A run's course as JSON.
#include <cmath>
#include <nlohmann/json.hpp>

#include "report/views.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

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
  json["by_step"] = columns_of(report.steps);
  json["discarded"] = Json::array();
  for (const std::vector<StepReport>& run : report.discarded) json["discarded"].push_back(columns_of(run));
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace pliant::cli
