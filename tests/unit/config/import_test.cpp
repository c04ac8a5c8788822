// import_deepspeed: what is refused, what is carried, and the account of the rest.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "pliant/import.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/plan.hpp"
#include "unit/config/config_file.hpp"

using namespace pliant;
using test::contains;

namespace {

std::string refusal(const std::string& json) {
  try {
    static_cast<void>(import_deepspeed(json, "ds.json"));
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    return error.message();
  }
  return {};
}

/// An enabled block of rule 0.1 with `more` in it.
std::string block(const std::string& more = {}) {
  return R"("elasticity": {"enabled": true, "version": 0.1, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6])" +
         (more.empty() ? std::string{} : ", " + more) + "}";
}

std::string dynamic(const std::string& more) {
  return R"("data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": true, "max_tokens": 100)" + more +
         "}}}";
}

std::string reason(const ImportedConfig& imported, const std::string& key) {
  for (const auto& [left, why] : imported.not_carried) {
    if (left == key) return why;
  }
  return {};
}

std::string target(const ImportedConfig& imported, const std::string& key) {
  for (const auto& [from, to] : imported.carried) {
    if (from == key) return to;
  }
  return {};
}

/// The TOML of `imported`, opened with the plugins of this build.
Config opened(const test::ScratchFolder& folder, const std::string& toml, const ConfigNeeds& needs) {
  ConfigOverrides overrides;
  overrides.read_environment = false;
  overrides.plugin_dirs.emplace_back(PLIANT_PLUGIN_DIR);
  return Config::open(folder.write("imported.toml", toml), needs, overrides);
}

Plan plan_of(const std::string& toml, int64_t world_size = 0) {
  const test::ScratchFolder folder;
  return make_plan(opened(folder, toml, {"elasticity"}), world_size);
}

}  // namespace

TEST_CASE("what DeepSpeed refuses is refused with the place, the path and what is allowed") {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[1]", "ds.json:1:1: error: a DeepSpeed config is a JSON object"},
      {R"({"elasticity": null})", "ds.json:1:16: error: elasticity is null; it must be an object"},
      {R"({"elasticity": {"enabled": true, "micro_batch_sizes": [1]}})",
       "ds.json:1:16: error: elasticity.max_train_batch_size is missing"},
      {R"({"elasticity": {"enabled": true, "max_train_batch_size": 1}})",
       "ds.json:1:16: error: elasticity.micro_batch_sizes is missing; it must be a list such as [2, 4, 6]"},
      {"{\n" + block(R"("micro_batch_sizes": 5)") + "}", "elasticity.micro_batch_sizes is 5; it must be a list"},
      {"{" + block(R"("micro_batch_sizes": [])") + "}", "elasticity.micro_batch_sizes is an empty list"},
      {"{" + block(R"("micro_batch_sizes": [2, 0.5])") + "}",
       "elasticity.micro_batch_sizes[1] is 0.5; it must be a whole number of at least 1"},
      {"{" + block(R"("micro_batch_sizes": [2.0])") + "}",
       "elasticity.micro_batch_sizes[0] is 2.0; it must be a whole"},
      {"{" + block(R"("micro_batch_sizes": [0])") + "}", "elasticity.micro_batch_sizes[0] is 0; it must be a whole"},
      {"{" + block(R"("micro_batch_sizes": [true])") + "}", "elasticity.micro_batch_sizes has true but no number"},
      {"{" + block(R"("micro_batch_sizes": [2001])") + "}", "micro_batch_sizes[0] is 2001, but must be at most 2000"},
      {"{" + block(R"("max_train_batch_size": "auto")") + "}",
       "elasticity.max_train_batch_size is the string \"auto\"; it must be a whole number of at least 1"},
      {"{" + block(R"("max_train_batch_size": NaN)") + "}", "max_train_batch_size is NaN; it must be a whole number"},
      {"{" + block(R"("max_train_batch_size": 1e300)") + "}", "max_train_batch_size is 1e300; a float this large"},
      {"{" + block(R"("max_train_batch_size": 9223372036854775808)") + "}", "it must be at most 9223372036854775807"},
      {"{" + block(R"("min_gpus": 8, "max_gpus": 4)") + "}",
       "elasticity.max_gpus is 4, but must be at least elasticity.min_gpus, which is 8"},
      {"{" + block(R"("min_gpus": 20000)") + "}", "elasticity.max_gpus is 10000, but must be at least"},
      {"{" + block(R"("min_gpus": 0)") + "}", "elasticity.min_gpus is 0; it must be a whole number of at least 1"},
      {"{" + block(R"("max_gpus": null)") + "}", "remove the key to use its default"},
      {"{" + block(R"("min_time": -1)") + "}", "elasticity.min_time is -1; it must be a whole number of at least 0"},
      {"{" + block(R"("version": 0.3)") + "}", "elasticity.version is 0.3; allowed: 0.1 and 0.2"},
      {"{" + block(R"("version": "x")") + "}", "elasticity.version is the string \"x\"; allowed: 0.1 and 0.2"},
      {"{" + block(R"("model_parallel_size": 2)") + "}", "must be 1 with version 0.1"},
      {"{" + block(R"("version": 0.2, "model_parallel_size": 3, "num_gpus_per_node": 8)") + "}",
       "elasticity.model_parallel_size must divide elasticity.num_gpus_per_node; they are 3 and 8"},
      {"{" + block(R"("version": 0.2, "num_gpus_per_node": 500)") + "}", "must be at most 4 for each of the 500 ranks"},
      {"{" + block(R"("version": 0.2, "num_gpus_per_node": 3, "max_train_batch_size": 2000.5)") + "}",
       "elasticity.max_train_batch_size is 2000.5; it must be a whole number"},
      {"{" + dynamic(R"(, "max_tokens": "x")") + "}", "dynamic_batching.max_tokens is the string \"x\""},
      {"{" + dynamic(R"(, "max_batch_size": null)") + "}", "dynamic_batching.max_batch_size is null"},
      {"{" + dynamic(R"(, "min_batch_size": 5, "max_batch_size": 4)") + "}",
       "max_batch_size is 4, but must be at least"},
      {"{" + dynamic(R"(, "sequence_picking_order": "best")") + "}",
       "allowed: \"dataloader\", \"random\" and \"seqlen\""},
      {"{" + dynamic(R"(, "lr_scaling_method": "Linear")") + "}", "allowed: \"linear\", \"sqrt\" and \"none\""},
      {R"({"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": 1}}}})", "max_tokens is missing"},
      {R"({"data_efficiency": {"data_sampling": {"dynamic_batching": [1]}}})", "dynamic_batching is a list"},
  };
  for (const auto& one : cases) {
    const std::string& json = one.first;
    const auto& wanted = one.second;
    CAPTURE(json);
    const std::string said = refusal(json);
    CAPTURE(said);
    CHECK(contains(said, wanted));
    CHECK(said.find("ds.json:") == 0);
  }
}

