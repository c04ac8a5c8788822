// `pliant trace` and `pliant plan --memory TRACE`: what they say of traces that are made by hand, and what they refuse.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "pliant_process.hpp"
#include "sharded/trace/trace_file.hpp"
#include "svg_elements.hpp"
#include "unit/sharded/hand_made_trace.hpp"

using namespace pliant;
using namespace pliant::test;
using namespace pliant::sharded;
using nlohmann::json;

namespace {

bool says(const std::string& text, const std::string& words) {
  const bool is_there = text.find(words) != std::string::npos;
  if (!is_there) MESSAGE(text);
  return is_there;
}

/// Two ranks with three steps each over three layers; in the last one the third layer is late by 3.1 ms, for want of
/// room. Rank 1 dies in it.
HandMadeTrace two_ranks() {
  HandMadeTrace made({1000, 1000, 1000}, 9000);
  for (int32_t rank = 0; rank < 2; ++rank) {
    if (rank > 0) made.trace.ranks.emplace_back();
    made.rank().rank = rank;
    made.rank().worker = rank;
    made.rank().world_size = 2;
    made.step = 0;
    made.now = 0;
    for (int step = 0; step < 3; ++step) {
      const size_t begin = made.calls().size();
      made.pass({1, 2, 3});
      TracedRank& of = made.rank();
      for (size_t call = begin; call < begin + 5; ++call) of.calls[call].live_bytes = 2 * 4096;
      of.calls[begin + 2].actions = {releases(0), gathers(2, true)};
      const bool is_late = step == 2;
      const double late = is_late ? 3100 : 0;
      for (size_t call = begin + 5; call < of.calls.size(); ++call) {
        of.calls[call].began += call == begin + 5 ? 0 : late;
        of.calls[call].ended += late;
      }
      made.now += late;
      const double ended = of.calls[begin + 5].ended;
      made.gather(begin + 2, 2, of.calls[begin + 2].ended, ended, true);
      if (is_late) made.wait(begin + 5, 2, of.calls[begin + 5].began, ended);
      made.reduce(begin + 8, 2, ended + 10, ended + 20);
      if (rank == 1 && is_late) {
        of.calls.resize(begin + 9);
      } else {
        made.end_step();
      }
    }
  }
  return made;
}

std::string written(const ScratchFolder& folder, const TraceFile& trace, const std::string& name = "trace.json") {
  const std::filesystem::path file = folder.path() / name;
  REQUIRE(write_trace(trace, file));
  return file.string();
}

/// Exit code 2, and what stderr says.
std::string refusal(const ScratchFolder& folder, const std::vector<std::string>& args) {
  const Outcome made = run_pliant(folder, args);
  CHECK(made.exit_code == 2);
  CHECK(made.out.empty());
  return made.err;
}

}  // namespace

TEST_CASE("a trace is shown by ranks and steps, with the longest waits and their causes") {
  const ScratchFolder folder;
  const Outcome made = run_pliant(folder, {"trace", written(folder, two_ranks().trace)});
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  CHECK(says(made.out, "run made-by-hand, 2 ranks, 1 generation\n"));
  CHECK(says(made.out, "planned, budget 0.01 MiB\n"));
  CHECK(says(made.out, "0-1 learning"));
  CHECK(says(made.out, "2 steady"));
  CHECK(says(made.out, "2 cut off"));
  CHECK(says(made.out, "step 2, rank 0: layers.2 began 3.1 ms late: budget full until layers.0 was released\n"));
  CHECK(says(made.out, "budget full"));
  CHECK(says(made.out, "in steady steps"));
}

