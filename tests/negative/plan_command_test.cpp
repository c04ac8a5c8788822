// pliant plan: what it says of a size that is not valid, of several policies, of nodes, and of a huge range.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "negative/pliant_process.hpp"
#include "negative/svg_elements.hpp"

namespace {

using nlohmann::json;
using pliant::test::Outcome;
using pliant::test::read_all;
using pliant::test::run_pliant;
using pliant::test::ScratchFolder;
using pliant::test::svg_elements;
using pliant::test::SvgElement;

struct PlanFolder : ScratchFolder {
  /// Writes pliant.toml with `options` for `policy`.
  void write(const std::string& policy, const std::string& options, const std::string& more = "") const {
    std::ofstream(*this / "pliant.toml") << "config_version = 1\n[elasticity]\nuse = \"" << policy
                                         << "\"\n[elasticity.\"" << policy << "\"]\n"
                                         << options << more;
  }
  [[nodiscard]] Outcome plan(std::vector<std::string> arguments,
                             const std::vector<std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), {"plan", "pliant.toml"});
    return run_pliant(*this, arguments, environment);
  }
  [[nodiscard]] json plan_json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const Outcome outcome = plan(std::move(arguments));
    CAPTURE(outcome.err);
    REQUIRE(outcome.exit_code == 0);
    return json::parse(outcome.out);
  }
};

const std::string kOptions = "max_train_batch_size = 2000\nmicro_batch_sizes = [2, 4, 6]\n";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a size that is not valid ends with 2, the nearest and what would make it valid") {
  const PlanFolder folder;
  folder.write("v0.1", kOptions);
  const Outcome outcome = folder.plan({"--world-size", "9"});
  CHECK(outcome.exit_code == 2);
  CHECK(outcome.out.empty());
  CHECK(has(outcome.err, "world size 9 is not valid for global batch 1680; nearest valid: 8, 10\n"));
  CHECK(has(outcome.err,
            "\n  help: --set 'elasticity.use=\"exact\"' --set 'elasticity.exact.max_train_batch_size=2000' --set "
            "'elasticity.exact.micro_batch_sizes=[2, 4, 6]' makes it valid: global batch "));
}

TEST_CASE("a plan says that it is not for the workers that a run would start, where they have no place in it") {
  const PlanFolder folder;
  folder.write("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [1, 2, 3]\n");
  const std::string line =
      "pliant: warning: run.workers: world size 5 is not valid for global batch 12; this is the plan for world size "
      "4\n";
  const Outcome five = folder.plan({"--set", "run.workers=5"});
  CHECK(five.exit_code == 0);
  CHECK(five.err == line);
  CHECK(has(five.out, "at world size 4,"));
  CHECK(folder.plan_json({"--set", "run.workers=5"})["warnings"][0] == line.substr(17, line.size() - 18));
  CHECK(folder.plan({"--set", "run.workers=5", "-q"}).err.empty());
  CHECK(folder.plan({"--set", "run.workers=6"}).err.empty());
  CHECK(folder.plan({"--set", "run.workers=5", "--world-size", "3"}).err.empty());
  CHECK(folder.plan({}).err.empty());
  folder.write("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [3]\nmin_gpus = 2\n");  // not even fewer
  CHECK(has(folder.plan({"--set", "run.workers=1"}).err, "; this is the plan for world size 4\n"));
}

TEST_CASE("a model file that is not there ends with 2, as every input that is missing") {
  const PlanFolder folder;
  folder.write("v0.1", kOptions, "[coordinator]\nuse = \"planned\"\n");
  const Outcome outcome = folder.plan({"--memory", "nothing"});
  CAPTURE(outcome.err);
  CHECK(outcome.exit_code == 2);
  CHECK(has(outcome.err, "pliant: error: --memory: "));
  CHECK(has(outcome.err, "nothing"));
}