TEST_CASE("every fault of a file is in the one message, in the order of the file") {
  const std::string said =
      refusal("{\"elasticity\": {\"enabled\": true, \"micro_batch_sizes\": [0],\n\"min_gpus\": \"4\"}}");
  const size_t missing = said.find("max_train_batch_size is missing");
  const size_t micro = said.find("micro_batch_sizes[0] is 0");
  const size_t limit = said.find("ds.json:2:13: error: elasticity.min_gpus is the string \"4\"");
  CHECK(missing < micro);
  CHECK(micro < limit);
  CHECK(limit != std::string::npos);
}

TEST_CASE("a file with nothing to carry is refused with what to write") {
  CHECK(contains(refusal("{}"), "nothing in this file can be imported\n"));
  CHECK(contains(refusal(R"({"fp16": {"enabled": true}})"), "there is no elasticity block"));
  CHECK(contains(refusal(R"({"zero_optimization": {"stage": 2}})"), "zero_optimization is imported only with stage 3"));
  CHECK(
      contains(refusal(R"({"elasticity": {"enabled": 0, "max_train_batch_size": "x"}})"), "elasticity.enabled is off"));
  CHECK(contains(refusal(R"({"enabled": true, "max_train_batch_size": 4, "micro_batch_sizes": [2]})"),
                 "this looks like the contents of an elasticity block"));
}

TEST_CASE("version chooses the rule, as a float") {
  for (const char* version : {"0.1", "\"0.1\"", "\"1e-1\"", "1E-1"}) {
    CHECK(
        contains(import_deepspeed("{" + block("\"version\": " + std::string(version)) + "}").toml, "use = \"v0.1\" "));
  }
  const ImportedConfig without =
      import_deepspeed(R"({"elasticity": {"enabled": "false", "max_train_batch_size": 9, "micro_batch_sizes": [3]}})");
  CHECK(contains(without.toml, "use = \"v0.2\" "));
  CHECK(contains(without.toml, "[elasticity.\"v0.2\"]\nmax_train_batch_size = 9\nmicro_batch_sizes = [3]\n"));
  CHECK_FALSE(contains(without.toml, "max_gpus ="));
  CHECK(target(without, "elasticity.enabled") == "elasticity");
}

