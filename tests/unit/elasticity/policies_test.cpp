// v0.1 and v0.2 through the real ABI: against brute force, and the properties that hold for every config.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "oracle.hpp"
#include "parity/parity.hpp"
#include "plan/policy.hpp"

using nlohmann::json;
using pliant::Plan;
using pliant::PlanQuestion;
using pliant::Result;
using pliant::Status;
using pliant::parity::Plugins;

namespace {

Plugins& plugins() {
  static Plugins opened(PLIANT_PLUGIN_DIR);
  return opened;
}

json options_of(const oracle::Config& config) {
  return {{"max_train_batch_size", config.cap},
          {"micro_batch_sizes", config.micro_batches},
          {"min_gpus", config.low},
          {"max_gpus", config.high},
          {"prefer_larger_batch", config.prefer_larger},
          {"lcm_may_exceed_max", config.lcm_may_exceed_cap},
          {"num_gpus_per_node", config.devices_per_node},
          {"model_parallel_size", config.model_parallel}};
}

Result<Plan> ask(const std::string& policy, const json& options, const PlanQuestion& question = {}) {
  auto instance = plugins().make("elasticity", policy, options);
  if (!instance) return tl::unexpected<pliant::Error>(instance.error());
  return pliant::ask_policy(*instance, question);
}

PlanQuestion at(int64_t world_size) {
  PlanQuestion question;
  question.world_size = world_size;
  return question;
}

PlanQuestion with_text(const std::string& text) {
  PlanQuestion question;
  question.world_size_text = text;
  return question;
}

std::vector<int64_t> sizes_of(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const auto& range : plan.world_sizes) {
    for (int64_t size = range.first; size <= range.last; size += range.step) sizes.push_back(size);
  }
  return sizes;
}

/// Small enough for trial division, wide enough for every branch.
oracle::Config any_config() {
  oracle::Config config;
  config.micro_batches = *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 13)));
  if (config.micro_batches.size() > 5) config.micro_batches.resize(5);
  config.cap = *rc::gen::inRange<int64_t>(1, 2500);
  config.low = *rc::gen::inRange<int64_t>(1, 40);
  config.high = config.low + *rc::gen::inRange<int64_t>(0, 600);
  config.prefer_larger = *rc::gen::arbitrary<bool>();
  config.lcm_may_exceed_cap = *rc::gen::arbitrary<bool>();
  return config;
}

const json kExample{{"max_train_batch_size", 2000}, {"micro_batch_sizes", {2, 4, 6}}, {"max_gpus", 1500}};

}  // namespace

TEST_CASE("v0.1 finds the batch and the sizes that brute force finds") {
  CHECK(rc::check([] {
    const oracle::Config config = any_config();
    const std::optional<oracle::Plan> expected = oracle::v01(config);
    const Result<Plan> actual = ask("v0.1", options_of(config));
    RC_ASSERT(actual.has_value() == expected.has_value());
    if (!expected) return;
    RC_ASSERT(actual->global_batch == expected->batch);
    RC_ASSERT(sizes_of(*actual) == expected->sizes);
  }));
}

TEST_CASE("v0.2 answers what brute force answers at every number of devices") {
  CHECK(rc::check([] {
    oracle::Config config = any_config();
    config.devices_per_node = *rc::gen::inRange<int64_t>(1, 9);
    config.model_parallel = *rc::gen::inRange<int64_t>(1, 5);
    const auto devices = *rc::gen::inRange<int64_t>(1, 300);
    const std::optional<oracle::Plan> expected = oracle::v02(config, devices);
    const Result<Plan> actual = ask("v0.2", options_of(config), with_text(std::to_string(devices)));
    RC_ASSERT(actual.has_value() == expected.has_value());
    if (!expected) return;
    RC_ASSERT(actual->global_batch == expected->batch);
    RC_ASSERT(sizes_of(*actual) == expected->sizes);
    RC_ASSERT(actual->micro_batch == expected->micro_batch);
    RC_ASSERT(actual->model_parallel_size == config.model_parallel);
  }));
}

