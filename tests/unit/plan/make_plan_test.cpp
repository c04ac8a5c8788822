// make_plan from a TOML file to a checked plan, and everything it refuses.
#include <doctest/doctest.h>
#include <stdlib.h>  // setenv

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "pliant/error.hpp"
#include "pliant/plan.hpp"
#include "scratch_folder.hpp"

using pliant::Config;
using pliant::Error;
using pliant::Origin;
using pliant::Plan;
using pliant::Status;

namespace {

/// A variable of the environment, set or unset for a test.
struct Variable {
  explicit Variable(const char* name, const char* value = nullptr) : name_(name) {
    if (const char* before = getenv(name)) before_ = before;
    value != nullptr ? setenv(name, value, 1) : unsetenv(name);
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

struct Fixture {
  pliant::test::ScratchFolder folder;
  Variable world_size{"WORLD_SIZE"};
  Variable pliant_block{"PLIANT_ELASTICITY_CONFIG"};
  Variable deepspeed_block{"DEEPSPEED_ELASTICITY_CONFIG"};

  [[nodiscard]] Config config(const std::string& policy, const std::string& options) const {
    const std::filesystem::path file = folder / "pliant.toml";
    std::ofstream(file) << "config_version = 1\n[elasticity]\nuse = \"" << policy << "\"\n[elasticity.\"" << policy
                        << "\"]\n"
                        << options;
    pliant::ConfigOverrides overrides;
    overrides.plugin_dirs = {ODD_PLUGIN_DIR, PLIANT_PLUGIN_DIR};
    overrides.read_environment = false;
    const pliant::ConfigNeeds needs{"elasticity"};
    return Config::open(file, needs, overrides);
  }
  [[nodiscard]] Config example(const std::string& policy = "v0.1") const {
    return config(policy, "max_train_batch_size = 2000\nmicro_batch_sizes = [2, 4, 6]\n");
  }
};

Error refusal(const Config& config, int64_t world_size = 0) {
  try {
    static_cast<void>(pliant::make_plan(config, world_size));
  } catch (const Error& error) {
    return error;
  }
  return {Status::kOk, "nothing was refused"};
}

}  // namespace

TEST_CASE_FIXTURE(Fixture, "one line of TOML gives the plan") {
  const Plan plan = pliant::make_plan(example());
  CHECK(plan.global_batch == 1680);
  CHECK(plan.micro_batch == 0);
  CHECK(plan.granule == 2);
  CHECK(plan.count() == 32);
  CHECK(plan.world_sizes.front() == pliant::WorldRange{1, 8});
}

TEST_CASE_FIXTURE(Fixture, "the micro-batch follows the world size") {
  CHECK(pliant::make_plan(example(), 4).micro_batch == 6);
  CHECK(pliant::make_plan(example(), 3).micro_batch == 4);
}

TEST_CASE_FIXTURE(Fixture, "a world size that is not valid names the nearest ones and is a fault of the input") {
  const Error error = refusal(example(), 13);
  CHECK(error.status() == Status::kIncompatibleWorldSize);
  CHECK(error.origin() == Origin::kInput);
  CHECK(error.message().find("world size 13 is not valid for global batch 1680; nearest valid: 12, 14") !=
        std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a negative world size is refused") {
  CHECK(refusal(example(), -1).status() == Status::kInvalidArgument);
}

TEST_CASE_FIXTURE(Fixture, "v0.2 reads WORLD_SIZE where no world size is given") {
  CHECK(refusal(example("v0.2")).message().find("WORLD_SIZE, which is unset") != std::string::npos);
  const Variable set("WORLD_SIZE", "8");
  CHECK(pliant::make_plan(example("v0.2")).micro_batch == 6);
}

TEST_CASE_FIXTURE(Fixture, "a policy may leave the check of the world size to the host") {
  CHECK(pliant::make_plan(config("odd", ""), 6).micro_batch == 2);
  const Error error = refusal(config("odd", ""), 5);
  CHECK(error.status() == Status::kIncompatibleWorldSize);
  CHECK(error.message() == "elasticity 'odd': world size 5 is not valid for global batch 12; nearest valid: 3, 6");
}

TEST_CASE_FIXTURE(Fixture, "an impossible answer names the plugin and is a fault of the plugin") {
  for (const char* options : {"global_batch = 0", "global_batch = -12", "micro_batch = -2", "micro_batch = 14",
                              "micro_batch = 0", "micro_batch = 3", "granule = 0", "granule = -1", "granule = 5",
                              "model_parallel_size = 0", "bounds = [0, 3]", "bounds = [3, 1]", "bounds = [-1, 3]",
                              "bounds = [4, 6, 1, 3]", "bounds = [1, 3, 3, 6]", "bounds = [1, 7]", "throws = true"}) {
    CAPTURE(options);
    const Error error = refusal(config("odd", options), 3);
    CHECK(error.origin() == Origin::kPlugin);
    CHECK(error.message().find("elasticity 'odd'") == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "a plan without any world size is refused with the section to change") {
  const Error error = refusal(config("odd", "bounds = []"));
  CHECK(error.status() == Status::kIncompatibleWorldSize);
  CHECK(error.origin() == Origin::kInput);
  CHECK(error.message().find("[elasticity.\"odd\"]") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "the scheduler's block must be the job's") {
  const char* same =
      R"({"enabled": true, "max_train_batch_size": 2000, "micro_batch_sizes": [2, 4, 6], "version": 0.1})";
  const char* other =
      R"({"enabled": true, "max_train_batch_size": 1000, "micro_batch_sizes": [2, 4, 6], "version": 0.1})";
  {
    const Variable set("PLIANT_ELASTICITY_CONFIG", same);
    CHECK(pliant::make_plan(example()).global_batch == 1680);
    const Error error = refusal(example("v0.2"), 4);
    CHECK(error.status() == Status::kFailedPrecondition);
    CHECK(error.message().find("version is 0.1 for the scheduler (PLIANT_ELASTICITY_CONFIG) but 0.2") !=
          std::string::npos);
    CHECK(refusal(config("odd", "")).message().find("policy is ") == 0);
  }
  const Variable set("DEEPSPEED_ELASTICITY_CONFIG", other);
  const Error error = refusal(example());
  CHECK(error.origin() == Origin::kInput);
  CHECK(pliant::make_plan(config("odd", "")).global_batch == 12);  // no DeepSpeed scheduler sizes other policies
  CHECK(error.message().find("max_train_batch_size is 1000 for the scheduler (DEEPSPEED_ELASTICITY_CONFIG) but 2000") !=
        std::string::npos);
}