TEST_CASE("numbers become the integers that DeepSpeed's solver sees") {
  const auto toml = [](const std::string& more) { return import_deepspeed("{" + block(more) + "}").toml; };
  CHECK(contains(toml(R"("max_train_batch_size": 2000.5)"),
                 "max_train_batch_size = 2000             # given as 2000.5\n"));
  CHECK(contains(toml(R"("min_gpus": 1.5)"), "min_gpus = 2 "));
  CHECK(contains(toml(R"("max_gpus": 1.5)"), "max_gpus = 1 "));
  CHECK(contains(toml(R"("version": 0.2, "min_gpus": 1.5)"), "min_gpus = 1 "));
  CHECK(contains(toml(R"("max_gpus": true)"), "max_gpus = 1 "));
  CHECK(contains(toml(R"("micro_batch_sizes": [true, 2])"), "micro_batch_sizes = [1, 2] "));
  CHECK(contains(toml(R"("prefer_larger_batch": [])"), "prefer_larger_batch = false "));
  CHECK(contains(toml(R"("min_time": 20)"), "min_time = 20\n"));
  const ImportedConfig half = import_deepspeed("{" + block(R"("min_time": 0.5)") + "}");
  CHECK_FALSE(contains(half.toml, "min_time ="));
  CHECK(contains(reason(half, "elasticity.min_time"), "the plan does not depend on it"));
}

TEST_CASE("the plan is DeepSpeed's, and the changes that the comments propose work") {
  const std::string toml = import_deepspeed("{" + block(R"("max_gpus": 1500, "min_time": 20)") + "}").toml;
  const Plan plan = plan_of(toml, 4);
  CHECK(plan.global_batch == 1680);
  CHECK(plan.micro_batch == 6);
  CHECK_FALSE(plan.valid(11));
  const auto replaced = [](std::string text, const std::string& old, const std::string& with) {
    REQUIRE(contains(text, old));
    return text.replace(text.find(old), old.size(), with);
  };
  CHECK(plan_of(replaced(toml, "max_gpus = 1500\n", "max_gpus = 1500\nstrict = true\n"), 4).global_batch == 1680);
  std::string exact = replaced(toml, "use = \"v0.1\"", "use = \"exact\"");
  exact = replaced(exact, "[elasticity.\"v0.1\"]", "[elasticity.exact]");
  const Plan every = plan_of(exact, 11);
  CHECK(every.valid(13));
}

TEST_CASE("dynamic batching becomes a sampler, a rule and a seed") {
  const ImportedConfig imported = import_deepspeed(
      R"({"train_batch_size": 32, "optimizer": {"params": {"lr": 3e-4}}, "data_efficiency": {"seed": -7,
          "data_sampling": {"num_workers": 2, "dynamic_batching": {"enabled": true, "max_tokens": "4096",
          "min_batch_size": 2, "max_batch_size": 10.7, "lr_scaling_method": "sqrt", "sequence_picking_order": "random",
          "metrics_path": "m", "verbose": true}}}})");
  const test::ScratchFolder folder;
  const Config config = opened(folder, imported.toml, {"sampler", "lr"});
  CHECK(config.use("sampler") == "seqlen");
  CHECK(config.use("lr") == "sqrt");
  CHECK(config.lr().base_lr == 3e-4);
  CHECK(config.lr().base_batch == 32);
  CHECK(config.lr().unit == "sequences");
  CHECK(config.run().seed == 7);
  CHECK(
      contains(imported.toml, "# from data_efficiency.seed, given as -7; Python ignores the sign when it shuffles\n"));
  for (const char* line : {"max_tokens = 4096 ", "min_batch_size = 2\n", "max_batch_size = 10 ",
                           "sequence_picking_order = \"random\"\n", "over_long = \"drop\" "}) {
    CHECK(contains(imported.toml, line));
  }
  CHECK(target(imported, "train_batch_size") == "lr.base_batch");
  CHECK(target(imported, "optimizer.params.lr") == "lr.base_lr");
  CHECK(target(imported, "data_efficiency.data_sampling.dynamic_batching.metrics_path") == "data.lengths");
  CHECK(config.data().lengths == (folder.path() / "m").string());
  CHECK(contains(reason(imported, "data_efficiency.data_sampling.num_workers"), "loads its own data"));
  // DeepSpeed: 3e-4 * sqrt(sequences / packs)
  LearningRate rate(config, BatchSize{32, 90, 900, 900});
  CHECK(rate.at(0, {32, 128, 1000, 1000}) == 3e-4 * 2);
}

