// Packing studies as JSON. docs/reference/pack-json.md documents the keys.
#include <nlohmann/json.hpp>

#include "pack/views.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

Json study_json(const PackStudy& study) {
  const EpochSummary& summary = study.summary;
  int64_t dropped = 0;
  for (const auto& [reason, count] : summary.dropped) dropped += count;
  Json json;
  json["sampler"] = study.sampler;
  json["source"] = study.source;
  json["dataset_sequences"] = study.sequences;
  json["dataset_tokens"] = study.tokens;
  json["longest_sequence"] = study.longest_sequence;
  json["epoch"] = study.epoch;
  json["sequences"] = summary.sequences;
  json["packs"] = study.packs();
  json["padding_rows"] = summary.padding_rows;
  json["tokens"] = summary.tokens;
  json["loss_tokens"] = summary.loss_tokens;
  json["entries"] = study.entries;
  json["efficiency"] = study.packing.efficiency;
  json["budget"] = study.packing.budget > 0 ? Json(study.packing.budget) : Json(nullptr);
  json["budget_unit"] = study.packing.unit;
  json["lower_bound_packs"] = study.packing.least_rows > 0 ? Json(study.packing.least_rows) : Json(nullptr);
  json["dropped"] = dropped;
  json["dropped_by_reason"] = summary.dropped;
  json["truncated"] = summary.truncated;
  json["tokens_cut"] = summary.tokens_cut;
  json["global_batch"] = study.global_batch;
  json["batches"] = summary.batches;
  json["longest_wait"] = study.waits.longest;
  json["mean_wait"] = study.waits.mean;
  json["seconds"] = study.seconds;
  json["cpu_seconds"] = study.cpu_seconds;
  Json rate(nullptr);
  if (study.learning_rate) {
    rate = {
        {"rule", study.learning_rate_rule}, {"least", study.learning_rate->least}, {"most", study.learning_rate->most}};
  }
  json["learning_rate"] = std::move(rate);
  json["rank_time_lost"] = Json::array();
  for (const RankTime& one : study.rank_times) {
    json["rank_time_lost"].push_back({{"balancer", one.balancer},
                                      {"world_size", one.world_size},
                                      {"per_step", one.lost_per_step},
                                      {"per_micro_batch", one.lost_per_micro_batch}});
  }
  return json;
}

std::string line(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string pack_json(const PackStudy& study) {
  Json json{{"schema", "pliant.pack/1"}};
  json.update(study_json(study));
  return line(json);
}

std::string pack_compare_json(const std::vector<PackCompared>& samplers) {
  Json json{{"schema", "pliant.pack_compare/1"}, {"samplers", Json::array()}};
  for (const PackCompared& one : samplers) {
    json["samplers"].push_back(one.study ? study_json(*one.study)
                                         : Json{{"sampler", one.sampler}, {"error", one.refusal}});
  }
  return line(json);
}

}  // namespace pliant::cli
