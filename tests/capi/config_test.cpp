// What C reads of a config, configs that come from DeepSpeed, and plans as the command line makes them.
#include "pliant/config.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "c_handles.hpp"
#include "pliant/import.hpp"

using namespace pliant::test;

namespace {

/// A variable of the environment while this lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

const char* const kDeepspeed =
    R"({"train_batch_size": 64, "fp16": {"enabled": true},
        "elasticity": {"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "min_gpus": 1,
                       "max_gpus": 10000, "min_time": 20, "version": 0.1}})";

}  // namespace

TEST_CASE("C reads which sections a config has, and which plugin each of its needs names") {
  const OwnedConfig config = config_of(kJob);
  int32_t has = -1;
  REQUIRE(pliant_config_has(config.get(), "lr", &has, nullptr) == PLIANT_OK);
  CHECK(has == 1);
  REQUIRE(pliant_config_has(config.get(), "coordinator", &has, nullptr) == PLIANT_OK);
  CHECK(has == 0);
  const char* name = nullptr;
  const char* again = nullptr;
  REQUIRE(pliant_config_use(config.get(), "sampler", &name, nullptr) == PLIANT_OK);
  REQUIRE(pliant_config_use(config.get(), "sampler", &again, nullptr) == PLIANT_OK);
  CHECK(std::string(name) == "concat");
  CHECK(name == again);
  CHECK(pliant_config_use(config.get(), "accelerator", &name, nullptr) == PLIANT_FAILED_PRECONDITION);
}

TEST_CASE("C changes a config by --set, and the one that it was made of stays") {
  const OwnedConfig config = config_of(kJob);
  const std::vector<const char*> sets{"run.seed=11", "sampler.use=fixed"};
  const auto changed = made_by<OwnedConfig>(
      [&](auto to, auto error) { return pliant_config_with(config.get(), sets.data(), sets.size(), to, error); });
  pliant_run_options_t run = PLIANT_INIT(pliant_run_options_t);
  const char* name = nullptr;
  REQUIRE(pliant_config_run(changed.get(), &run, nullptr) == PLIANT_OK);
  CHECK(run.seed == 11);
  REQUIRE(pliant_config_use(changed.get(), "sampler", &name, nullptr) == PLIANT_OK);
  CHECK(std::string(name) == "fixed");
  REQUIRE(pliant_config_run(config.get(), &run, nullptr) == PLIANT_OK);
  CHECK(run.seed == 5);
  const std::vector<const char*> wrong{"run.seed=early"};
  pliant_config_t* none = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_config_with(config.get(), wrong.data(), 1, &none, &error) == PLIANT_INVALID_ARGUMENT);
  CHECK(error.exit_code == 2);
  CHECK(none == nullptr);
}

TEST_CASE("C reads [lr] and [data], what is not set as NaN and as an empty text") {
  std::string toml = kJob;
  toml.insert(toml.find("base_batch"), "schedule = [\"cosine\"]\noptimizer = \"adamw\"\nbeta2 = 0.95\n");
  toml += "[data]\nlengths = \"/somewhere/lengths.jsonl\"\nlength_column = \"tokens\"\n";
  const OwnedConfig config = config_of(toml, "");
  pliant_lr_options_t lr = PLIANT_INIT(pliant_lr_options_t);
  REQUIRE(pliant_config_lr(config.get(), &lr, nullptr) == PLIANT_OK);
  CHECK(lr.base_lr == 0.5);
  CHECK(lr.base_batch == 10);
  CHECK(std::string(lr.unit) == "sequences");
  CHECK(std::string(lr.optimizer) == "adamw");
  REQUIRE(lr.schedule_count == 1);
  CHECK(std::string(lr.schedule[0]) == "cosine");
  CHECK(lr.then_count == 0);
  CHECK(lr.beta2 == 0.95);
  CHECK(std::isnan(lr.beta1));
  CHECK(std::isnan(lr.epsilon));
  CHECK(std::isnan(lr.weight_decay));
  CHECK(std::isnan(lr.ema));
  pliant_data_options_t data = PLIANT_INIT(pliant_data_options_t);
  REQUIRE(pliant_config_data(config.get(), &data, nullptr) == PLIANT_OK);
  CHECK(std::string(data.lengths) == "/somewhere/lengths.jsonl");
  CHECK(std::string(data.length_column) == "tokens");
  CHECK(std::string(data.loss_tokens_column) == "loss_tokens");
  CHECK(std::string(data.text).empty());
  CHECK(std::string(data.loss_tokens).empty());
}

