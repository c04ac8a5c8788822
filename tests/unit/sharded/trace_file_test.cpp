// TraceFile: what was written is read, and what is no such file is refused.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "scratch_folder.hpp"
#include "unit/sharded/says.hpp"
#include "unit/sharded/traces.hpp"

namespace pliant::sharded {
namespace {

using nlohmann::json;

TraceFile written_and_read(const TraceFile& trace) {
  const test::ScratchFolder folder;
  const auto written = write_trace(trace, folder / "trace.json");
  INFO((written ? std::string() : written.error().message()));
  REQUIRE(written.has_value());
  auto read = read_trace(folder / "trace.json");
  INFO((read ? std::string() : read.error().message()));
  REQUIRE(read.has_value());
  return std::move(*read);
}

/// What read_trace says of such a file.
Error refusal_of_trace(const std::string& text) {
  const test::ScratchFolder folder;
  test::write_all(folder / "trace.json", text);
  auto read = read_trace(folder / "trace.json");
  REQUIRE_FALSE(read.has_value());
  CHECK(says(read.error().message(), (folder / "trace.json").string()));
  return read.error();
}

std::string text_of_small() {
  const test::ScratchFolder folder;
  REQUIRE(write_trace(small_trace(), folder / "trace.json").has_value());
  return test::read_all(folder / "trace.json");
}

/// The small trace with one change of its JSON.
template <class Change>
Error refusal_of_changed(const Change& change) {
  json trace = json::parse(text_of_small());
  change(trace);
  return refusal_of_trace(trace.dump());
}

json& first_of(json& trace, const char* category) {
  for (json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == category) return event;
  }
  FAIL("there is no such event");
  return trace;
}

std::vector<json> events_of(const json& trace, const char* category) {
  std::vector<json> found;
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == category) found.push_back(event);
  }
  return found;
}

}  // namespace

TEST_CASE("what is written of a trace is read again, to the bit") {
  check_same(small_trace(), written_and_read(small_trace()));
  check_same(TraceFile{}, written_and_read(TraceFile{}));
  const bool held = rc::check([] {
    const TraceFile trace = random_trace(*rc::gen::arbitrary<uint64_t>());
    check_same(trace, written_and_read(trace));
  });
  CHECK(held);
}

TEST_CASE("times are kept in whole nanoseconds") {
  TraceFile trace = small_trace();
  trace.ranks[0].calls[0].began = 1.00049;
  trace.ranks[0].calls[0].ended = 2.0006;
  const TraceFile read = written_and_read(trace);
  CHECK(read.ranks[0].calls[0].began == 1.0);
  CHECK(read.ranks[0].calls[0].ended == 2.001);
}

TEST_CASE("a trace is a JSON object of the form that viewers of Chrome's traces read") {
  const json trace = json::parse(text_of_small());
  CHECK(trace.at("schema") == "pliant.trace/1");
  CHECK(trace.at("displayTimeUnit") == "ms");
  CHECK(trace.at("model").at("modules").at(1).at("name") == "layer.0");
  std::vector<std::string> processes;
  std::vector<uint64_t> threads;
  for (const json& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    CHECK((phase == "M" || phase == "X" || phase == "i" || phase == "C"));
    CHECK(event.at("pid").get<int64_t>() > 0);
    if (phase != "M") CHECK(event.at("ts").get<double>() >= 0);
    if (phase == "X") CHECK(event.at("dur").get<double>() >= 0);
    if (event.at("name") == "process_name") processes.push_back(event.at("args").at("name"));
    if (event.at("name") == "thread_name") threads.push_back(event.at("tid"));
  }
  CHECK(processes == std::vector<std::string>{"rank 0 (worker 10), generation 1", "rank 1 (worker 11), generation 1",
                                              "rank 0 (worker 30), generation 3", "rank 1 (worker 31), generation 3"});
  CHECK(threads.size() == 12);
  std::sort(threads.begin(), threads.end());
  CHECK(std::adjacent_find(threads.begin(), threads.end()) == threads.end());
  const json enter = events_of(trace, "call").at(2);
  CHECK(enter.at("name") == "enter layer.0");
  CHECK(enter.at("args").at("actions").at(2).dump() ==
        R"({"ahead":true,"do":"gather","group":2,"parameter":"layer.1.weight","place":0})");
  CHECK(events_of(trace, "release").front().at("name") == "release layer.0.weight");
  CHECK(events_of(trace, "memory").front().at("args").at("bytes") == 1024);
  CHECK(events_of(trace, "transfer").front().at("name") == "gather layer.0.weight and 1 more");
  CHECK(events_of(trace, "wait").front().at("name") == "wait for gather layer.0.weight");
}