TEST_CASE("dynamic batching's defaults are DeepSpeed's") {
  const std::string toml = import_deepspeed("{" + dynamic("") + "}").toml;
  CHECK(contains(toml, "use = \"linear\" "));
  CHECK_FALSE(contains(toml, "[run]"));
  CHECK(
      contains(import_deepspeed("{" + dynamic(R"(, "sequence_picking_order": "random")") + "}").toml, "seed = 1234 "));
  CHECK(contains(import_deepspeed("{" + dynamic(R"(, "lr_scaling_method": null)") + "}").toml, "use = \"none\" "));
  CHECK(contains(import_deepspeed("{" + dynamic(R"(, "lr_scaling_method": "None")") + "}").toml, "use = \"none\" "));
}

TEST_CASE("the old name of the order is ignored as DeepSpeed ignores it, and said to be") {
  const ImportedConfig imported = import_deepspeed("{" + dynamic(R"(, "sentence_picking_order": "random")") + "}");
  CHECK_FALSE(contains(imported.toml, "sequence_picking_order = "));
  CHECK(
      contains(reason(imported, "data_efficiency.data_sampling.dynamic_batching.sentence_picking_order"), "old name"));
}

TEST_CASE("without an elasticity block the TOML says so, and the rest is carried") {
  CHECK(contains(import_deepspeed("{" + dynamic("") + "}").toml,
                 "# No [elasticity]: the source has no elasticity block."));
  const ImportedConfig off =
      import_deepspeed("{" + dynamic("") + R"(, "elasticity": {"enabled": false, "min_gpus": 2}})");
  CHECK(contains(off.toml, "# No [elasticity]: elasticity.enabled is off in the source."));
  CHECK(reason(off, "elasticity.min_gpus") == "elasticity.enabled is off");
}

TEST_CASE("with an elasticity block the batch sizes are the plan's, and the base of the rate is explained") {
  const ImportedConfig imported = import_deepspeed("{" + block() + ", " + dynamic("") +
                                                   R"(, "train_batch_size": 8, "gradient_accumulation_steps": "auto",
          "optimizer": {"params": {"lr": "auto"}}})");
  CHECK(contains(reason(imported, "train_batch_size"), "set lr.base_batch to the global batch"));
  CHECK(contains(reason(imported, "gradient_accumulation_steps"), "the plan decides it"));
  CHECK(contains(reason(imported, "optimizer.params.lr"), "\"auto\" is not a rate"));
  CHECK(contains(imported.toml, "# base_batch = N, with N the global batch that `pliant plan` shows"));
}

TEST_CASE("an option of stage 3 that DeepSpeed refuses is refused with its place") {
  const auto refused = [](const std::string& option) {
    return refusal("{" + block() + R"(, "zero_optimization": {"stage": 3, )" + option + "}}");
  };
  CHECK(contains(refused(R"("stage3_prefetch_bucket_size": -1)"),
                 "zero_optimization.stage3_prefetch_bucket_size is -1; it must be a whole number of at least 0"));
  CHECK(contains(refused(R"("reduce_bucket_size": 1.5)"),
                 "zero_optimization.reduce_bucket_size is 1.5; it must be a whole"));
  CHECK(contains(refused(R"("max_live_parameters": "many")"),
                 "zero_optimization.max_live_parameters is the string \"many\""));
  CHECK(contains(refused(R"("stage3_max_reuse_distance": null)"), "stage3_max_reuse_distance is null"));
  CHECK(contains(refused(R"("stage3_max_reuse_distance": 1e30)"), "at most 9223372036854775807"));
}

