// Each documented fault of DeepSpeed's rules: what the reference answers, and what strict = true answers.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "oracle.hpp"
#include "parity/parity.hpp"
#include "plan/policy.hpp"

using nlohmann::json;
using pliant::Plan;
using pliant::PlanQuestion;
using pliant::Result;
using pliant::Status;

namespace {

Result<Plan> ask(const std::string& policy, json options, bool strict, int64_t world_size = 0,
                 std::optional<std::string> text = std::nullopt) {
  static pliant::parity::Plugins opened(PLIANT_PLUGIN_DIR);
  options["strict"] = strict;
  auto instance = opened.make("elasticity", policy, options);
  if (!instance) return tl::unexpected<pliant::Error>(instance.error());
  PlanQuestion question;
  question.world_size = world_size;
  question.want_micro_batch = world_size > 0;
  question.world_size_text = std::move(text);
  return pliant::ask_policy(*instance, question);
}

std::vector<int64_t> strict_sizes_of(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const auto& range : plan.world_sizes) {
    for (int64_t size = range.first; size <= range.last; size += range.step) sizes.push_back(size);
  }
  return sizes;
}

json nodes(int64_t per_node, int64_t model_parallel, int64_t low, int64_t high) {
  return {{"max_train_batch_size", 2000},
          {"micro_batch_sizes", {2, 4, 6}},
          {"num_gpus_per_node", per_node},
          {"model_parallel_size", model_parallel},
          {"min_gpus", low},
          {"max_gpus", high}};
}

}  // namespace

TEST_CASE("batch 0: the reference answers it, strict refuses") {
  CHECK(ask("v0.2", nodes(1, 1, 1, 10000), false, 4000)->global_batch == 0);
  const Result<Plan> refused = ask("v0.2", nodes(1, 1, 1, 10000), true, 4000);
  CHECK(refused.error().status() == Status::kIncompatibleWorldSize);
}

TEST_CASE("a micro-batch that is wanted where no world size is given is refused, for it depends on it") {
  pliant::parity::Plugins opened(PLIANT_PLUGIN_DIR);
  json options = nodes(1, 1, 1, 10000);
  options["strict"] = true;
  auto instance = opened.make("elasticity", "v0.2", options);
  REQUIRE(instance.has_value());
  PlanQuestion question;
  CHECK(pliant::ask_policy(*instance, question).has_value());
  question.want_micro_batch = true;
  CHECK(pliant::ask_policy(*instance, question).error().status() == Status::kFailedPrecondition);
}

TEST_CASE("max_gpus below a node: the reference takes it for no limit, strict refuses") {
  CHECK(strict_sizes_of(*ask("v0.2", nodes(8, 1, 1, 4), false, 8)).back() > 8);
  CHECK(ask("v0.2", nodes(8, 1, 1, 4), true).error().message().find("no size from min_gpus 1 to max_gpus 4") !=
        std::string::npos);
}

TEST_CASE("min_gpus between two nodes: the reference lists smaller sizes, strict does not") {
  CHECK(strict_sizes_of(*ask("v0.2", nodes(8, 1, 15, 10000), false, 8)).front() == 8);
  CHECK(strict_sizes_of(*ask("v0.2", nodes(8, 1, 15, 10000), true)).front() == 16);
}

TEST_CASE(
    "model parallelism: the reference mixes up devices and ranks, strict counts ranks and shares out whole rows") {
  json options = nodes(8, 4, 32, 1500);
  options["max_train_batch_size"] = 10000;
  options["micro_batch_sizes"] = {8, 12, 16, 17};
  // 16 devices are 4 ranks, and 16 does not divide their share of 9996 / 4 rows.
  const Result<Plan> reference = ask("v0.2", options, false, 0, "16");
  CHECK(reference->global_batch == 9996);
  CHECK(reference->micro_batch == 16);
  CHECK(reference->global_batch / 4 % reference->micro_batch != 0);
  const Result<Plan> strict = ask("v0.2", options, true, 8);
  REQUIRE(strict.has_value());
  CHECK(strict->global_batch % (8 * strict->micro_batch) == 0);
  CHECK(strict->model_parallel_size == 4);
}

