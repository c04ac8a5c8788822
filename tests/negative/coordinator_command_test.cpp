// `pliant coordinator simulate`: what it counts, times and compares, and what it refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pliant_process.hpp"
#include "svg_elements.hpp"

using namespace pliant::test;
using nlohmann::json;

namespace {

bool says(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

Outcome simulated(const ScratchFolder& folder, const std::string& coordinator, std::vector<std::string> more = {}) {
  const auto file = folder.write("pliant.toml", "config_version = 1\n" + coordinator);
  more.insert(more.begin(), {"coordinator", "simulate", file.string()});
  return run_pliant(folder, more);
}

}  // namespace

TEST_CASE("a simulation counts what a coordinator gathers, ahead or not, and what is whole at once") {
  const ScratchFolder folder;
  const std::vector<std::string> small{"--layers", "4", "--elements", "300000", "--json"};
  const Outcome eager = simulated(folder, "[coordinator]\nuse = \"eager\"\n", small);
  REQUIRE(eager.exit_code == 0);
  const json once = json::parse(eager.out);
  CHECK(once.at("schema") == "pliant.coordinator_simulate/1");
  CHECK(once.at("parameters") == 8);
  CHECK(once.at("elements") == 4 * 301024);
  REQUIRE(once.at("steps").size() == 3);
  for (const json& step : once.at("steps")) {
    CHECK(step.at("gathered") == 16);  // forward and backward
    CHECK(step.at("collectives") == 16);
    CHECK(step.at("ahead") == 0);
    CHECK(step.at("whole_at_once") ==
          2 * (300000 * 4 + 128 + 1024 * 4));  // a layer and its gradients, in pieces of 256
    CHECK(step.at("bytes") == 2 * 4 * 301024 * 4);
    CHECK(step.at("reduces") == 8);
  }
  const Outcome ahead =
      simulated(folder,
                "[coordinator]\nuse = \"zero3\"\n[coordinator.zero3]\nmax_reuse_distance = 0\nprefetch_bucket_size = "
                "400000\n",
                small);
  REQUIRE(ahead.exit_code == 0);
  const json recorded = json::parse(ahead.out).at("steps");
  CHECK(recorded[0].at("ahead") == 0);
  CHECK(recorded[2].at("ahead") > 0);
  CHECK(recorded[2].at("whole_at_once") > recorded[0].at("whole_at_once"));
}

TEST_CASE("a simulation says what gaps of the arena cost, of a coordinator that gives places") {
  const ScratchFolder folder;
  const std::string within = "[coordinator]\nuse = \"planned\"\nbudget = 40000000\n";
  const std::vector<std::string> layers{"--layers", "4", "--elements", "1000000"};
  const Outcome text = simulated(folder, within, layers);
  REQUIRE(text.exit_code == 0);
  CHECK(text.out.find("lost to gaps") != std::string::npos);
  std::vector<std::string> as_json = layers;
  as_json.emplace_back("--json");
  const Outcome made = simulated(folder, within, as_json);
  REQUIRE(made.exit_code == 0);
  const json with_places = json::parse(made.out);
  for (const json& step : with_places.at("steps")) CHECK(step.at("lost_to_gaps") < 40000000 / 20);
  const std::string without = "[coordinator]\nuse = \"zero3\"\n";
  CHECK(simulated(folder, without, layers).out.find("lost to gaps") == std::string::npos);
  const Outcome no_places = simulated(folder, without, as_json);
  REQUIRE(no_places.exit_code == 0);
  const json placeless = json::parse(no_places.out);
  for (const json& step : placeless.at("steps")) CHECK(step.at("lost_to_gaps").is_null());
}

TEST_CASE("what a pass leaves unreduced is reduced as it ends, and is not complete in the next") {
  const ScratchFolder folder;
  const std::string small_bucket =
      "[coordinator]\nuse = \"zero3\"\n[coordinator.zero3]\nreduce_bucket_size = 2000000\n";
  const Outcome made = simulated(folder, small_bucket, {"--json", "--lists"});
  REQUIRE(made.exit_code == 0);
  const json all = json::parse(made.out);
  const json& steps = all.at("steps");
  REQUIRE(steps.size() == 3);
  CHECK(steps[0].at("reduces") > 1);
  CHECK(steps[1].at("reduces") == steps[0].at("reduces"));
  CHECK(steps[2].at("reduces") == steps[0].at("reduces"));
  for (const json& call : all.at("calls")) {
    if (call.at("call") != "leave layer.7, backward") continue;
    CHECK(!says(call.at("actions").dump(), "reduce layer.0."));
  }
}

TEST_CASE("lists show every call with its actions by name") {
  const ScratchFolder folder;
  const std::vector<std::string> one{"--layers", "1", "--steps", "1", "--lists"};
  const Outcome eager = simulated(folder, "[coordinator]\nuse = \"eager\"\n", one);
  CHECK(eager.exit_code == 0);
  CHECK(says(eager.out,
             "step 1: enter layer.0: gather layer.0.weight; wait layer.0.weight; gather layer.0.bias; wait "
             "layer.0.bias\n"));
  CHECK(says(eager.out,
             "step 1: leave layer.0, backward: release layer.0.weight; release layer.0.bias; reduce "
             "layer.0.weight; reduce layer.0.bias\n"));
  CHECK(says(eager.out, "peak gathered"));
  const std::vector<std::string> many{"--layers", "8", "--elements", "1000000", "--lists"};
  const Outcome planned = simulated(folder, "[coordinator]\nuse = \"planned\"\nbudget = 40000000\n", many);
  CHECK(planned.exit_code == 0);
  CHECK(says(planned.out, "reduce lingering layer.7."));
}

TEST_CASE("a model comes from a .safetensors file, whose names say which module a parameter is of") {
  const ScratchFolder folder;
  std::string header = R"({"a.w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("a.b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                       R"("s":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const auto file = folder.write("m.safetensors", bytes + header + std::string(16, '\0'));
  const Outcome made = simulated(folder, "[coordinator]\nuse = \"eager\"\n",
                                 {"--safetensors", file.string(), "--steps", "1", "--lists"});
  CHECK(made.exit_code == 0);
  CHECK(says(made.out, "step 1: enter model: gather s; wait s\n"));
  CHECK(says(made.out, "step 1: enter a: gather a.w; wait a.w; gather a.b; wait a.b\n"));
  const Outcome missing = simulated(folder, "[coordinator]\nuse = \"eager\"\n", {"--safetensors", "none"});
  CHECK(missing.exit_code == 2);
  CHECK(says(missing.err, "--safetensors: "));
  CHECK(simulated(folder, "[coordinator]\nuse = \"eager\"\n", {"--safetensors", file.string(), "--layers", "2"})
            .exit_code == 2);
}

TEST_CASE(
    "a simulation refuses a config without a coordinator, one that wants a tier, and a budget that is too small") {
  const ScratchFolder folder;
  const Outcome none = simulated(folder, "");
  CHECK(none.exit_code == 2);
  CHECK(says(none.err, "has no [coordinator]"));
  const Outcome tier =
      simulated(folder, "[coordinator]\nuse = \"zero3\"\n[coordinator.zero3]\noffload_param_device = \"nvme\"\n");
  CHECK(tier.exit_code == 2);
  CHECK(says(tier.err, "pliant.toml:5:24: error: "));
  const Outcome tight = simulated(folder, "[coordinator]\nuse = \"eager\"\nbudget = 4096\n");
  CHECK(tight.exit_code == 2);
  CHECK(says(tight.err, "is too small: layer.0 alone uses"));
}

namespace {

json result_of(const Outcome& outcome) {
  CAPTURE(outcome.err);
  REQUIRE(outcome.exit_code == 0);
  return json::parse(outcome.out);
}

const std::string kPlanned = "[run]\nworkers = 2\non_nonfinite = \"ignore\"\n[coordinator]\nuse = \"planned\"\n";

/// What `pliant accel bench` writes, of `entries`.
std::string bench_of(int ranks, const std::string& entries) {
  return "{\"schema\": \"pliant.accel_bench/1\", \"ranks\": " + std::to_string(ranks) +
         ", \"collectives\": " + entries + "}\n";
}

std::string timed_entry(const std::string& what, int64_t bytes, double seconds) {
  return json{
      {"what", what}, {"bytes", bytes}, {"time", {{"median_s", 2 * seconds}}}, {"in_a_row", {{"median_s", seconds}}}}
      .dump();
}

bool is_near(const json& number, double wanted) {
  CAPTURE(number);
  return std::abs(number.get<double>() - wanted) <= 1e-6 * wanted;
}

}  // namespace

TEST_CASE("a simulation says how long steps take, what is computed and what is moved of it") {
  const ScratchFolder folder;
  const std::vector<std::string> costs{"--layers", "4",           "--elements", "1000000", "--latency",
                                       "0us",      "--bandwidth", "1GB/s",      "--flops", "1T",
                                       "--tokens", "1000",        "--launch",   "0us",     "--memory-bandwidth",
                                       "1e18",     "--json"};
  const json eager = result_of(
      simulated(folder, "[run]\nworkers = 2\non_nonfinite = \"ignore\"\n[coordinator]\nuse = \"eager\"\n", costs));
  const json& step = eager.at("steps")[2];
  const double elements = 4 * 1001024;
  CHECK(is_near(step.at("compute_s"), 6 * elements * 1000 / 1e12));
  // Both ranks share every layer. What does not divide, and chunks of two layers, make that two chunks more at most.
  const auto is_half = [&](const json& seconds, double times) {
    CAPTURE(seconds);
    return std::abs(seconds.get<double>() - times * elements / 2 * 4 / 1e9) <= times * 4 * 2 * 1024 * 4 / 1e9;
  };
  CHECK(is_half(step.at("gather_s"), 2));
  CHECK(is_half(step.at("reduce_s"), 1));
  // Nothing is hidden.
  CHECK(is_near(step.at("step_s"), step.at("compute_s").get<double>() + step.at("gather_s").get<double>() +
                                       step.at("reduce_s").get<double>()));
  CHECK(eager.at("workers") == 2);
  CHECK(eager.at("costs").at("gather").at("bytes_per_s") == 1e9);
  CHECK(eager.at("costs").at("flops") == 1e12);
  const json planned = result_of(simulated(folder, kPlanned, costs));
  CHECK(planned.at("steps")[2].at("step_s") < step.at("step_s"));
  CHECK(says(simulated(folder, kPlanned).out,
             "costs from flags and defaults: a collective 20 us and 25 GB/s; 100 Tflop/s, "
             "4096 tokens a pass\n"));
}

TEST_CASE("a model of 100,000 modules is simulated within a budget of a few of them") {
  const ScratchFolder folder;
  const Outcome made = simulated(folder, "[coordinator]\nuse = \"planned\"\nbudget = 2097152\n",
                                 {"--layers", "100000", "--elements", "1024", "--steps", "1", "--json"});
  CAPTURE(made.err);
  const json all = result_of(made);
  CHECK(all.at("parameters") == 200'000);
  REQUIRE(all.at("steps").size() == 1);
  CHECK(all.at("steps")[0].at("gathered") >
        390'000);  // forward and backward; what is still there is not gathered again
  CHECK(all.at("steps")[0].at("gathered") <= 400'000);
  CHECK(all.at("steps")[0].at("whole_at_once") <= 2097152);
}

TEST_CASE("coordinators are compared in one table, each with its own options") {
  const ScratchFolder folder;
  const std::string config =
      kPlanned +
      "[coordinator.zero3]\nmax_reuse_distance = 0\nprefetch_bucket_size = 0\nparam_persistence_threshold = -1\n";
  const json all = result_of(simulated(folder, config, {"--compare", "zero3,planned,eager,zero3", "--json"}));
  CHECK(all.at("schema") == "pliant.coordinator_compare/1");
  const json& runs = all.at("runs");
  REQUIRE(runs.size() == 3);
  const std::vector<std::string> names{"zero3", "planned", "eager"};
  for (size_t i = 0; i < names.size(); ++i) {
    CHECK(runs[i].at("coordinator") == names[i]);
    CHECK(runs[i].at("fits") == true);
    CHECK(runs[i].at("budget").is_null());
    CHECK_FALSE(runs[i].contains("error"));
    CHECK(runs[i].at("step").at("step_s") >= runs[i].at("step").at("compute_s"));
  }
  CHECK(runs[0].at("step").at("gathered") == 32);
  const json alone = result_of(simulated(folder, kPlanned, {"--compare", "zero3", "--json"}));
  CHECK(alone.at("runs")[0].at("step").at("gathered") == 16);  // by its defaults all stays until the step ends
  const Outcome text = simulated(folder, config, {"--compare", "zero3,planned"});
  CHECK(text.exit_code == 0);
  CHECK(says(text.out, "coordinator"));
  CHECK(says(text.out, "time / bound"));
  CHECK(simulated(folder, config, {"--compare", "zero3,none-such"}).exit_code == 3);
  CHECK(simulated(folder, config, {"--compare", "zero3,"}).exit_code == 2);
}

TEST_CASE("a curve over budgets says what is refused, which budget will do, and what one without budgets holds") {
  const ScratchFolder folder;
  const Outcome made =
      simulated(folder, kPlanned,
                {"--compare", "planned,zero3", "--budget", "4MiB,24MiB,40MiB,1GiB", "--plot", "curve.svg", "--json"});
  const json runs = result_of(made).at("runs");
  REQUIRE(runs.size() == 8);
  CHECK(runs[0].at("budget") == 4 << 20);
  CHECK(runs[0].at("fits") == false);
  CHECK(says(runs[0].at("error"), "is too small"));
  CHECK(runs[0].at("step").is_null());
  CHECK(runs[2].at("fits") == true);
  CHECK(runs[2].at("step").at("whole_at_once") <= 24 << 20);
  CHECK(runs[4].at("step").at("step_s") <= runs[2].at("step").at("step_s"));
  CHECK(runs[3].at("coordinator") == "zero3");
  CHECK(runs[3].at("keeps_budget") == false);
  CHECK(runs[3].at("fits") == false);
  CHECK(says(runs[3].at("error"), "keeps no budget below the size of the model"));
  CHECK(runs[3].at("step").at("whole_at_once") > 24 << 20);
  CHECK(runs[7].at("fits") == true);
  const std::string figure = read_all(folder.path() / "curve.svg");
  CHECK(says(figure, "<svg "));
  CHECK(says(figure, "planned"));
  CHECK(says(figure, ">time of a step</text>"));
  double top = 1e9;      // the highest tick
  double highest = 1e9;  // the slowest step
  for (const SvgElement& one : svg_elements(figure, "text")) {
    if (one.of("text-anchor") == "end") top = std::min(top, one.number("y"));
  }
  for (const SvgElement& one : svg_elements(figure, "circle")) highest = std::min(highest, one.number("cy"));
  CHECK(highest > top);
  const Outcome text = simulated(folder, kPlanned, {"--budget", "4MiB,24MiB,40MiB,1GiB"});
  CHECK(text.exit_code == 0);
  CHECK(says(text.out, "planned at 4 MiB: [coordinator] budget = 4194304 is too small"));
  CHECK(says(text.out, "is the smallest budget here whose step is within 5 % of the fastest"));
  const Outcome none = simulated(folder, kPlanned, {"--budget", "1MiB,2MiB"});
  CHECK(none.exit_code == 2);
  CHECK(says(none.err, "budget = 1048576 is too small"));
}

TEST_CASE("curves of coordinators that lie upon each other are both seen, and the legend says so") {
  const ScratchFolder folder;
  const Outcome made =
      simulated(folder, kPlanned,
                {"--compare", "eager,zero3", "--layers", "1", "--budget", "512MiB,1GiB", "--latency", "0us", "--launch",
                 "0us", "--bandwidth", "1e18", "--memory-bandwidth", "1e18", "--plot", "curve.svg"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  const std::string figure = read_all(folder.path() / "curve.svg");
  CHECK(says(figure, "on the line of eager"));
  const auto paths = svg_elements(figure, "path");
  REQUIRE(paths.size() == 2);
  CHECK(paths[0].of("d") == paths[1].of("d"));
  CHECK(paths[0].number("stroke-width") > paths[1].number("stroke-width"));
  CHECK_FALSE(paths[1].of("stroke-dasharray").empty());
  const auto circles = svg_elements(figure, "circle");
  REQUIRE(circles.size() == 4);
  CHECK(circles[2].number("r") > circles[0].number("r"));
}

TEST_CASE("the marks of a curve cover no number of an axis") {
  const ScratchFolder folder;
  const Outcome made = simulated(
      folder, kPlanned, {"--compare", "zero3,planned,eager", "--budget", "256MiB,1GiB", "--plot", "curve.svg"});
  CAPTURE(made.err);
  REQUIRE(made.exit_code == 0);
  const std::string figure = read_all(folder.path() / "curve.svg");
  double numbers_end = 0;
  double axis_end = 0;
  for (const auto& one : svg_elements(figure, "text")) {
    if (one.of("text-anchor") == "end") numbers_end = std::max(numbers_end, one.number("x"));
  }
  for (const auto& one : svg_elements(figure, "line")) axis_end = std::max(axis_end, one.number("x2"));
  const auto circles = svg_elements(figure, "circle");
  REQUIRE(circles.size() >= 4);
  for (const auto& one : circles) {
    CHECK(one.number("cx") - one.number("r") > numbers_end);
    CHECK(one.number("cx") + one.number("r") <= axis_end);
  }
}

TEST_CASE("options of a simulation that do not go together, or are no sizes, are refused") {
  const ScratchFolder folder;
  const auto refused = [&](std::vector<std::string> more, const std::string& words) {
    const Outcome outcome = simulated(folder, kPlanned, std::move(more));
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(says(outcome.err, words));
  };
  refused({"--plot", "curve.svg"}, "--plot draws time against budget");
  refused({"--plot", "curve.svg", "--budget", "1GiB"}, "give two or more");
  refused({"--plot", "curve.png", "--budget", "1GiB,2GiB"},
          "--plot: a figure is SVG: write curve.svg, not 'curve.png'");
  refused({"--layers", "0x10"}, "--layers: must be a whole number (1..1000000), not '0x10'");
  refused({"--lists", "--compare", "planned"}, "--lists shows one simulation only");
  refused({"--budget", "1XB"}, "--budget '1XB': give whole bytes with");
  refused({"--budget", "0.5"}, "--budget '0.5': give whole bytes with");
  refused({"--budget", "64"}, "--budget '64': give whole bytes with a unit");
  refused({"--budget", "1GiB,1023"}, "--budget '1023': give whole bytes with a unit");
  refused({"--latency", "5"}, "--latency '5': give a time up to 1000 s with its unit");
  refused({"--bandwidth", "0"}, "--bandwidth '0': give bytes per second with a unit, e.g. 25GB/s");
  refused({"--bandwidth", "25"}, "--bandwidth '25': give bytes per second with a unit, e.g. 25GB/s");
  refused({"--flops", "fast"}, "--flops 'fast': give a number above 0");
  refused({"--flops", "250"}, "--flops '250': give operations per second with G, T or P, e.g. 100T");
}

TEST_CASE("costs come from a benchmark of an accelerator") {
  const ScratchFolder folder;
  const auto line = [](double bytes) { return 1e-5 + bytes / 1e9; };
  const std::string gathers = timed_entry("all_gather", 1 << 12, line(1 << 12)) + "," +
                              timed_entry("all_gather", 1 << 20, line(1 << 20)) + "," +
                              timed_entry("all_gather", 1 << 26, line(1 << 26));
  const std::string reduce = timed_entry("reduce_scatter", 1 << 20, 0.001);
  folder.write("bench.json", "a word before\n" + bench_of(2, "[" + gathers + "," + reduce + "]"));
  const json costs = result_of(simulated(folder, kPlanned, {"--costs", "bench.json", "--json"})).at("costs");
  CHECK(costs.at("from") == "bench.json");
  CHECK(is_near(costs.at("gather").at("start_s"), 1e-5));
  CHECK(is_near(costs.at("gather").at("bytes_per_s"), 0.5e9));  // half of it stays on its rank
  CHECK(costs.at("reduce").at("start_s") == 0);
  CHECK(is_near(costs.at("reduce").at("bytes_per_s"), (1 << 20) / 2 / 0.001));
  const json more = result_of(simulated(folder, kPlanned, {"--costs", "bench.json", "--latency", "7us", "--json"}));
  CHECK(is_near(more.at("costs").at("gather").at("start_s"), 7e-6));
  CHECK(is_near(more.at("costs").at("gather").at("bytes_per_s"), 0.5e9));

  const auto refused = [&](const std::string& text, const std::string& words) {
    folder.write("bench.json", text);
    const Outcome outcome = simulated(folder, kPlanned, {"--costs", "bench.json"});
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(says(outcome.err, "--costs: "));
    CHECK(says(outcome.err, words));
  };
  refused("no json", "is not JSON; give a file written by `pliant accel bench NAME --json`");
  refused("[1, 2]", "is not a benchmark");
  refused("{\"schema\": \"pliant.plan/1\"}", "is \"pliant.plan/1\", not \"pliant.accel_bench/1\"");
  refused(bench_of(2, "null"), "has no time of all_gather");
  refused(bench_of(2, "[" + reduce + "]"), "has no time of all_gather");
  refused(bench_of(1, "[" + gathers + "]"), "measured with 1 rank, where nothing passes between ranks");
  refused(bench_of(2, "[{\"what\": \"all_gather\"}]"), "has an entry of \"collectives\" that cannot be read");
  CHECK(simulated(folder, kPlanned, {"--costs", "none.json"}).exit_code == 2);
}