TEST_CASE("a program in C refuses a value of [app] with its place, as a config with a finding is refused") {
  const OwnedConfig config = config_of(kJob);
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_config_refuse_app(config.get(), "width", "is odd", &error) == PLIANT_INVALID_ARGUMENT);
  CHECK(error.exit_code == 2);
  CHECK(last_message().find("pliant.toml:") == 0);
  CHECK(last_message().find("app.width is odd") != std::string::npos);
}

TEST_CASE("a DeepSpeed config is imported in C as in C++, and what it becomes plans") {
  const std::string json = kDeepspeed;
  const auto imported = made_by<OwnedImported>([&](auto to, auto error) {
    return pliant_import_deepspeed(json.data(), json.size(), "ds.json", "job.toml", to, error);
  });
  pliant_imported_view_t view = PLIANT_INIT(pliant_imported_view_t);
  REQUIRE(pliant_imported_look(imported.get(), &view, nullptr) == PLIANT_OK);
  const pliant::ImportedConfig cpp = pliant::import_deepspeed(json, "ds.json", "job.toml");
  CHECK(std::string(view.toml, view.bytes) == cpp.toml);
  REQUIRE(view.carried_count == cpp.carried.size());
  for (size_t i = 0; i < cpp.carried.size(); ++i) {
    CHECK(view.carried_from[i] == cpp.carried[i].from);
    CHECK(view.carried_to[i] == cpp.carried[i].to);
  }
  REQUIRE(view.not_carried_count == cpp.not_carried.size());
  CHECK(view.not_carried_count > 0);
  for (size_t i = 0; i < cpp.not_carried.size(); ++i) {
    CHECK(view.not_carried[i] == cpp.not_carried[i].key);
    CHECK(view.reasons[i] == cpp.not_carried[i].reason);
  }
  const OwnedConfig config = config_of({view.toml, view.bytes}, "elasticity");
  const OwnedPlan plan = plan_of(config.get());
  CHECK(plan.get() != nullptr);

  pliant_imported_t* none = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_import_deepspeed("{", 1, "ds.json", nullptr, &none, &error) == PLIANT_INVALID_ARGUMENT);
  CHECK(error.exit_code == 2);
  CHECK(last_message().find("ds.json") != std::string::npos);
  CHECK(none == nullptr);
}

TEST_CASE("C plans as the command line does, and refuses a scheduler's block that is not the config's") {
  const OwnedConfig config = config_of(kJob);
  const OwnedPlan plan =
      made_by<OwnedPlan>([&](auto to, auto error) { return pliant_plan_make(config.get(), 3, to, error); });
  pliant_plan_facts_t made = PLIANT_INIT(pliant_plan_facts_t);
  pliant_plan_facts_t planned = PLIANT_INIT(pliant_plan_facts_t);
  REQUIRE(pliant_plan_look(plan.get(), &made, nullptr) == PLIANT_OK);
  REQUIRE(pliant_plan_look(plan_of(config.get(), 3).get(), &planned, nullptr) == PLIANT_OK);
  CHECK(made.global_batch == planned.global_batch);
  CHECK(made.micro_batch == planned.micro_batch);
  pliant_plan_t* none = nullptr;
  CHECK(pliant_plan_make(config.get(), 99, &none, nullptr) == PLIANT_INCOMPATIBLE_WORLD_SIZE);
  CHECK(pliant_plan_make(config.get(), -1, &none, nullptr) == PLIANT_INVALID_ARGUMENT);
  const OwnedConfig as_deepspeed = config_of(
      "config_version = 1\n[elasticity]\nuse = \"v0.1\"\n[elasticity.\"v0.1\"]\nmax_train_batch_size = 2000\n"
      "micro_batch_sizes = [8]\n",
      "elasticity");
  CHECK(pliant_check_scheduler(as_deepspeed.get(), nullptr) == PLIANT_OK);
  const Variable block("DEEPSPEED_ELASTICITY_CONFIG",
                       R"({"max_train_batch_size": 4000, "micro_batch_sizes": [8], "version": 0.1})");
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_check_scheduler(as_deepspeed.get(), &error) == PLIANT_FAILED_PRECONDITION);
  CHECK(error.exit_code == 2);
  CHECK(last_message().find("DEEPSPEED_ELASTICITY_CONFIG") != std::string::npos);
  CHECK(pliant_plan_make(as_deepspeed.get(), 3, &none, nullptr) == PLIANT_FAILED_PRECONDITION);
  CHECK(none == nullptr);
}