TEST_CASE("passes and visits are spans around their calls, but where one would reach out of another") {
  using Kind = TracedCall::Kind;
  TraceFile trace = small_trace();
  trace.ranks.resize(1);
  TracedRank& rank = trace.ranks[0];
  rank.transfers.clear();
  rank.waits.clear();
  const auto calls = [](std::vector<std::pair<Kind, uint32_t>> kinds) {
    std::vector<TracedCall> made;
    for (const auto& [kind, module] : kinds) {
      const bool is_visit = kind == Kind::kEnter || kind == Kind::kLeave;
      made.push_back(traced_call(kind, 10 * static_cast<double>(made.size()),
                                 is_visit ? std::optional<uint32_t>(module) : std::nullopt));
    }
    return made;
  };
  // A pass that is given up, an evaluation in which modules are left in turn, and one in which one is entered twice.
  rank.calls = calls({{Kind::kBeginPass, 0},
                      {Kind::kEnter, 0},
                      {Kind::kBeginEvaluation, 0},
                      {Kind::kEnter, 0},
                      {Kind::kEnter, 1},
                      {Kind::kLeave, 0},
                      {Kind::kEnter, 2},
                      {Kind::kLeave, 2},
                      {Kind::kLeave, 1},
                      {Kind::kEndPass, 0},
                      {Kind::kBeginEvaluation, 0},
                      {Kind::kEnter, 1},
                      {Kind::kEnter, 1},
                      {Kind::kLeave, 1},
                      {Kind::kLeave, 1},
                      {Kind::kEndPass, 0}});
  const test::ScratchFolder folder;
  REQUIRE(write_trace(trace, folder / "trace.json").has_value());
  const json written = json::parse(test::read_all(folder / "trace.json"));
  std::vector<std::string> spans;
  for (const char* const category : {"pass", "visit"}) {
    for (const json& one : events_of(written, category))
      spans.push_back(fmt::format("{} {}+{}", one.at("name").get<std::string>(), one.at("ts").get<double>(),
                                  one.at("dur").get<double>()));
  }
  CHECK(spans == std::vector<std::string>{"evaluation 20+72.5", "evaluation 100+52.5", "layer.0 forward 40+42.5",
                                          "layer.1 forward 60+12.5", "layer.0 forward 110+32.5",
                                          "layer.0 forward 120+12.5"});
}

TEST_CASE("a trace that was rewritten by another tool is read, whatever was added to it") {
  json trace = json::parse(text_of_small());
  trace["otherData"] = {{"of", "a viewer"}};
  trace["traceEvents"].push_back({{"name", "mark"}, {"ph", "R"}, {"pid", 99}, {"ts", 1}});
  trace["traceEvents"].push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", 99}, {"args", {{"name", "x"}}}});
  const test::ScratchFolder folder;
  test::write_all(folder / "trace.json", trace.dump(2));
  const auto read = read_trace(folder / "trace.json");
  INFO((read ? std::string() : read.error().message()));
  REQUIRE(read.has_value());
  check_same(small_trace(), *read);
}

TEST_CASE("a trace that was cut off is refused wherever it was cut, with the place") {
  const std::string whole = text_of_small();
  for (size_t bytes = 1; bytes + 2 < whole.size(); bytes += 1 + bytes / 50) {
    const Error error = refusal_of_trace(whole.substr(0, bytes));
    CHECK(error.status() == Status::kDataLoss);
    CHECK(says(error.message(), fmt::format("is cut off after {} bytes", bytes)));
  }
  CHECK(says(refusal_of_trace("").message(), "it is empty"));
}