TEST_CASE("stage 3 becomes a coordinator, its options without stage3_ and without auto") {
  const ImportedConfig imported = import_deepspeed(
      "{" + block() + R"(, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 5e7, "sub_group_size": 1e9,
          "stage3_max_live_parameters": "auto", "max_reuse_distance": 7, "reduce_bucket_size": "500",
          "stage3_model_persistence_threshold": 9223372036854775807, "overlap_comm": true,
          "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "none", "pin_memory": true}},
          "fp16": {"enabled": true, "loss_scale": 0}})");
  CAPTURE(imported.toml);
  for (const char* line :
       {"\n[coordinator]\nuse = \"zero3\" ", "\n[coordinator.zero3]\nprefetch_bucket_size = 50000000 ",
        "\nmax_reuse_distance = 7\n", "# from zero_optimization.stage3_prefetch_bucket_size; given as 5e7\n",
        "\nreduce_bucket_size = 500 ", "\nmodel_persistence_threshold = 9223372036854775807 "}) {
    CAPTURE(line);
    CHECK(contains(imported.toml, line));
  }
  CHECK_FALSE(contains(imported.toml, "max_live_parameters ="));
  CHECK_FALSE(contains(imported.toml, "param_persistence_threshold ="));
  CHECK(target(imported, "zero_optimization.stage") == "coordinator.use");
  CHECK(target(imported, "zero_optimization.max_reuse_distance") == "coordinator.zero3.max_reuse_distance");
  CHECK(contains(reason(imported, "zero_optimization.stage3_max_live_parameters"), "auto"));
  CHECK(contains(reason(imported, "zero_optimization.offload_param.device"), "no tier below the device"));
  CHECK(reason(imported, "zero_optimization.offload_optimizer.device") == "not needed: nothing is offloaded");
  CHECK(reason(imported, "zero_optimization.offload_optimizer.pin_memory") == "not needed: nothing is offloaded");
  CHECK(contains(reason(imported, "fp16.enabled"), "f32 or bf16: coordinator.compute_dtype"));
  CHECK(contains(reason(imported, "fp16.loss_scale"), "precision belongs to the training program"));
  CHECK(contains(reason(imported, "zero_optimization.sub_group_size"), "shards"));
  CHECK(contains(reason(imported, "zero_optimization.overlap_comm"), "overlap with the computation"));
  const test::ScratchFolder folder;
  CHECK(opened(folder, imported.toml, {"elasticity"}).use("coordinator") == "zero3");
}

TEST_CASE("stage 3 alone is enough to carry, and of two names for one option the one with its stage counts") {
  const ImportedConfig imported = import_deepspeed(
      R"({"zero_optimization": {"stage": 3.0, "prefetch_bucket_size": 1, "stage3_prefetch_bucket_size": 2}})");
  CHECK(contains(imported.toml, "\nprefetch_bucket_size = 2 "));
  CHECK(contains(reason(imported, "zero_optimization.prefetch_bucket_size"),
                 "stage3_prefetch_bucket_size, its other name, is used"));
}

TEST_CASE("with stage 3 bf16 is what parameters are computed in") {
  const ImportedConfig imported = import_deepspeed(
      R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": true, "immediate_grad_update": true}})");
  CHECK(contains(imported.toml, "\ncompute_dtype = \"bf16\" "));
  CHECK(target(imported, "bf16.enabled") == "coordinator.compute_dtype");
  CHECK_FALSE(reason(imported, "bf16.immediate_grad_update").empty());
  for (const char* const other : {R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": false}})",
                                  R"({"zero_optimization": {"stage": 3}, "fp16": {"enabled": true}})"}) {
    CHECK_FALSE(contains(import_deepspeed(other).toml, "\ncompute_dtype"));
  }
}

TEST_CASE("with stage 3 gradients travel in the type that DeepSpeed sends them in") {
  const auto imported = [](const std::string& more) {
    return import_deepspeed(R"({"zero_optimization": {"stage": 3})" + more + "}");
  };
  const std::string bf16 = R"(, "bf16": {"enabled": true})";
  CHECK_FALSE(contains(imported("").toml, "\nreduce_dtype"));
  CHECK(contains(imported(bf16).toml, "\nreduce_dtype = \"bf16\" "));
  CHECK(contains(imported(bf16).toml, "# as in DeepSpeed if bf16.enabled is on\n"));
  CHECK(contains(imported(bf16 + R"(, "communication_data_type": null)").toml, "\nreduce_dtype = \"bf16\" "));
  for (const auto& way : std::vector<std::pair<std::string, std::string>>{
           {"fp32", "f32"}, {"FP32", "f32"}, {"bf16", "bf16"}, {"bfp16", "bf16"}}) {
    const ImportedConfig made = imported(bf16 + R"(, "communication_data_type": ")" + way.first + "\"");
    CAPTURE(made.toml);
    CHECK(contains(made.toml, "\nreduce_dtype = \"" + way.second + "\" "));
    CHECK(contains(made.toml, "# from communication_data_type\n"));
    CHECK(target(made, "communication_data_type") == "coordinator.reduce_dtype");
    const test::ScratchFolder folder;
    CHECK(opened(folder, made.toml, {}).coordinator().reduce_dtype == way.second);
  }
  const ImportedConfig half = imported(bf16 + R"(, "communication_data_type": "fp16")");
  CHECK_FALSE(contains(half.toml, "\nreduce_dtype"));
  CHECK(contains(reason(half, "communication_data_type"), "sent as f32 or bf16"));
  const ImportedConfig sums = imported(R"(, "data_types": {"grad_accum_dtype": "bf16"})");
  CHECK(contains(reason(sums, "data_types.grad_accum_dtype"), "owners add gradients up in f32"));
  for (const char* const wrong : {"\"auto\"", "\"int8\"", "16"}) {
    const std::string said =
        refusal(R"({"zero_optimization": {"stage": 3}, "communication_data_type": )" + std::string(wrong) + "}");
    CAPTURE(said);
    CHECK(contains(said, "ds.json:1:64: error: communication_data_type is "));
    CHECK(contains(said, R"(allowed: "fp32", "bf16" and "fp16")"));
  }
}

