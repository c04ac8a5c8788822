// `pliant coordinator simulate`: what it counts, and what it refuses.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pliant_process.hpp"

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
  CHECK(says(eager.out, "whole at once"));
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
  CHECK(simulated(folder, "[coordinator]\nuse = \"eager\"\n", {"--safetensors", "none"}).exit_code != 0);
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
