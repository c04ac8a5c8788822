// JSON of `pliant trace`.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "sharded/trace/trace_words.hpp"
#include "sharded/trace/traced_program.hpp"
#include "trace/views.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

Json step_json(const sharded::ReportedStep& step) {
  std::string kind = kind_of_step(step);
  std::replace(kind.begin(), kind.end(), ' ', '_');
  return {{"step", step.step},
          {"kind", kind},
          {"passes", step.passes},
          {"evaluations", step.evaluations},
          {"began_us", step.began},
          {"ended_us", step.ended},
          {"gathered", step.gathered},
          {"gathered_ahead", step.ahead},
          {"by_hand", step.by_hand},
          {"least", step.least.with_room},
          {"least_at_budget", step.least.at_budget},
          {"reduced", step.reduced},
          {"peak", step.peak},
          {"exchange_us", step.exchange},
          {"exposed_us", step.exposed},
          {"waits", step.waits},
          {"waited_us", step.waited}};
}

Json wait_json(const TraceStudy& study, const sharded::ReportedWait& one) {
  const sharded::TracedRank& rank = study.rank_of(one.of);
  const sharded::TracedCall& call = rank.calls[one.wait.call];
  Json parameters = Json::array();
  for (const uint32_t parameter : one.wait.parameters) {
    parameters.push_back(study.trace.model->parameter(parameter).name);
  }
  Json module = nullptr;
  if (call.module) module = study.trace.model->modules()[*call.module].name;
  return {{"generation", rank.generation},
          {"rank", rank.rank},
          {"step", one.step},
          {"call", sharded::word_of(call)},
          {"module", module},
          {"direction", call.module ? Json(sharded::word_of(call.direction)) : Json(nullptr)},
          {"parameters", parameters},
          {"began_us", one.wait.began},
          {"waited_us", one.wait.microseconds},
          {"cause", sharded::word_of(one.wait.cause)},
          {"text", study.sentence(one)}};
}

}  // namespace

std::string trace_json(const TraceStudy& study) {
  Json json;
  json["schema"] = "pliant.trace_report/1";
  json["trace"] = study.file;
  json["run_id"] = study.trace.run;
  json["coordinator"] = study.trace.coordinator;
  json["budget"] = study.trace.budget;
  json["parameters"] = study.trace.model->parameters().size();
  json["elements"] = study.trace.model->elements();
  json["modules"] = study.trace.model->modules().size();
  json["ranks"] = Json::array();
  auto step = study.report.steps.begin();
  for (size_t of = 0; of < study.trace.ranks.size(); ++of) {
    const sharded::TracedRank& rank = study.trace.ranks[of];
    Json steps = Json::array();
    for (; step != study.report.steps.end() && step->of == of; ++step) steps.push_back(step_json(*step));
    json["ranks"].push_back({{"generation", rank.generation},
                             {"rank", rank.rank},
                             {"worker", rank.worker},
                             {"world_size", rank.world_size},
                             {"is_cut", rank.is_cut},
                             {"steps", std::move(steps)}});
  }
  json["waits"] = Json::array();
  for (const size_t place : study.longest_waits()) json["waits"].push_back(wait_json(study, study.report.waits[place]));
  json["causes"] = Json::array();
  for (const CauseTotal& one : totals_of(study)) {
    json["causes"].push_back({{"cause", sharded::word_of(one.cause)},
                              {"waits", one.waits},
                              {"waited_us", one.microseconds},
                              {"steady_us", one.steady}});
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace pliant::cli