TEST_CASE("the JSON of a trace has every step and every wait") {
  const ScratchFolder folder;
  const std::string file = written(folder, two_ranks().trace);
  const Outcome made = run_pliant(folder, {"trace", file, "--json"});
  REQUIRE(made.exit_code == 0);
  const json all = json::parse(made.out);
  CHECK(all.at("schema") == "pliant.trace_report/1");
  CHECK(all.at("budget") == 9000);
  REQUIRE(all.at("ranks").size() == 2);
  const json& steps = all.at("ranks")[0].at("steps");
  REQUIRE(steps.size() == 3);
  CHECK(steps[1].at("kind") == "learning");
  CHECK(steps[2].at("kind") == "steady");
  CHECK(all.at("ranks")[1].at("steps")[2].at("kind") == "cut_off");
  CHECK(steps[2].at("gathered") == 4000);
  CHECK(steps[2].at("gathered_ahead") == 4000);
  CHECK(steps[2].at("least") == 12000);
  CHECK(steps[2].at("least_at_budget") >= 12000);
  CHECK(steps[2].at("peak") == 2 * 4096);
  CHECK(steps[2].at("waits") == 1);
  REQUIRE(all.at("waits").size() == 2);
  const json& wait = all.at("waits")[0];
  CHECK(wait.at("cause") == "budget_full");
  CHECK(wait.at("call") == "enter");
  CHECK(wait.at("module") == "layers.2");
  CHECK(wait.at("direction") == "forward");
  CHECK(wait.at("parameters") == json{"layers.2.weight"});
  CHECK(wait.at("waited_us").get<double>() == doctest::Approx(3101));
  CHECK(all.at("causes")[0].at("cause") == "budget_full");
  CHECK(all.at("causes")[0].at("waits") == 2);
  const json one = json::parse(run_pliant(folder, {"trace", file, "--json", "--rank", "1", "--step", "0"}).out);
  CHECK(one.at("ranks")[0].at("steps").empty());
  CHECK(one.at("ranks")[1].at("steps").size() == 1);
  CHECK(one.at("waits").empty());
}

TEST_CASE("the timeline of a step has its lanes, its budget and its waits") {
  const ScratchFolder folder;
  const std::string file = written(folder, two_ranks().trace);
  const std::string figure = (folder.path() / "step.svg").string();
  REQUIRE(run_pliant(folder, {"trace", file, "--plot", figure}).exit_code == 0);
  const std::string drawn = read_all(figure);
  CHECK(says(drawn, "<svg "));
  CHECK(says(drawn, "</svg>"));
  for (const char* const words : {"planned: step 2, rank 0 of 2", ">program<", ">exchange<", ">waits<", ">budget<",
                                  "gathered, MiB", "ms since the step began", ">prefetch<"}) {
    CHECK(says(drawn, words));
  }
  CHECK(!says(drawn, "nan"));
  REQUIRE(run_pliant(folder, {"trace", file, "--plot", figure, "--rank", "1"}).exit_code == 0);
  CHECK(says(read_all(figure), "step 1, rank 1 of 2"));  // the last whole one
  REQUIRE(run_pliant(folder, {"trace", file, "--plot", figure, "--rank", "1", "--step", "2"}).exit_code == 0);
  CHECK(says(read_all(figure), "step 2, rank 1 of 2"));
  CHECK(run_pliant(folder, {"trace", file, "--plot", "nowhere/step.svg"}).exit_code != 0);
}

TEST_CASE("the names of a timeline's colours keep apart, and a module is never called a number alone") {
  const ScratchFolder folder;
  HandMadeTrace made({10, 10, 10, 10, 10, 10, 10});
  made.call(TracedCall::Kind::kBeginPass);
  for (uint32_t module = 1; module <= 7; ++module) made.visit(module);
  for (uint32_t module = 7; module >= 1; --module) made.visit(module, Direction::kRecompute);
  for (uint32_t module = 7; module >= 1; --module) made.visit(module, Direction::kBackward);
  made.call(TracedCall::Kind::kEndPass);
  made.end_step();
  const std::string figure = (folder.path() / "step.svg").string();
  REQUIRE(run_pliant(folder, {"trace", written(folder, made.trace), "--plot", figure}).exit_code == 0);
  const std::string drawn = read_all(figure);
  std::vector<double> boxes;
  for (const SvgElement& one : svg_elements(drawn, "rect")) {
    if (one.of("width") == "10") boxes.push_back(one.number("x"));
  }
  std::vector<double> ends;
  constexpr double kWideLetter = 6.7;  // of 11 pixels
  for (const SvgElement& one : svg_elements(drawn, "text")) {
    if (one.of("font-size") == "11")
      ends.push_back(one.number("x") + kWideLetter * static_cast<double>(one.text.size()));
    if (one.of("font-size") == "10") {
      CAPTURE(one.text);
      CHECK(one.text.find_first_not_of("0123456789") != std::string::npos);
    }
  }
  REQUIRE(boxes.size() == 8);
  REQUIRE(ends.size() == 8);
  CHECK(boxes.front() >= 0);
  for (size_t i = 0; i + 1 < boxes.size(); ++i) CHECK(boxes[i + 1] - ends[i] >= 10);
  CHECK(ends.back() <= 780);
}