TEST_CASE("for the config that a run has written only changes are advised that keep the run's batch") {
  const PlanFolder folder;
  const auto plan_of_run = [&folder](const std::string& world_size) {
    std::filesystem::copy_file(folder / "pliant.toml", folder / "config.toml",
                               std::filesystem::copy_options::overwrite_existing);
    const Outcome outcome = run_pliant(folder, {"plan", "config.toml", "--world-size", world_size});
    CHECK(outcome.exit_code == 2);
    return outcome.err;
  };
  const auto write_facts = [&folder](int64_t global_batch, int64_t granule) {
    std::ofstream(folder / "job.json") << json{{"schema", "pliant.job/1"},
                                               {"run_id", "1"},
                                               {"name", "toy"},
                                               {"global_batch", global_batch},
                                               {"granule", granule}};
  };
  folder.write("v0.1", kOptions);
  CHECK(has(plan_of_run("9"), " makes it valid: global batch "));
  write_facts(1680, 2);
  const std::string none_keeps_it = plan_of_run("9");
  CHECK(has(none_keeps_it, "world size 9 is not valid for global batch 1680; nearest valid: 8, 10\n"));
  CHECK_FALSE(has(none_keeps_it, "help:"));
  CHECK(has(folder.plan({"--world-size", "9"}).err, " makes it valid: global batch "));  // pliant.toml is no run's
  folder.write("v0.1", "max_train_batch_size = 12\nmicro_batch_sizes = [1, 2, 3]\nmax_gpus = 4\n[run]\nworkers = 6\n");
  write_facts(12, 1);
  const std::string kept =
      "\n  help: --set 'elasticity.\"v0.1\".max_gpus=6' makes it valid and keeps the job's batch: global batch 12, ";
  CHECK(has(plan_of_run("6"), kept));
  CHECK(has(run_pliant(folder, {"config", "check", "config.toml"}).err, kept));
  std::ofstream(folder / "job.json") << "damaged";
  CHECK(has(plan_of_run("6"), " makes it valid: global batch 12, "));
}

TEST_CASE(
    "a coordinator that needs a tier below the device is refused as the job is planned, where its option stands") {
  const PlanFolder folder;
  folder.write("v0.1", kOptions,
               "[coordinator]\nuse = \"zero3\"\n[coordinator.zero3]\noffload_param_device = \"nvme\"\n");
  const std::vector<std::vector<std::string>> commands{
      {"plan", "pliant.toml"}, {"config", "check", "pliant.toml"}, {"run", "pliant.toml", "--", "/bin/true"}};
  for (const std::vector<std::string>& command : commands) {
    CAPTURE(command.front());
    const Outcome outcome = run_pliant(folder, command);
    CAPTURE(outcome.err);
    CHECK(outcome.exit_code == 2);
    CHECK(outcome.out.empty());
    CHECK(has(outcome.err, "pliant.toml:10:24: error: coordinator 'zero3': offload_param_device = \"nvme\" needs"));
  }
  CHECK(folder.plan({"--set", "coordinator.zero3.offload_param_device=\"none\""}).exit_code == 0);
}

TEST_CASE("sizes that are not valid are named as ranges, efficiency and rate stand in the table") {
  const PlanFolder folder;
  folder.write("v0.1", kOptions, "[lr]\nuse = \"linear\"\nbase_lr = 0.001\nbase_batch = 840\nunit = \"rows\"\n");
  const Outcome outcome = folder.plan({});
  CHECK(outcome.exit_code == 0);
  CHECK(has(outcome.out, "valid world sizes     32 of the 840 from 1 to 840\n"));
  CHECK(has(outcome.out, "unusable              9, 11, 13, 16-19, "));
  CHECK(has(outcome.out, "learning rate         0.002; rule \"linear\", 0.001 at 840 rows\n"));
  const json plan = folder.plan_json({"--world-size", "7"});
  CHECK(plan["learning_rate"] == 0.002);
  CHECK(plan["unusable_count"] == 808);
  CHECK(plan["unusable_ranges"][3] == json{16, 19});
  CHECK(plan["by_world_size"].size() == 32);
  CHECK(plan["elasticity"]["options"]["max_gpus"] == 10000);
}