TEST_CASE("order and repetition of micro-batch sizes do not matter to v0.1") {
  CHECK(rc::check([] {
    oracle::Config config = any_config();
    const Result<Plan> once = ask("v0.1", options_of(config));
    config.micro_batches.insert(config.micro_batches.begin(), config.micro_batches.back());
    std::reverse(config.micro_batches.begin(), config.micro_batches.end());
    const Result<Plan> again = ask("v0.1", options_of(config));
    RC_ASSERT(once.has_value() == again.has_value());
    if (!once) return;
    RC_ASSERT(once->global_batch == again->global_batch);
    RC_ASSERT(once->world_sizes == again->world_sizes);
    RC_ASSERT(once->granule == again->granule);
  }));
}

TEST_CASE("at each of its sizes v0.1 keeps its batch and takes the largest micro-batch that divides a share") {
  CHECK(rc::check([] {
    const oracle::Config config = any_config();
    const Result<Plan> plan = ask("v0.1", options_of(config));
    if (!plan) return;
    for (const int64_t size : sizes_of(*plan)) {
      const Result<Plan> sized = ask("v0.1", options_of(config), at(size));
      RC_ASSERT(sized.has_value());
      RC_ASSERT(sized->global_batch == plan->global_batch);
      RC_ASSERT(sized->world_sizes == plan->world_sizes);
      const int64_t share = plan->global_batch / size;
      RC_ASSERT(share * size == plan->global_batch);
      int64_t largest = 0;
      for (const int64_t micro : config.micro_batches) {
        if (share % micro == 0) largest = std::max(largest, micro);
      }
      RC_ASSERT(sized->micro_batch == largest);
      RC_ASSERT(pliant::checked_plan(*sized, at(size), "v0.1").has_value());
    }
  }));
}

TEST_CASE("the granule is the gcd of the micro-batch sizes and divides the batch") {
  CHECK(rc::check([] {
    oracle::Config config = any_config();
    config.devices_per_node = *rc::gen::inRange<int64_t>(1, 9);
    const auto devices = *rc::gen::inRange<int64_t>(1, 300);
    const Result<Plan> plan = ask("v0.2", options_of(config), with_text(std::to_string(devices)));
    if (!plan) return;
    int64_t gcd = 0;
    for (const int64_t micro : config.micro_batches) gcd = std::gcd(gcd, micro);
    RC_ASSERT(plan->granule == std::gcd(gcd, plan->global_batch));
  }));
}

TEST_CASE("without a world size v0.1 leaves the micro-batch open, or refuses when it is wanted") {
  CHECK(ask("v0.1", kExample)->micro_batch == 0);
  PlanQuestion question;
  question.want_micro_batch = true;
  CHECK(ask("v0.1", kExample, question).error().status() == Status::kFailedPrecondition);
}

TEST_CASE("a world size that does not fit is refused with its neighbours") {
  const Result<Plan> plan = ask("v0.1", kExample, at(13));
  CHECK(plan.error().status() == Status::kIncompatibleWorldSize);
  CHECK(plan.error().origin() == pliant::Origin::kInput);
  CHECK(plan.error().message() ==
        "elasticity 'v0.1': world size 13 is not valid for global batch 1680; nearest valid: 12, 14");
  CHECK(ask("v0.1", kExample, at(2000)).error().message().find("nearest valid: 840") != std::string::npos);
}

TEST_CASE("micro-batch sizes without a 63-bit common multiple are refused by name") {
  const json options{{"max_train_batch_size", 8589934592}, {"micro_batch_sizes", {2147483647, 2147483629, 2147483587}}};
  for (const char* policy : {"v0.1", "v0.2"}) {
    const Result<Plan> plan = ask(policy, options, with_text("1"));
    CHECK(plan.error().status() == Status::kOutOfRange);
    CHECK(plan.error().message().find("least common multiple of micro_batch_sizes does not fit 63 bits") !=
          std::string::npos);
  }
}