TEST_CASE("what is no trace, or not the one that was asked for, is refused in words") {
  const ScratchFolder folder;
  const std::string file = written(folder, two_ranks().trace);
  CHECK(says(refusal(folder, {"trace", "none.json"}), "none.json"));
  const std::string text = read_all(file);
  CHECK(
      says(refusal(folder, {"trace", folder.write("half.json", text.substr(0, text.size() / 2)).string()}), "cut off"));
  std::string later = text;
  later.replace(later.find("pliant.trace/1"), 14, "pliant.trace/9");
  CHECK(says(refusal(folder, {"trace", folder.write("later.json", later).string()}), "pliant.trace/9"));
  CHECK(says(refusal(folder, {"trace", folder.write("other.json", "{\"a\": 1}").string()}), "is not a trace"));
  CHECK(says(refusal(folder, {"trace", folder.write("words.txt", "not at all").string()}), "is not a trace"));
  TraceFile plain = two_ranks().trace;
  plain.model.reset();
  plain.coordinator.clear();
  plain.ranks.clear();
  const std::string unsharded = written(folder, plain, "plain.json");
  CHECK(says(refusal(folder, {"trace", unsharded}), "a job without sharding"));
  const std::string config =
      folder.write("replicated.toml", "config_version = 1\n").string();  // it has no [coordinator]
  CHECK(says(refusal(folder, {"coordinator", "simulate", config, "--trace", unsharded}), "a job without sharding"));
  CHECK(says(refusal(folder, {"trace", file, "--rank", "7"}), "--rank 7: "));
  CHECK(says(refusal(folder, {"trace", file, "--rank", "7"}), "has no such rank; it has 0, 1"));
  CHECK(says(refusal(folder, {"trace", file, "--step", "9"}), "has no such step; it has 0 to 2"));
  CHECK(says(refusal(folder, {"trace"}), "FILE"));
  HandMadeTrace begun({10});
  begun.call(TracedCall::Kind::kBeginPass);
  CHECK(says(refusal(folder, {"trace", written(folder, begun.trace, "begun.json"), "--plot", "x.svg"}),
             "no step of rank 0 was recorded completely"));
  CHECK(run_pliant(folder, {"trace", written(folder, begun.trace, "begun.json")}).exit_code == 0);
}

TEST_CASE("a plan of memory takes the model and its visits from a trace") {
  const ScratchFolder folder;
  const std::vector<std::string> plan{"plan",   std::string(PLIANT_SOURCE_DIR) + "/samples/sharded_trainer/pliant.toml",
                                      "--set",  "coordinator.use=planned",
                                      "--json", "--memory"};
  const auto of = [&](const TraceFile& trace, const std::string& name) {
    std::vector<std::string> args = plan;
    args.push_back(written(folder, trace, name));
    return run_pliant(folder, args);
  };
  HandMadeTrace shared({4000, 3000});
  ModelTables model;
  const ParameterId tied{add_weights(model, "tied", 4000)};
  const ParameterId between{add_weights(model, "between", 3000)};
  model.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  model.add(ModuleSpec{.name = "embed", .parent = ModuleId{0}, .own = {tied}, .external = {}});
  model.add(ModuleSpec{.name = "layer", .parent = ModuleId{0}, .own = {between}, .external = {}});
  model.add(ModuleSpec{.name = "head", .parent = ModuleId{0}, .own = {}, .external = {tied}});
  model.close();
  shared.trace.model = std::move(model);
  shared.pass({1, 2, 3});
  shared.end_step();
  const Outcome made = of(shared.trace, "tied.json");
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  const json all = json::parse(made.out);
  CHECK(all.at("elements") == 7000);
  CHECK(all.at("modules") == json{"model", "embed", "layer", "head"});
  CHECK(all.at("visits") == json{{"rank", 0}, {"step", 0}, {"micro_batches", 1}});
  CHECK(all.at("layer_order") == false);
  REQUIRE(!all.at("world_sizes").empty());
  CHECK(all.at("world_sizes")[0].at("whole_at_once") > 0);
  HandMadeTrace begun({10});
  begun.call(TracedCall::Kind::kBeginPass);
  const Outcome none = of(begun.trace, "begun.json");
  CHECK(none.exit_code == 2);
  CHECK(says(none.err, "has no completely recorded step"));
  TraceFile plain = shared.trace;
  plain.model.reset();
  plain.ranks.clear();
  const Outcome unsharded = of(plain, "plain.json");
  CHECK(unsharded.exit_code == 2);
  CHECK(says(unsharded.err, "--memory: "));
  CHECK(says(unsharded.err, "a job without sharding"));
}