TEST_CASE("the block that plan prints is one that a scheduler may hand over") {
  const PlanFolder folder;
  folder.write("exact", kOptions + "max_gpus = 64\n");
  const json plan = folder.plan_json({});
  const std::string block = plan["elasticity"].dump();
  CHECK(folder.plan({}, {"PLIANT_ELASTICITY_CONFIG=" + block}).exit_code == 0);
  const Outcome other = folder.plan({"--set", "elasticity.exact.max_gpus=32"}, {"PLIANT_ELASTICITY_CONFIG=" + block});
  CHECK(other.exit_code == 2);
  CHECK(has(other.err, "max_gpus is 64 for the scheduler (PLIANT_ELASTICITY_CONFIG) but 32 for this job"));
}

TEST_CASE("nodes become ranks, and ranks, devices and nodes stay apart") {
  const PlanFolder folder;
  folder.write("exact",
               kOptions + "num_gpus_per_node = 8\nmodel_parallel_size = 4\nwhole_nodes = true\nmax_gpus = 64\n");
  const json plan = folder.plan_json({"--nodes", "3"});
  CHECK(plan["world_size"] == 6);
  CHECK(plan["devices"] == 24);
  CHECK(plan["nodes"] == 3);
  CHECK(plan["world_size_ranges"] == json{{2, 16, 2}});
  CHECK(plan["unusable_count"] == 7);
  CHECK(has(folder.plan({}).out, "\nnodes  devices  world size  micro-batch  per step"));
  CHECK(folder.plan({"--nodes", "3", "--world-size", "6"}).exit_code == 2);
  const Outcome seven = folder.plan({"--world-size", "7"});
  CHECK(seven.exit_code == 2);
  CHECK(has(seven.err, "world size 7 is not valid"));
}

TEST_CASE("policies are compared over the same cluster sizes, and drawn") {
  const PlanFolder folder;
  folder.write("v0.1", kOptions + "max_gpus = 256\n");
  const json compared = folder.plan_json({"--compare", "v0.1,v0.2,exact", "--world-size", "11"});
  CHECK(compared["schema"] == "pliant.plan_compare/1");
  CHECK(compared["cluster_sizes"] == json{1, 256});
  REQUIRE(compared["policies"].size() == 3);
  CHECK(compared["policies"][0]["at_world_size"].is_null());
  CHECK(compared["policies"][0]["efficiency_of_cluster"] == doctest::Approx(10.0 / 11.0));
  CHECK(has(compared["policies"][1]["remark"], "another global batch, 1980 rows"));
  CHECK(compared["policies"][2]["at_world_size"]["world_size"] == 11);
  CHECK(compared["policies"][2]["mean_efficiency"] > compared["policies"][0]["mean_efficiency"]);
  CHECK(folder.plan({"--compare", "v0.1,exact", "--plot", "figure.svg"}).exit_code == 0);
  const std::string figure = read_all(folder / "figure.svg");
  CHECK(has(figure, "<svg xmlns="));
  CHECK(has(figure, ">exact</tspan>"));
  CHECK(has(figure, ">axis begins at "));
  CHECK(folder.plan({"--plot", "missing/figure.svg"}).exit_code == 2);
}

TEST_CASE("efficiency is drawn in steps, one for each cluster size, and equal policies are both seen") {
  const PlanFolder folder;
  folder.write("v0.1", "max_train_batch_size = 2\nmicro_batch_sizes = [1]\n");
  REQUIRE(folder.plan({"--compare", "v0.1,exact", "--plot", "figure.svg"}).exit_code == 0);
  const std::string figure = read_all(folder / "figure.svg");
  CHECK(has(figure, ", equal to v0.1"));
  const auto paths = svg_elements(figure, "path");
  REQUIRE(paths.size() == 2);
  CHECK(paths[0].of("d") == paths[1].of("d"));
  CHECK(paths[0].of("d").find('L') == std::string::npos);
  CHECK(paths[0].number("stroke-width") > paths[1].number("stroke-width"));
  CHECK(paths[0].of("stroke-dasharray").empty());
  CHECK_FALSE(paths[1].of("stroke-dasharray").empty());
  std::vector<std::string> sizes;
  for (const SvgElement& one : svg_elements(figure, "text")) {
    if (one.of("text-anchor") == "middle" && one.text.size() <= 2) sizes.push_back(one.text);
  }
  CHECK(sizes == std::vector<std::string>{"1", "2"});
}

