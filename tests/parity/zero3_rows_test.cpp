// The runner sees every difference of a row of zero3_trace: events, counters, and the class of an error.
#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "parity/run.hpp"
#include "scratch_folder.hpp"

namespace {

using pliant::parity::Json;

/// Two visits of one module with one parameter.
Json trace_row() {
  return Json::parse(R"({"id": "t", "cat": "plain", "root": 0,
    "config": {"prefetch_bucket_sz": 0, "max_reuse_distance": 0, "max_available": 10, "event_query": true},
    "params": [{"id": 4, "numel": 5}], "modules": [{"id": 0, "params": [4]}],
    "ops": [["reset_head"], ["pre", 0, 1], ["post", 0, 1], ["reset"]],
    "head": [{"avail": 0, "st": "R", "k": 0, "q": 0},
             {"ev": [["fetch", [4]], ["w", [4]]], "avail": 5, "st": "R", "k": 1, "q": 0},
             {"ev": [["rel", [4]]], "avail": 0, "st": "R", "k": 1, "q": 0},
             {"avail": 0, "st": "C", "k": 0, "q": 1}],
    "seed": [null,
             {"ev": [["fetch", [4]], ["w", [4]]], "avail": 5, "st": "R", "k": 1, "q": null},
             {"ev": [["rel", [4]]], "avail": 0, "st": "R", "k": 1, "q": null},
             {"avail": 0, "st": "C", "k": 0, "q": 1}]})");
}

std::string last_of(const Json& row) {
  const pliant::test::ScratchFolder folder;
  std::ostringstream out;
  pliant::parity::Run run({}, PLIANT_PLUGIN_DIR, out);
  run.file(folder.write("rows.jsonl", row.dump() + "\n"));
  run.summary();
  const std::string text = out.str();
  return text.substr(text.rfind('\n', text.size() - 2) + 1, text.size() - 2 - text.rfind('\n', text.size() - 2));
}

constexpr const char* kBoth = "2 passed, 0 failed, 0 skipped";
constexpr const char* kOneDiffers = "1 passed, 1 failed, 0 skipped";

}  // namespace

TEST_CASE("a trace row counts once for head and once for seed") {
  CHECK(last_of(trace_row()) == kBoth);
  Json leaf = trace_row();
  leaf["seed"] = nullptr;
  CHECK(last_of(leaf) == "1 passed, 0 failed, 0 skipped");
}

TEST_CASE("a run fails when another number of rows passes than was said") {
  const pliant::test::ScratchFolder folder;
  const std::filesystem::path file = folder.write("rows.jsonl", trace_row().dump() + "\n");
  for (const int64_t passed : {1, 2, 3}) {
    std::ostringstream out;
    pliant::parity::RunOptions options;
    options.passed = passed;
    pliant::parity::Run run(options, PLIANT_PLUGIN_DIR, out);
    run.file(file);
    run.summary();
    CHECK(run.ok() == (passed == 2));
    CHECK((out.str().find("were to pass") == std::string::npos) == run.ok());
  }
}

TEST_CASE("a trace row fails by any counter, any event and any missing entry") {
  for (const char* pointer : {"/head/1/avail", "/head/1/k", "/head/3/q", "/seed/1/avail"}) {
    CAPTURE(pointer);
    Json row = trace_row();
    Json& number = row[Json::json_pointer(pointer)];
    number = number.get<int64_t>() + 1;
    CHECK(last_of(row) == kOneDiffers);
  }
  Json state = trace_row();
  state["head"][1]["st"] = "C";
  CHECK(last_of(state) == kOneDiffers);
  Json event = trace_row();
  event["head"][1]["ev"][0][0] = "prefetch";
  CHECK(last_of(event) == kOneDiffers);
  Json in_flight = trace_row();
  in_flight["seed"][1]["fl"] = {4};
  CHECK(last_of(in_flight) == kOneDiffers);
  Json missing = trace_row();
  missing["head"].erase(3);
  CHECK(last_of(missing) == kOneDiffers);
  Json hidden = trace_row();
  hidden["head"][1] = nullptr;
  CHECK(last_of(hidden) == kOneDiffers);
}

TEST_CASE("a trace row fails when one side refuses and the other does not, and when the classes differ") {
  Json refused = trace_row();
  refused["head"] = {refused["head"][0],
                     {{"ev", refused["head"][1]["ev"]},
                      {"avail", 5},
                      {"st", "R"},
                      {"k", 1},
                      {"q", 0},
                      {"error", {{"type", "RuntimeError"}, {"message", "m"}}}}};
  CHECK(last_of(refused) == kOneDiffers);
  Json empty = trace_row();
  empty["params"][0]["numel"] = 0;
  empty["seed"] = nullptr;
  empty["head"] = {
      empty["head"][0],
      {{"avail", 0}, {"st", "R"}, {"k", 0}, {"q", 0}, {"error", {{"type", "AssertionError"}, {"message", "P4"}}}}};
  CHECK(last_of(empty) == "1 passed, 0 failed, 0 skipped");
  empty["head"][1]["error"]["type"] = "RuntimeError";
  CHECK(last_of(empty) == "0 passed, 1 failed, 0 skipped");
}
