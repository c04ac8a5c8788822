// A benchmark as JSON. docs/reference/accel-json.md documents the keys.
#include <nlohmann/json.hpp>

#include "accel/bench.hpp"
#include "collectives/collectives_of.hpp"

namespace pliant::cli {

namespace {

using Json = nlohmann::ordered_json;

Json spread_json(const std::optional<Spread>& spread) {
  if (!spread) return nullptr;
  return {{"median_s", spread->median_s},
          {"low_s", spread->low_s},
          {"high_s", spread->high_s},
          {"repetitions", spread->repetitions}};
}

Json measured_json(const Measured& one) {
  Json json;
  json["what"] = one.what;
  json["bytes"] = one.bytes > 0 ? Json(one.bytes) : Json(nullptr);
  json["time"] = spread_json(one.time);
  json["bytes_per_s"] = one.moved > 0 ? Json(static_cast<double>(one.moved) / one.time.median_s) : Json(nullptr);
  if (one.section == "overlap") {
    json["gather"] = spread_json(one.gather);
    json["compute"] = spread_json(one.compute);
    json["hidden"] = one.hidden();
  }
  if (one.section != "collectives") return json;
  json["in_a_row"] = spread_json(one.in_a_row);
  json["limit_bytes"] = one.limit ? Json(one.limit_bytes) : Json(nullptr);
  json["limit"] = spread_json(one.limit);
  json["part_of_limit"] = one.limit ? Json(one.limit->median_s / one.time.median_s) : Json(nullptr);
  return json;
}

}  // namespace

std::string bench_json(const BenchStudy& study) {
  Json json;
  json["schema"] = "pliant.accel_bench/1";
  json["accelerator"] = study.accelerator;
  json["version"] = study.version;
  json["device"] = study.device;
  json["devices"] = study.devices;
  json["device_name"] = study.seen.name;
  json["memory_bytes"] = study.seen.memory_bytes;
  json["ranks"] = study.ranks;
  json["limit_by"] = study.seen.host_visible ? "memcpy" : "device_copy";
  json["collectives_by"] = study.seen.native_collectives ? Json(study.accelerator)
                           : study.seen.collectives      ? Json(collectives::CollectivesOf::kCarrier)
                                                         : Json(nullptr);
  json["calls_in_a_row"] = kCallsInARow;
  for (const std::string& section : study.sections) {
    const bool absent = is_together(section) && !study.seen.collectives;
    json[section] = absent ? Json(nullptr) : Json::array();
  }
  for (const Measured& one : study.measured) json[one.section].push_back(measured_json(one));
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace pliant::cli