TEST_CASE("of three equal policies each is seen for a third of the way") {
  const PlanFolder folder;
  folder.write("v0.1", "max_train_batch_size = 2\nmicro_batch_sizes = [1]\n");
  REQUIRE(folder.plan({"--compare", "v0.1,v0.2,exact", "--plot", "figure.svg"}).exit_code == 0);
  const auto paths = svg_elements(read_all(folder / "figure.svg"), "path");
  REQUIRE(paths.size() == 3);
  CHECK(paths[1].of("d") == paths[0].of("d"));
  CHECK(paths[2].of("d") == paths[0].of("d"));
  CHECK(paths[0].of("stroke-dasharray").empty());
  CHECK(paths[1].of("stroke-dasharray") == "14 7");  // leaves a third of the first
  CHECK(paths[2].of("stroke-dasharray") == "7 14");  // and of the second
  CHECK(paths[2].number("stroke-width") >= 2);
}

TEST_CASE("a policy that refuses the options has its reason in the table") {
  const PlanFolder folder;
  folder.write("v0.2", kOptions + "model_parallel_size = 2\nnum_gpus_per_node = 4\n");
  const Outcome outcome = folder.plan({"--compare", "v0.1,exact", "--world-size", "2"});
  CHECK(outcome.exit_code == 0);
  CHECK(has(outcome.out, "\nv0.1               -  "));
  CHECK(has(outcome.out, "model_parallel_size"));
  CHECK(folder.plan({"--compare", "v0.1,,exact"}).exit_code == 2);
  CHECK(folder.plan({"--compare", "v0.1,exakt"}).exit_code == 3);
}

TEST_CASE("a range of 100,000 sizes is summarised") {
  const PlanFolder folder;
  folder.write("exact", "max_train_batch_size = 100000\nmicro_batch_sizes = [1]\nmax_gpus = 100000\n");
  const Outcome text = folder.plan({});
  CHECK(text.exit_code == 0);
  CHECK(std::count(text.out.begin(), text.out.end(), '\n') < 30);
  CHECK(has(text.out, "valid world sizes     "));
  CHECK(folder.plan({"--json"}).out.size() < 300'000);
}

TEST_CASE("numbers that no plan can have are refused with their position") {
  const PlanFolder folder;
  for (const char* cap : {"0", "-1", "nan", "inf", "2.5", "9223372036854775808", "\"2000\"", "[]"}) {
    CAPTURE(cap);
    folder.write("exact", std::string("max_train_batch_size = ") + cap + "\nmicro_batch_sizes = [2]\n");
    const Outcome outcome = folder.plan({});
    CHECK(outcome.exit_code == 2);
    CHECK(has(outcome.err, "pliant.toml:5:"));
  }
  for (const char* sizes : {"[]", "[0]", "[-2]", "[2.5]", "[nan]", "2", "[2, \"4\"]"}) {
    CAPTURE(sizes);
    folder.write("v0.1", std::string("max_train_batch_size = 100\nmicro_batch_sizes = ") + sizes + "\n");
    const Outcome outcome = folder.plan({});
    CHECK(outcome.exit_code == 2);
    CHECK(has(outcome.err, "pliant.toml:6:"));
  }
}

TEST_CASE("WORLD_SIZE is read as digits of any script, and as nothing else") {
  const PlanFolder folder;
  folder.write("v0.2", kOptions);
  for (const char* text : {"4", "04", "\u0664"}) {
    CHECK(folder.plan({}, {std::string("WORLD_SIZE=") + text}).exit_code == 0);
  }
  for (const char* text : {" 4", "-4", "+4", "4.0", "", "\u00b2", "4 ", "0x4"}) {
    CAPTURE(text);
    const Outcome outcome = folder.plan({}, {std::string("WORLD_SIZE=") + text});
    CHECK(outcome.exit_code == 2);
    CHECK(has(outcome.err, "WORLD_SIZE"));
  }
}