TEST_CASE("options outside their limits are refused") {
  const auto with = [](const char* key, const json& value) {
    json options = kExample;
    options[key] = value;
    return options;
  };
  for (const char* policy : {"v0.1", "v0.2"}) {
    for (const json& options :
         {with("max_train_batch_size", 0), with("micro_batch_sizes", json::array()), with("micro_batch_sizes", {2, 0}),
          with("min_gpus", 0), with("max_gpus", 0), with("min_gpus", 1501), with("model_parallel_size", 0),
          with("num_gpus_per_node", 0), with("min_time", -1), with("max_gpu", 3)}) {
      CAPTURE(options.dump());
      const Result<Plan> plan = ask(policy, options, with_text("4"));
      REQUIRE_FALSE(plan.has_value());
      CHECK(plan.error().status() == Status::kInvalidArgument);
      CHECK(plan.error().origin() == pliant::Origin::kInput);
    }
  }
  CHECK(ask("v0.1", with("model_parallel_size", 2)).error().status() == Status::kInvalidArgument);
  CHECK(ask("v0.2", with("model_parallel_size", 2), with_text("4")).error().status() == Status::kOutOfRange);
}

TEST_CASE("v0.2 needs the devices that exist and says where it looked") {
  CHECK(ask("v0.2", kExample).error().message().find("WORLD_SIZE, which is unset") != std::string::npos);
  CHECK(ask("v0.2", kExample, with_text("four")).error().message().find("which is 'four'") != std::string::npos);
  CHECK(ask("v0.2", kExample, with_text("0")).error().status() == Status::kInvalidArgument);
  CHECK(ask("v0.2", kExample, with_text("99999999999999999999")).error().status() == Status::kOutOfRange);
}

TEST_CASE("a world size that is given wins over the environment") {
  PlanQuestion question = at(4);
  question.world_size_text = "7";
  CHECK(ask("v0.2", kExample, question)->micro_batch == 6);
}

TEST_CASE("v0.2 answers a batch of 0 where no micro-batch fits, and the contract check refuses it") {
  const Result<Plan> plan = ask("v0.2", kExample, at(4000));
  REQUIRE(plan.has_value());
  CHECK(plan->global_batch == 0);
  const Result<Plan> checked = pliant::checked_plan(*plan, at(4000), "elasticity 'v0.2'");
  CHECK(checked.error().origin() == pliant::Origin::kPlugin);
  CHECK(checked.error().message() ==
        "elasticity 'v0.2' returned a global batch of 0 at world size 4000; it must be at least 1");
}

TEST_CASE("v0.2 answers a micro-batch above the batch where devices outnumber the rows, and the check refuses it") {
  const json options{{"max_train_batch_size", 17},
                     {"micro_batch_sizes", {1, 2, 8, 17}},
                     {"min_gpus", 28},
                     {"max_gpus", 39},
                     {"model_parallel_size", 6},
                     {"num_gpus_per_node", 6}};
  const Result<Plan> plan = ask("v0.2", options, with_text("36"));
  REQUIRE(plan.has_value());
  CHECK(plan->global_batch == 12);
  CHECK(sizes_of(*plan) == std::vector<int64_t>{4, 6});
  CHECK(plan->micro_batch == 17);
  const Result<Plan> checked = pliant::checked_plan(*plan, {}, "elasticity 'v0.2'");
  CHECK(checked.error().origin() == pliant::Origin::kPlugin);
}

TEST_CASE("a higher cap can leave fewer sizes, as the page on planning says") {
  json options{{"max_train_batch_size", 5879}, {"micro_batch_sizes", {5, 7}}};
  CHECK(sizes_of(*ask("v0.1", options)).size() == 45);
  options["max_train_batch_size"] = 5880;
  CHECK(sizes_of(*ask("v0.1", options)).size() == 40);
}