TEST_CASE("without stage 3 the type of what travels is the program's") {
  const ImportedConfig imported = import_deepspeed("{" + block() + R"(, "communication_data_type": "bf16",
      "data_types": {"grad_accum_dtype": "fp32"}})");
  CHECK_FALSE(contains(imported.toml, "\nreduce_dtype"));
  CHECK(contains(reason(imported, "communication_data_type"), "belongs to the training program"));
  CHECK(contains(reason(imported, "data_types.grad_accum_dtype"), "belongs to the training program"));
}

TEST_CASE("stages below 3 carry nothing, and it is said why") {
  for (const char* stage : {R"("stage": 2)", R"("stage": 0)", R"("overlap_comm": false)"}) {
    const ImportedConfig imported = import_deepspeed(
        "{" + block() + R"(, "zero_optimization": {"reduce_bucket_size": 5, "offload_param": {"device": "cpu"}, )" +
        stage + "}}");
    CHECK_FALSE(contains(imported.toml, "\n[coordinator"));
    CHECK(contains(reason(imported, "zero_optimization.reduce_bucket_size"), "jobs train replicated"));
    CHECK(contains(reason(imported, "zero_optimization.offload_param.device"), "jobs train replicated"));
  }
  const ImportedConfig odd =
      import_deepspeed("{" + block() + R"(, "zero_optimization": {"stage": "three", "reduce_bucket_size": 5}})");
  CHECK(contains(reason(odd, "zero_optimization.reduce_bucket_size"), "the stage must be 0, 1, 2 or 3"));
}

TEST_CASE("every key is accounted for, in the order of the file, in the list and in the TOML") {
  const ImportedConfig imported = import_deepspeed(
      "{\"fp16\": {\"enabled\": true, \"loss_scale\": 0}, \"elastcity\": {\"a\": {}}, " + block(R"("min_gpu": 2)") +
      R"(, "a \"b\"\n": [{}], "fp16": {"enabled": false}, "mystery": 1, "wandb": {}})");
  std::vector<std::string> keys;
  for (const auto& [key, why] : imported.not_carried) {
    keys.push_back(key);
    CHECK(contains(imported.toml, "\n# - " + key + ": " + why + "\n"));
  }
  CHECK(keys == std::vector<std::string>{"fp16", "fp16.enabled", "elastcity.a", "elasticity.min_gpu",
                                         "\"a \\\"b\\\"\\n\"", "mystery", "wandb"});
  CHECK(contains(reason(imported, "fp16"), "given 2 times"));
  CHECK(contains(reason(imported, "elastcity.a"), "did you mean elasticity?"));
  CHECK(contains(reason(imported, "elasticity.min_gpu"), "did you mean min_gpus?"));
  CHECK(reason(imported, "mystery") == "unknown to Pliant");
  const test::ScratchFolder folder;
  CHECK(opened(folder, imported.toml, {"elasticity"}).use("elasticity") == "v0.1");
}

TEST_CASE("the name of the source cannot break out of its comment") {
  const ImportedConfig imported = import_deepspeed("{" + block() + "}", "a\nb = 1\n.json");
  CHECK(contains(imported.toml, "from \"a\\nb = 1\\n.json\".\n"));
  CHECK(contains(import_deepspeed("{" + block() + "}", "\xff.json").toml, "# Written by `pliant config import`.\n"));
}

