// Rows of zero3_trace.jsonl: a model and what a program does, through the coordinator zero3, for head and for seed.
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "parity/parity.hpp"
#include "parity/status_classes.hpp"
#include "parity/zero3_play.hpp"

namespace pliant::parity {
namespace {

/// Which status stands for an exception of the reference: a state that a call may not meet, and a broken assertion.
bool same_exception(const Json& expected, const Json& actual) {
  static const std::map<std::string, Status> kClasses{{"RuntimeError", Status::kFailedPrecondition},
                                                      {"AssertionError", Status::kInvalidArgument}};
  const auto known = kClasses.find(expected.at("type").get<std::string>());
  return known != kClasses.end() && actual.at("status") == name_of(known->second);
}

/// The entry without what depends on the order of Python's sets where an exception ends a visit: which of its
/// parameters were waited for or registered before.
Json without_set_order(Json entry) {
  entry.erase("fl");
  Json events = Json::array();
  for (const Json& event : entry.value("ev", Json::array())) {
    if (event.at(0) != "w" && event.at(0) != "esync") events.push_back(event);
  }
  entry["ev"] = std::move(events);
  return entry;
}

/// True for an exception in the middle of a loop over a set.
bool ends_a_set(const Json& error) {
  return error.at("type") == "AssertionError" ||
         error.at("message").get<std::string>().find("already in registry") != std::string::npos;
}

/// True when `actual` has the events, the counters and the class of error of `expected`.
bool same_entry(const Json& expected, const Json& actual) {
  if (expected.contains("error") != actual.contains("error")) return false;
  const bool refused = expected.contains("error");
  if (refused && !same_exception(expected.at("error"), actual.at("error"))) return false;
  const bool unordered = refused && ends_a_set(expected.at("error"));
  const Json wanted = unordered ? without_set_order(expected) : expected;
  const Json given = unordered ? without_set_order(actual) : actual;
  for (const char* key : {"ev", "avail", "st", "k", "q", "fl"}) {
    if (wanted.value(key, Json()) != given.value(key, Json())) return false;
  }
  return true;
}

/// Options of the plugin that make what a row configures.
Json zero3_options(const Json& row, const char* version) {
  const Json& config = row.at("config");
  return {{"prefetch_bucket_size", config.at("prefetch_bucket_sz")},
          {"max_reuse_distance", config.at("max_reuse_distance")},
          {"max_live_parameters", config.at("max_available")},
          {"param_persistence_threshold", -1},
          {"version", version}};
}

/// The difference between a row's column and what the plugin does; empty: none.
std::string trace_difference(const Json& row, const char* version, Plugins& plugins) {
  Result<plugin::Instance> coordinator = plugins.make("coordinator", "zero3", zero3_options(row, version));
  if (!coordinator) return coordinator.error().message();
  const bool head = std::string(version) == "head";
  Zero3Player player(*coordinator, row, head ? Zero3Player::Version::kHead : Zero3Player::Version::kSeed);
  const Json& entries = row.at(version);
  const Json& operations = row.at("ops");
  for (size_t i = 0; i < operations.size(); ++i) {
    const std::string where = std::string(version) + ", operation " + std::to_string(i) + " " + operations[i].dump();
    if (i >= entries.size()) return where + ": the row has no entry for it";
    if (entries[i].is_null()) {
      static const std::set<std::string> kOfHead{"reset_head", "leftovers_head", "invalidate_head"};
      if (head || kOfHead.count(operations[i].at(0).get<std::string>()) == 0)
        return where + ": the row has null for it";
      continue;
    }
    const Json actual = player.play(operations[i]);
    if (!same_entry(entries[i], actual)) {
      return where + "\nexpected: " + shortened(entries[i].dump()) + "\nactual:   " + shortened(actual.dump());
    }
    if (actual.contains("error")) return i + 1 == entries.size() ? "" : where + ": the row goes on after its error";
  }
  return entries.size() == operations.size() ? "" : "the row has more entries than operations";
}

Outcome check_trace(const Json& row, Plugins& plugins, const Options& /*options*/) {
  int64_t passed = 0;
  std::string differences;
  for (const char* version : {"head", "seed"}) {
    if (row.at(version).is_null()) continue;
    std::string found;
    try {
      found = trace_difference(row, version, plugins);
    } catch (const Error& refused) {
      found = std::string(version) + ": " + refused.message();
    }
    if (found.empty()) {
      ++passed;
    } else {
      differences += (differences.empty() ? "" : "\n") + found;
    }
  }
  if (passed == 0 && differences.empty()) return Outcome::failed("the row has neither head nor seed");
  Outcome outcome = differences.empty() ? Outcome::passed() : Outcome::failed(differences);
  outcome.also_passed = differences.empty() ? passed - 1 : passed;
  return outcome;
}

}  // namespace

std::vector<RowKind> zero3_trace_rows() {
  return {{"zero3_trace",
           [](const Json& row) { return row.contains("ops") && row.contains("modules") && row.contains("head"); },
           {},
           check_trace}};
}

}  // namespace pliant::parity