TEST_CASE("what is not a trace is refused, and what is one of another version by that version") {
  CHECK(says(refusal_of_trace("model weights\n").message(), "line 1 (byte 1) is not JSON"));
  CHECK(says(refusal_of_trace("{\"schema\":\"pliant.trace/1\",\n\"run\":oops}").message(), "line 2 (byte "));
  CHECK(says(refusal_of_trace("[1, 2]").message(), "it does not begin with \"schema\""));
  CHECK(says(refusal_of_trace("{\"traceEvents\":[]}").message(), "it does not begin with \"schema\""));
  CHECK(says(refusal_of_trace("{\"schema\":\"pliant.run/1\",\"steps\":3}").message(),
             "\"schema\" is not pliant.trace/1"));
  CHECK(says(refusal_of_trace("{\"schema\":\"pliant.trace/1\"}").message(), "it has no \"traceEvents\""));
  CHECK(says(refusal_of_trace(std::string(100000, '[')).message(), "it nests too deeply"));
  const Error newer = refusal_of_trace("{\"schema\":\"pliant.trace/2\",\"traceEvents\":[]}");
  CHECK(newer.status() == Status::kUnimplemented);
  CHECK(says(newer.message(), "pliant.trace/2"));
  CHECK(newer.origin() == Origin::kInput);
  const test::ScratchFolder folder;
  CHECK(read_trace(folder / "none.json").error().status() == Status::kNotFound);
}

TEST_CASE("a trace whose parts do not belong together is refused by the part") {
  const auto says_of = [](const auto& change, const std::string& words) {
    const Error error = refusal_of_changed(change);
    CHECK(error.status() == Status::kDataLoss);
    CHECK(says(error.message(), words));
  };
  says_of([](json& trace) { trace.erase("run"); }, "'run'");
  says_of([](json& trace) { trace["compute_dtype"] = "f64"; }, "neither \"f32\" nor \"bf16\"");
  says_of([](json& trace) { trace["budget"] = -1; }, "not whole or is too large");
  says_of([](json& trace) { trace["model"]["modules"][1]["parent"] = 7; }, "no module 7");
  says_of([](json& trace) { trace["model"]["parameters"][1]["name"] = "layer.0.weight"; }, "two parameters");
  says_of([](json& trace) { trace["model"]["parameters"][0]["shape"] = {-1}; }, "dimension of -1");
  says_of([](json& trace) { trace["model"]["modules"] = json::array(); }, "no modules");
  says_of([](json& trace) { first_of(trace, "call")["pid"] = 50; }, "process 50 was not named");
  says_of([](json& trace) { first_of(trace, "call").erase("ts"); }, "event 10 of \"traceEvents\": ");
  says_of([](json& trace) { first_of(trace, "call")["ts"] = 1e300; }, "its times are not valid");
  says_of([](json& trace) { first_of(trace, "call")["args"]["call"] = "jump"; }, "\"jump\" is unknown");
  says_of([](json& trace) { first_of(trace, "call")["args"]["call"] = "enter"; },
          "it does not name a module of the model");
  says_of([](json& trace) { first_of(trace, "call")["args"]["module"] = 40; },
          "it does not name a module of the model");
  says_of([](json& trace) { first_of(trace, "wait")["args"]["parameter"] = "head"; }, "no parameter \"head\"");
  says_of([](json& trace) { first_of(trace, "wait")["args"]["call"] = 7; }, "calls that it did not make");
  says_of([](json& trace) { first_of(trace, "transfer")["args"]["call"] = 7; }, "calls that it did not make");
  says_of([](json& trace) { trace["traceEvents"][0]["args"]["rank"] = uint64_t{1} << 40U; }, "too large");
  says_of([](json& trace) { first_of(trace, "call")["args"]["micro_batches"] = 0; }, "over 0 micro-batches");
  says_of([](json& trace) { first_of(trace, "call")["args"]["micro_batches"] = uint32_t{1} << 21U; }, "micro-batches");
  says_of([](json& trace) { trace["host_visible"] = "yes"; }, "must be boolean");
}