TEST_CASE("a size outside the list: the reference drifts to another batch beyond the limits, strict refuses") {
  const Result<Plan> drifted = ask("v0.2", nodes(8, 1, 8, 64), false, 7);
  CHECK(drifted->global_batch == 1988);
  CHECK(strict_sizes_of(*drifted) == std::vector<int64_t>{7});
  CHECK(ask("v0.2", nodes(8, 1, 8, 64), false, 8)->global_batch != 1988);
  CHECK(ask("v0.2", nodes(8, 1, 8, 64), true, 7).error().status() == Status::kIncompatibleWorldSize);
}

TEST_CASE("the table that ends at 720720: the reference's batch stops growing, strict's does not") {
  const json options{{"max_train_batch_size", 2000000}, {"micro_batch_sizes", {1}}};
  CHECK(ask("v0.1", options, false)->global_batch == 720720);
  CHECK(ask("v0.1", options, true)->global_batch == 1441440);
}

TEST_CASE("no size that can share the batch: the reference answers an empty list, strict refuses") {
  const json options{{"max_train_batch_size", 8}, {"micro_batch_sizes", {8}}, {"min_gpus", 3}, {"max_gpus", 4}};
  CHECK(ask("v0.1", options, false)->world_sizes.empty());
  CHECK(ask("v0.1", options, true).error().status() == Status::kOutOfRange);
}

TEST_CASE("strict v0.2 does not read WORLD_SIZE") {
  CHECK(ask("v0.2", nodes(8, 1, 1, 10000), false).error().status() == Status::kInvalidArgument);
  CHECK(ask("v0.2", nodes(8, 1, 1, 10000), true, 0, "nonsense").has_value());
}

TEST_CASE(
    "every size that a strict rule lists works: one batch, whole micro-batches, within the limits, in any order") {
  CHECK(rc::check([] {
    const auto per_node = *rc::gen::inRange<int64_t>(1, 9);
    json options{{"max_train_batch_size", *rc::gen::inRange<int64_t>(12, 3000)},
                 {"micro_batch_sizes", *rc::gen::element(std::vector<int64_t>{2, 4, 6}, std::vector<int64_t>{3, 1},
                                                         std::vector<int64_t>{5, 12, 4})}};
    const std::string policy = *rc::gen::element<std::string>("v0.1", "v0.2");
    const int64_t low = *rc::gen::inRange<int64_t>(1, 40);
    options["min_gpus"] = low;
    options["max_gpus"] = low + *rc::gen::inRange<int64_t>(0, 500);
    int64_t model_parallel = 1;
    if (policy == "v0.2") {
      options["num_gpus_per_node"] = per_node;
      model_parallel = per_node % 2 == 0 ? *rc::gen::element<int64_t>(1, 2) : 1;
      options["model_parallel_size"] = model_parallel;
    }
    const Result<Plan> plan = ask(policy, options, true);
    if (!plan) return;
    RC_ASSERT(plan->global_batch <= options["max_train_batch_size"].get<int64_t>());
    for (const int64_t size : strict_sizes_of(*plan)) {
      const Result<Plan> same = ask(policy, options, true, size);
      RC_ASSERT(same.has_value());
      RC_ASSERT(same->global_batch == plan->global_batch);
      RC_ASSERT(plan->global_batch % (size * same->micro_batch) == 0);
      RC_ASSERT(size * model_parallel >= options["min_gpus"].get<int64_t>());
      RC_ASSERT(size * model_parallel <= options["max_gpus"].get<int64_t>());
    }
    auto micro_batches = options["micro_batch_sizes"].get<std::vector<int64_t>>();
    std::reverse(micro_batches.begin(), micro_batches.end());
    options["micro_batch_sizes"] = micro_batches;
    const Result<Plan> reversed = ask(policy, options, true);
    RC_ASSERT(reversed->global_batch == plan->global_batch);
    RC_ASSERT(reversed->world_sizes == plan->world_sizes);
  }));
}