TEST_CASE("a plan of memory says of every valid world size what a rank takes, and in a table how many it leaves out") {
  const ScratchFolder folder;
  HandMadeTrace made({4000, 3000});
  made.pass({1, 2});
  made.end_step();
  const auto plan = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args{"plan",     std::string(PLIANT_SOURCE_DIR) + "/samples/sharded_trainer/pliant.toml",
                                  "--memory", written(folder, made.trace),
                                  "--set",    "coordinator.use=eager"};
    for (const char* const set : {"max_train_batch_size=2000", "micro_batch_sizes=[2, 4, 6]"})
      args.insert(args.end(), {"--set", std::string("elasticity.\"v0.1\".") + set});
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = run_pliant(folder, args);
    INFO(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return outcome.out;
  };
  const json all = json::parse(plan({"--json"}));
  CHECK(all.at("world_size_count") == 32);
  REQUIRE(all.at("world_sizes").size() == 32);
  CHECK(all.at("world_sizes").back().at("world_size") == 840);
  CHECK(says(plan({}), "\n(12 of 32 valid sizes; --json has them all)\n"));
  const std::string one = plan({"--world-size", "4"});
  CHECK(one.find("valid sizes") == std::string::npos);
}

TEST_CASE("a plan of memory refuses what is about policies beside it") {
  const ScratchFolder folder;
  HandMadeTrace made({4000});
  made.pass({1});
  made.end_step();
  std::vector<std::string> plan{"plan", std::string(PLIANT_SOURCE_DIR) + "/samples/sharded_trainer/pliant.toml",
                                "--memory", written(folder, made.trace)};
  REQUIRE(run_pliant(folder, plan).exit_code == 0);
  for (const auto& [option, value] : {std::pair{"--compare", "v0.1,exact"}, std::pair{"--plot", "x.svg"}}) {
    std::vector<std::string> both = plan;
    both.insert(both.end(), {option, value});
    const std::string said = refusal(folder, both);
    CHECK(says(said, "--memory"));
    CHECK(says(said, option));
    CHECK(says(said, " cannot be combined with "));
  }
  CHECK_FALSE(std::filesystem::exists(folder.path() / "x.svg"));
}

TEST_CASE("a plan of memory by a step in one pass over several micro-batches is one in layer order") {
  const ScratchFolder folder;
  const auto planned = [&](uint32_t micro_batches, const std::vector<std::string>& more) {
    HandMadeTrace made({4000, 3000});
    made.pass({1, 2}, micro_batches);
    made.end_step();
    std::vector<std::string> args{
        "plan",         std::string(PLIANT_SOURCE_DIR) + "/samples/sharded_trainer/pliant.toml",
        "--memory",     written(folder, made.trace),
        "--set",        "coordinator.use=eager",
        "--world-size", "1"};
    args.insert(args.end(), more.begin(), more.end());
    return run_pliant(folder, args).out;
  };
  const json together = json::parse(planned(8, {"--json"}));
  CHECK(together.at("layer_order") == true);
  CHECK(together.at("visits").at("micro_batches") == 8);
  CHECK(together.at("world_sizes") == json::parse(planned(1, {"--json", "--layer-order"})).at("world_sizes"));
  const json apart = json::parse(planned(1, {"--json"}));
  CHECK(apart.at("layer_order") == false);
  CHECK(together.at("world_sizes")[0].at("whole_at_once") > apart.at("world_sizes")[0].at("whole_at_once"));
  CHECK(says(planned(8, {}), ", one pass per step\n"));
}