TEST_CASE("a schedule that lacks a number, or has a word for one, is left to the program with the reason") {
  const auto why = [](const std::string& type, const std::string& params) {
    const ImportedConfig imported = import_deepspeed(
        "{" + block() + R"(, "optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "scheduler": {"type": ")" + type +
        R"(", "params": {)" + params + "}}}");
    CAPTURE(imported.toml);
    CHECK_FALSE(contains(imported.toml, "\nschedule = "));
    CHECK(contains(imported.toml, "\nbase_lr = 0.5 "));
    return reason(imported, "scheduler.type");
  };
  CHECK(contains(why("WarmupLR", R"("warmup_num_steps": "auto")"), "warmup_num_steps is \"auto\", which transformers"));
  CHECK(contains(why("WarmupLR", R"("warmup_num_steps": 1.5)"), "warmup_num_steps is 1.5, not a number of steps"));
  CHECK(contains(why("WarmupLR", R"("warmup_num_steps": -1)"), "warmup_num_steps is -1"));
  CHECK(contains(why("WarmupLR", R"("warmup_num_steps": true)"), "warmup_num_steps is true"));
  CHECK(contains(why("WarmupLR", R"("warmup_max_lr": [0.1, 0.2])"), "warmup_max_lr is not one number"));
  CHECK(contains(why("WarmupLR", R"("warmup_min_lr": null)"), "warmup_min_lr is null"));
  CHECK(contains(why("WarmupLR", R"("warmup_type": "exp")"), "warmup_type is the string \"exp\""));
  CHECK(contains(why("WarmupDecayLR", ""), "total_num_steps is missing"));
  CHECK(contains(why("WarmupDecayLR", R"("total_num_steps": 0)"), "total_num_steps is below 1"));
  CHECK(contains(why("WarmupCosineLR", R"("total_num_steps": 50)"), "leaves no step behind the warm-up"));
  CHECK(contains(why("OneCycle", R"("cycle_min_lr": 0.1)"), "no rule goes up and down as it does"));
  CHECK(contains(why("StepLR", R"("step_size": 3)"), "a schedule of torch's"));
  const ImportedConfig no_rate = import_deepspeed(
      "{" + block() + R"(, "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 5000}}})");
  CHECK(contains(reason(no_rate, "scheduler.type"), "ratios are of optimizer.params.lr"));
  CHECK_FALSE(contains(no_rate.toml, "\n[lr]"));
}

TEST_CASE("hyperparameters that are none are left out by name, and the rest is carried") {
  const ImportedConfig imported = import_deepspeed("{" + block() + R"(, "optimizer": {"type": "Adam", "params":
      {"lr": "auto", "betas": "auto", "eps": "small", "weight_decay": -1, "bias_correction": true}}})");
  CHECK(contains(reason(imported, "optimizer.params.lr"), "set lr.base_lr"));
  CHECK(contains(reason(imported, "optimizer.params.betas"), "\"auto\" is filled in by transformers"));
  CHECK(contains(reason(imported, "optimizer.params.eps"), "not a number from 0"));
  CHECK(contains(reason(imported, "optimizer.params.weight_decay"), "not a number from 0"));
  CHECK(
      contains(reason(imported, "optimizer.params.bias_correction"), "the optimizer itself is the training program's"));
  CHECK(target(imported, "optimizer.type") == "lr.optimizer");
}

TEST_CASE("the optimizer becomes the rate, its family and its hyperparameters") {
  const auto lr_of = [](const std::string& optimizer) {
    const ImportedConfig imported = import_deepspeed("{" + block() + R"(, "optimizer": )" + optimizer + "}");
    CAPTURE(imported.toml);
    const test::ScratchFolder folder;
    const Config config = opened(folder, imported.toml, {"lr"});
    CHECK(config.use("lr") == "none");
    return config.lr();
  };
  const LrOptions adam = lr_of(R"({"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8,
                                   "weight_decay": 0.1}})");
  CHECK(adam.base_lr == 3e-4);
  CHECK(adam.optimizer == "adamw");
  CHECK(adam.beta1 == 0.9);
  CHECK(adam.beta2 == 0.95);
  CHECK(adam.epsilon == 1e-8);
  CHECK(adam.weight_decay == 0.1);
  for (const auto& [type, family] : std::vector<std::pair<std::string, std::string>>{
           {R"("Adam")", "adamw"},
           {R"("Adam", "params": {"adam_w_mode": false})", "adam"},
           {R"("Lamb")", "lamb"},
           {R"("OneBitAdam")", "adam"},
           {R"("Lion")", "sign"},
           {R"("SGD")", "sgd"},
           {R"("SGD", "params": {"momentum": 0.9})", "sgd_momentum"},
           {R"("SGD", "params": {"momentum": 0.9, "nesterov": true})", "nesterov"},
           {R"("Muon")", "other"}}) {
    const std::string said = type;
    CAPTURE(said);
    CHECK(lr_of(R"({"type": )" + said + "}").optimizer == family);
  }
  CHECK(lr_of(R"({"type": "SGD", "params": {"momentum": 0.9}})").beta1 == 0.9);
}