TEST_CASE("an action that moves a parameter, and names none, is refused") {
  for (const char* const word : {"gather", "wait", "release", "reduce", "load", "store"}) {
    CAPTURE(word);
    for (const bool is_last : {false, true}) {
      const Error error = refusal_of_changed([&](json& trace) {
        json action{{"do", word}};
        json& actions = first_of(trace, "call")["args"]["actions"];
        if (is_last) actions.push_back({{"do", word}, {"parameter", "layer.0.weight"}});
        actions.push_back(action);
      });
      CHECK(says(error.message(),
                 fmt::format("event 10 of \"traceEvents\": its action \"{}\" does not name a parameter", word)));
    }
  }
  const Error by_number = refusal_of_changed([](json& trace) {
    first_of(trace, "call")["args"]["actions"].push_back({{"do", 3}});
  });
  CHECK(says(by_number.message(), "its action 3 does not name a parameter"));
}

TEST_CASE("a model that comes behind the events, or twice, is refused: they are of the one before them") {
  const std::string whole = text_of_small();
  const size_t at = whole.find("\"model\":");
  const size_t end = whole.find(",\"traceEvents\"");
  REQUIRE(at < end);
  REQUIRE(end < whole.size());
  const std::string small =
      "\"model\":{\"parameters\":[{\"name\":\"a\",\"shape\":[1],\"frozen\":false,"
      "\"persistent\":false,\"external\":false}],\"modules\":[{\"name\":\"m\",\"parent\":null,"
      "\"own\":[0],\"external\":[],\"leaf\":false}]}";
  std::string behind = whole;
  behind.insert(behind.rfind('}'), "," + small);
  CHECK(says(refusal_of_trace(behind).message(), "its \"model\" comes after its events, or twice"));
  std::string twice = whole;
  twice.insert(end, "," + small);
  CHECK(says(refusal_of_trace(twice).message(), "its \"model\" comes after its events, or twice"));
}

TEST_CASE("a trace of an older version is read: its passes are over one micro-batch, and its device is not known") {
  json trace = json::parse(text_of_small());
  trace.erase("host_visible");
  first_of(trace, "call")["args"].erase("micro_batches");
  const test::ScratchFolder folder;
  test::write_all(folder / "trace.json", trace.dump());
  const auto read = read_trace(folder / "trace.json");
  REQUIRE(read.has_value());
  CHECK_FALSE(read->host_visible.has_value());
  CHECK(read->ranks[0].calls[0].micro_batches == 1);
  CHECK(read->ranks[1].calls[0].micro_batches == 3);
}

TEST_CASE("a file that cannot be written is told, and an old one stays as it was") {
  const test::ScratchFolder folder;
  CHECK(write_trace(small_trace(), folder / "no" / "trace.json").error().status() == Status::kNotFound);
  CHECK(write_trace(small_trace(), folder.path()).error().status() == Status::kFailedPrecondition);
  CHECK(folder.names().empty());
}

TEST_CASE("a model of thirty thousand modules, and as many calls, are written and read") {
  TraceFile trace;
  trace.model = traced_model(30000);
  TracedRank rank;
  rank.calls.push_back(traced_call(TracedCall::Kind::kBeginPass, 0));
  // All are entered, and then left in the same order, as hooks may have it.
  for (const auto kind : {TracedCall::Kind::kEnter, TracedCall::Kind::kLeave}) {
    for (uint32_t module = 0; module < 30000; ++module)
      rank.calls.push_back(traced_call(kind, 1, module, Direction::kBackward));
  }
  trace.ranks.push_back(std::move(rank));
  const TraceFile read = written_and_read(trace);
  CHECK(read.model->modules().size() == trace.model->modules().size());
  CHECK(read.ranks.front().calls.size() == trace.ranks.front().calls.size());
}

}  // namespace pliant::sharded