namespace {

/// A step of two layers on two ranks, that is played by `coordinator`.
Outcome played(const ScratchFolder& folder, const TraceFile& trace, const std::vector<std::string>& more = {},
               const std::string& coordinator = "eager") {
  std::vector<std::string> args{"coordinator",
                                "simulate",
                                std::string(PLIANT_SOURCE_DIR) + "/samples/sharded_trainer/pliant.toml",
                                "--trace",
                                written(folder, trace),
                                "--set",
                                "coordinator.use=" + coordinator,
                                "--set",
                                "run.workers=2",
                                "--json"};
  args.insert(args.end(), more.begin(), more.end());
  return run_pliant(folder, args);
}

json last_step(const Outcome& outcome) {
  INFO(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return json::parse(outcome.out).at("steps").back();
}

}  // namespace

TEST_CASE("a simulation by a trace has the time of the step, without that of an evaluation behind it") {
  const ScratchFolder folder;
  HandMadeTrace alone({4000, 3000});
  alone.pass({1, 2});
  alone.end_step();
  HandMadeTrace evaluated({4000, 3000});
  evaluated.pass({1, 2});
  evaluated.call(TracedCall::Kind::kEndStep);
  evaluated.evaluation({1, 2, 1});
  const json expected = last_step(played(folder, alone.trace));
  const json made = last_step(played(folder, evaluated.trace));
  CHECK(expected.at("compute_s").get<double>() == doctest::Approx(8e-5));  // ten microseconds behind each visit's calls
  for (const char* const key : {"step_s", "compute_s", "gather_s", "reduce_s"}) {
    CAPTURE(key);
    CHECK(made.at(key) == expected.at(key));
  }
  CHECK(made.at("gathered") > expected.at("gathered"));
}

TEST_CASE("a simulation by a trace in layer order gathers once for all micro-batches, and sends for each of them") {
  const ScratchFolder folder;
  HandMadeTrace apart({4000, 3000});
  for (int pass = 0; pass < 4; ++pass) apart.pass({1, 2});
  apart.end_step();
  HandMadeTrace together({4000, 3000});
  together.pass({1, 2}, 4);
  together.end_step();
  for (const std::string coordinator : {"eager", "planned"}) {
    CAPTURE(coordinator);
    const std::vector<std::string> same_work{"--flops", "1T"};
    const json four = last_step(played(folder, apart.trace, same_work, coordinator));
    const json one = last_step(played(folder, together.trace, same_work, coordinator));
    CHECK(one.at("reduce_s") >= four.at("reduce_s"));  // planned collects gradients of several modules in a pass
    CHECK(one.at("gather_s") <= four.at("gather_s"));
    if (coordinator != "eager") continue;
    CHECK(four.at("gathered") == 4 * one.at("gathered").get<int64_t>());
    CHECK(one.at("reduce_s").get<double>() == doctest::Approx(four.at("reduce_s").get<double>()));
    CHECK(one.at("whole_at_once") > four.at("whole_at_once"));
  }
  // Within a budget the next gradient waits for that before it, and what arrives lies behind each.
  const Outcome tight = played(folder, together.trace, {"--set", "coordinator.budget=33000"}, "planned");
  CHECK(tight.exit_code == 2);
  CHECK(says(tight.err, "in a pass over 4 micro-batches"));
  CHECK(played(folder, apart.trace, {"--set", "coordinator.budget=33000"}, "planned").exit_code == 0);
  CHECK(played(folder, together.trace, {"--set", "coordinator.budget=60000"}, "planned").exit_code == 0);
}

TEST_CASE("what a device computed beside the host is not to be seen between calls: a simulation asks for it") {
  const ScratchFolder folder;
  HandMadeTrace made({4000, 3000});
  made.pass({1, 2});
  made.end_step();
  CHECK(json::parse(played(folder, made.trace).out).at("costs").at("compute") == "recorded");
  made.trace.host_visible = false;
  const Outcome beside = played(folder, made.trace);
  CHECK(beside.exit_code == 2);
  CHECK(says(beside.err, "was recorded with a device that computes asynchronously"));
  CHECK(says(beside.err, "give the compute cost yourself: --flops RATE and --tokens N"));
  CHECK(played(folder, made.trace, {"--budget", "1MiB,2MiB"}).exit_code == 2);
  CHECK(json::parse(played(folder, made.trace, {"--flops", "1T"}).out).at("costs").at("compute") == "flops");
  CHECK(played(folder, made.trace, {"--flops", "1T", "--budget", "1MiB,2MiB"}).exit_code == 0);
  made.trace.host_visible.reset();
  const Outcome older = played(folder, made.trace);
  CHECK(older.exit_code == 2);
  CHECK(says(older.err, "is of an older version and does not say whether a device computed asynchronously"));
}

TEST_CASE("a trace whose actions name no parameter is refused in words by whoever reads it") {
  const ScratchFolder folder;
  HandMadeTrace made = two_ranks();
  std::string text = read_all(written(folder, made.trace));
  const std::string action = R"({"do":"release","parameter":"layers.0.weight"})";
  const size_t at = text.find(action);
  REQUIRE(at != std::string::npos);
  text.replace(at, action.size(), R"({"do":"release"},{"do":"release"})");
  const std::string said = refusal(folder, {"trace", folder.write("foreign.json", text).string()});
  CHECK(says(said, "its action \"release\" does not name a parameter"));
}