TEST_CASE("a family that the rule of dynamic batching would refuse is left out, with what would suit it") {
  const std::string adam = R"(, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}})";
  const ImportedConfig linear = import_deepspeed("{" + block() + ", " + dynamic("") + adam);
  CHECK_FALSE(contains(linear.toml, "\noptimizer = "));
  CHECK(contains(reason(linear, "optimizer.type"), "with use = \"sqrt\" set lr.optimizer = \"adamw\""));
  const ImportedConfig root =
      import_deepspeed("{" + block() + ", " + dynamic(R"(, "lr_scaling_method": "sqrt")") + adam);
  CHECK(contains(root.toml, "\noptimizer = \"adamw\" "));
  for (const ImportedConfig& imported : {linear, root}) {
    const test::ScratchFolder folder;
    LearningRate::check(opened(folder, imported.toml, {"lr"}));
  }
}

namespace {

/// The rate of DeepSpeed's step `step`: what the optimizer's step uses that follows `step` calls of the scheduler.
using Rates = std::vector<std::pair<int64_t, double>>;

void check_rates(const std::string& optimizer, const std::string& scheduler, const Rates& wanted) {
  const ImportedConfig imported =
      import_deepspeed("{" + block() + R"(, "optimizer": )" + optimizer + R"(, "scheduler": )" + scheduler + "}");
  CAPTURE(imported.toml);
  const test::ScratchFolder folder;
  LearningRate rate(opened(folder, imported.toml, {"lr"}), BatchSize{8, 8, 8, 8});
  for (const auto& one : wanted) {
    CAPTURE(one.first);
    CHECK(rate.at(one.first, {8, 8, 8, 8}) == doctest::Approx(one.second).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("the warm-ups, the linear decay and the cosine of DeepSpeed become schedules with its rates") {
  const std::string optimizer = R"({"type": "AdamW", "params": {"lr": 0.5}})";
  check_rates(optimizer, R"({"type": "WarmupLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.3,
                             "warmup_num_steps": 10, "warmup_type": "linear"}})",
              {{0, 0.1}, {5, 0.2}, {10, 0.3}, {500, 0.3}});
  check_rates(optimizer, R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0.3, "warmup_num_steps": 10}})",
              {{0, 0.0}, {4, 0.3 * std::log(5.0) / std::log(10.0)}, {10, 0.3}});
  check_rates(optimizer, R"({"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0.1, "warmup_max_lr": 0.3,
                             "warmup_num_steps": 10, "warmup_type": "linear", "total_num_steps": 110}})",
              {{5, 0.2}, {10, 0.3}, {60, 0.2}, {110, 0.1}, {200, 0.1}});
  const double pi = std::acos(-1.0);
  const auto cosine = [&](int64_t step) {
    const double share = static_cast<double>(step - 10 + 1) / 100.0;
    return 0.5 * (0.1 + 0.9 * (1 + std::cos(pi * share)) / 2);
  };
  check_rates(optimizer, R"({"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.2, "cos_min_ratio": 0.1,
                             "warmup_num_steps": 10, "warmup_type": "linear", "total_num_steps": 110}})",
              {{0, 0.1}, {5, 0.3}, {10, cosine(10)}, {60, cosine(60)}, {109, 0.05}, {150, cosine(150)}});
}

TEST_CASE("a scheduler that sets the rate itself says so of the optimizer's") {
  const ImportedConfig imported = import_deepspeed("{" + block() + R"(, "optimizer": {"type": "AdamW", "params":
      {"lr": 0.5}}, "scheduler": {"type": "WarmupLR", "params": {"last_batch_iteration": 3}}})");
  CHECK(contains(imported.toml, "\nbase_lr = 0.001 "));
  CHECK(contains(imported.toml, "# DeepSpeed's warmup_max_lr where none is given\n"));
  CHECK(contains(reason(imported, "optimizer.params.lr"), "the scheduler sets the rate: warmup_max_lr"));
  CHECK(contains(reason(imported, "scheduler.params.last_batch_iteration"), "resumed"));
  CHECK(target(imported, "scheduler.type") == "lr.schedule");
}

TEST_CASE("keys are grouped by block and reason, and a key with a dot in it stays whole") {
  const std::vector<NotCarriedBlock> blocks =
      by_block({{"a.x", "one"}, {"b", "two"}, {"a.y.z", "one"}, {"a.w", "three"}, {"\"c.d\".e", "four"}});
  std::vector<std::string> lines;
  for (const NotCarriedBlock& one : blocks) lines.push_back(line_of(one));
  CHECK(lines == std::vector<std::string>{"a: one (x, y.z)", "b: two", "a.w: three", "\"c.d\".e: four"});
}
