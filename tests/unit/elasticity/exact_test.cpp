// The policy `exact` through the real ABI: against brute force, and what holds for every world size it lists.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>

#include "parity/parity.hpp"
#include "plan/policy.hpp"

using nlohmann::json;
using pliant::Plan;
using pliant::PlanQuestion;
using pliant::Result;
using pliant::Status;

namespace {

pliant::parity::Plugins& plugins() {
  static pliant::parity::Plugins opened(PLIANT_PLUGIN_DIR);
  return opened;
}

Result<Plan> ask_of(const std::string& policy, const json& options, int64_t world_size = 0) {
  auto instance = plugins().make("elasticity", policy, options);
  if (!instance) return tl::unexpected<pliant::Error>(instance.error());
  PlanQuestion question;
  question.world_size = world_size;
  auto plan = pliant::ask_policy(*instance, question);
  if (!plan) return plan;
  return pliant::checked_plan(std::move(*plan), question, "elasticity '" + policy + "'");
}

Result<Plan> ask(const json& options, int64_t world_size = 0) {
  return ask_of("exact", options, world_size);
}

json config(int64_t cap, std::vector<int64_t> micro_batches, int64_t low, int64_t high) {
  return {{"max_train_batch_size", cap},
          {"micro_batch_sizes", std::move(micro_batches)},
          {"min_gpus", low},
          {"max_gpus", high}};
}

/// Device-times of one step at `size` ranks, in rows, found by handing out the shares.
int64_t device_time(int64_t batch, int64_t granule, int64_t size, int64_t at_once) {
  int64_t slowest = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    const int64_t rows = pliant::share_of(batch, granule, size, rank).count;
    slowest = std::max(slowest, (rows + at_once - 1) / at_once * at_once);
  }
  return slowest * size;
}

struct Best {
  int64_t batch = 0;
  int64_t micro_batch = 0;
};

/// Every batch, every size, every share.
Best brute_force(const json& options, int64_t granule) {
  const auto cap = options["max_train_batch_size"].get<int64_t>();
  auto micro_batches = options["micro_batch_sizes"].get<std::vector<int64_t>>();
  const bool calls = options.value("cost", "rows") == "calls";
  std::sort(micro_batches.begin(), micro_batches.end());
  while (micro_batches.back() > cap) micro_batches.pop_back();
  const auto low = options["min_gpus"].get<int64_t>();
  const int64_t wanted_high = options["max_gpus"].get<int64_t>();
  const int64_t high = std::min(wanted_high, cap / granule);
  Best best;
  long double best_loss = 0;
  for (const int64_t micro : micro_batches) {  // ascending, so that of two that cost the same the larger is kept
    const int64_t smallest = std::max({micro, low * granule, wanted_high <= cap / granule ? wanted_high * granule : 0});
    for (int64_t batch = granule; batch <= cap; batch += granule) {
      if (batch < smallest) continue;
      long double loss = 0;
      for (int64_t size = low; size <= high; ++size) {
        const auto time = static_cast<long double>(device_time(batch, granule, size, calls ? micro : granule));
        loss += 1 - static_cast<long double>(batch) / time;
      }
      if (best.batch != 0 && loss > best_loss + 1e-15L) continue;
      best = {batch, micro};
      best_loss = loss;
    }
  }
  return best;
}

/// Part of the time of clusters of `low` to `high` ranks that computes rows, where the largest valid size that fits is
/// started.
double mean_efficiency(const Plan& plan, int64_t low, int64_t high) {
  double sum = 0;
  for (int64_t cluster = low; cluster <= high; ++cluster) {
    const int64_t started = plan.largest_valid(cluster);
    if (started == 0) continue;
    const auto slowest = static_cast<double>(pliant::share_of(plan.global_batch, plan.granule, started, 0).count);
    sum += static_cast<double>(plan.global_batch) / (static_cast<double>(cluster) * slowest);
  }
  return sum / static_cast<double>(high - low + 1);
}

json any_config() {
  auto micro_batches = *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 9)));
  if (micro_batches.size() > 3) micro_batches.resize(3);
  const int64_t least = *std::min_element(micro_batches.begin(), micro_batches.end());
  const int64_t common = std::accumulate(micro_batches.begin(), micro_batches.end(), int64_t{0},
                                         [](int64_t a, int64_t b) { return std::gcd(a, b); });
  const auto cap = *rc::gen::inRange<int64_t>(least, least + 80);
  const auto low = *rc::gen::inRange<int64_t>(1, cap / common + 1);
  const int64_t high = low + *rc::gen::inRange<int64_t>(0, 20);
  json made = config(cap, micro_batches, low, high);
  if (*rc::gen::arbitrary<bool>()) made["cost"] = "calls";
  return made;
}

}  // namespace

TEST_CASE("exact finds the batch and the micro-batch that brute force finds") {
  CHECK(rc::check([] {
    const json options = any_config();
    const Result<Plan> plan = ask(options);
    RC_ASSERT(plan.has_value());
    const Best best = brute_force(options, plan->granule);
    RC_ASSERT(plan->global_batch == best.batch);
    RC_ASSERT(plan->micro_batch == best.micro_batch);
  }));
}

TEST_CASE("over the clusters that it counts exact is never behind a plan of v0.1 that has room for as many") {
  int64_t compared = 0;
  CHECK(rc::check([&] {
    json options = any_config();
    options.erase("cost");
    if (*rc::gen::arbitrary<bool>()) options["max_gpus"] = 10000;  // as where none is given
    const Result<Plan> exact = ask(options);
    const Result<Plan> even = ask_of("v0.1", options);
    RC_ASSERT(exact.has_value());
    if (!even || even->world_sizes.empty()) return;
    const int64_t low = options["min_gpus"];
    const int64_t high = exact->largest_counted;
    RC_ASSERT(high == std::min(options["max_gpus"].get<int64_t>(),
                               options["max_train_batch_size"].get<int64_t>() / exact->granule));
    RC_ASSERT(even->world_sizes.front().first >= low);
    RC_ASSERT(even->world_sizes.back().last <= high);
    const bool has_room = even->global_batch / even->granule >= high || options["max_gpus"].get<int64_t>() > high;
    if (!has_room) return;
    ++compared;
    RC_ASSERT(mean_efficiency(*exact, low, high) >= mean_efficiency(*even, low, high) - 1e-12);
  }));
  CHECK(compared > 20);
}

TEST_CASE(
    "a batch below the largest micro-batch is taken where it is the best, with the largest that it has rows for") {
  const Result<Plan> plan = ask(config(3, {3, 1}, 1, 2));
  REQUIRE(plan.has_value());
  CHECK(plan->global_batch == 2);
  CHECK(plan->micro_batch == 1);
  CHECK(mean_efficiency(*plan, 1, 2) == doctest::Approx(1));
}

TEST_CASE("a batch that ends below the cap is the best over all that the cap has granules for") {
  const Result<Plan> plan = ask(config(24, {2, 3, 4}, 1, 10000));
  REQUIRE(plan.has_value());
  CHECK(plan->global_batch == 20);
  CHECK(plan->world_sizes == std::vector<pliant::WorldRange>{{1, 20}});
  CHECK(plan->largest_counted == 24);
  CHECK(mean_efficiency(*plan, 1, 24) == doctest::Approx(0.836).epsilon(0.001));
  // Over what it lists alone 24 rows would be better, which lose more beyond.
  const Result<Plan> listed = ask(config(24, {2, 3, 4}, 1, 20));
  REQUIRE(listed.has_value());
  CHECK(listed->global_batch == 24);
  CHECK(listed->largest_counted == 20);
  CHECK(mean_efficiency(*listed, 1, 20) > mean_efficiency(*plan, 1, 20));
  CHECK(mean_efficiency(*listed, 1, 24) < mean_efficiency(*plan, 1, 24));
}

TEST_CASE("every size from min to max is valid, has every row once, and shares differ by at most a granule") {
  CHECK(rc::check([] {
    const json options = any_config();
    const Result<Plan> plan = ask(options);
    RC_ASSERT(plan.has_value());
    const int64_t last = std::min(options["max_gpus"].get<int64_t>(), plan->global_batch / plan->granule);
    RC_ASSERT(plan->world_sizes == (std::vector<pliant::WorldRange>{{options["min_gpus"].get<int64_t>(), last}}));
    for (int64_t size = plan->world_sizes.front().first; size <= last; ++size) {
      const Result<Plan> same = ask(options, size);
      RC_ASSERT(same.has_value());
      RC_ASSERT(same->global_batch == plan->global_batch);
      RC_ASSERT(same->micro_batch == plan->micro_batch);
      int64_t rows = 0;
      for (int64_t rank = 0; rank < size; ++rank) {
        const auto share = pliant::share_of(plan->global_batch, plan->granule, size, rank);
        RC_ASSERT(share.first == rows);
        RC_ASSERT(share.count >= plan->global_batch / plan->granule / size * plan->granule);
        RC_ASSERT(share.count <= (plan->global_batch / plan->granule / size + 1) * plan->granule);
        rows += share.count;
      }
      RC_ASSERT(rows == plan->global_batch);
    }
  }));
}

TEST_CASE("the order and the repetition of micro_batch_sizes change nothing") {
  CHECK(rc::check([] {
    json options = any_config();
    const Result<Plan> plan = ask(options);
    auto sizes = options["micro_batch_sizes"].get<std::vector<int64_t>>();
    sizes.push_back(sizes.front());
    std::reverse(sizes.begin(), sizes.end());
    options["micro_batch_sizes"] = sizes;
    const Result<Plan> other = ask(options);
    RC_ASSERT(other->global_batch == plan->global_batch);
    RC_ASSERT(other->micro_batch == plan->micro_batch);
  }));
}

TEST_CASE("DeepSpeed's example has a mean efficiency of 94 %, where v0.1 leaves most sizes out") {
  const Result<Plan> plan = ask(config(2000, {2, 4, 6}, 1, 256));
  REQUIRE(plan.has_value());
  double efficiency = 0;
  for (int64_t size = 1; size <= 256; ++size) {
    const auto time = static_cast<double>(device_time(plan->global_batch, plan->granule, size, 1));
    efficiency += static_cast<double>(plan->global_batch) / time / 256;
  }
  CAPTURE(plan->global_batch);
  CHECK(efficiency > 0.94);
  CHECK(plan->world_sizes == std::vector<pliant::WorldRange>{{1, 256}});
  CHECK(plan->micro_batch == 6);
}

TEST_CASE("world sizes count model-parallel groups, by whole nodes when asked") {
  json options = config(1000, {1}, 10, 40);
  options["model_parallel_size"] = 4;
  Result<Plan> plan = ask(options);
  REQUIRE(plan.has_value());
  CHECK(plan->model_parallel_size == 4);
  CHECK(plan->world_sizes == std::vector<pliant::WorldRange>{{3, 10}});
  options["num_gpus_per_node"] = 8;
  options["whole_nodes"] = true;
  plan = ask(options);
  REQUIRE(plan.has_value());
  CHECK(plan->world_sizes == std::vector<pliant::WorldRange>{{4, 10, 2}});
  CHECK(ask(options, 6).has_value());
  CHECK(ask(options, 5).error().status() == Status::kIncompatibleWorldSize);
}

TEST_CASE("a weighted size that the batch suits draws the choice to it") {
  json options = config(70, {1}, 1, 16);
  options["weighted_sizes"] = {7, 11};
  options["weights"] = {1000, 1};
  CHECK(ask(options)->global_batch == 63);
  options["weights"] = {1, 1000};
  CHECK(ask(options)->global_batch == 55);
}

TEST_CASE("the largest numbers are planned or refused by name") {
  const int64_t huge = int64_t{1} << 62;
  const Result<Plan> plan = ask(config(huge, {8}, 1, int64_t{1} << 31));
  REQUIRE(plan.has_value());
  CHECK(plan->global_batch == huge);
  json options = config(huge, {huge / 2, huge / 4}, 1, 2);
  options["granule"] = 1;
  options["cost"] = "calls";
  const Result<Plan> calls = ask(options);
  CHECK(calls.has_value());
  options["max_gpus"] = 10000;
  CHECK(ask(options).error().message().find("63 bits") != std::string::npos);
}

TEST_CASE("a search that would take very long is not begun: the largest batch is taken") {
  std::vector<int64_t> micros(10000);
  std::iota(micros.begin(), micros.end(), 1);
  json options = config(2000000, micros, 1, 1000000);
  options["cost"] = "calls";
  const auto begin = std::clock();  // of this process: other programs on the machine take no part in it
  const Result<Plan> many_micros = ask(options);
  REQUIRE(many_micros.has_value());
  CHECK(many_micros->global_batch == 2000000);
  CHECK(many_micros->micro_batch == 10000);
  // Sizes far above the range of batches that is looked at: no batch is clearly better than its neighbours.
  std::vector<int64_t> sizes(2000);
  std::iota(sizes.begin(), sizes.end(), int64_t{1} << 40);
  options = config(int64_t{1} << 41, {1}, 1, int64_t{1} << 41);
  options["weighted_sizes"] = sizes;
  CHECK(ask(options)->global_batch > int64_t{1} << 40);
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 5);
}

TEST_CASE("what cannot be planned is refused with what would do") {
  const auto words = [](json options, const json& change) {
    options.update(change);
    const Result<Plan> plan = ask(options);
    return plan ? std::string("planned") : plan.error().message();
  };
  const json good = config(100, {2, 4}, 1, 10);
  CHECK(words(good, {{"min_gpus", 11}}).find("more than max_gpus") != std::string::npos);
  CHECK(words(good, {{"micro_batch_sizes", {200}}}).find("above max_train_batch_size 100") != std::string::npos);
  CHECK(words(good, {{"granule", 4}}).find("2 and its divisors do") != std::string::npos);
  CHECK(words(good, {{"min_gpus", 51}, {"max_gpus", 60}}).find("51 ranks cannot share 50 granules") !=
        std::string::npos);
  CHECK(words(good, {{"whole_nodes", true}, {"num_gpus_per_node", 8}, {"model_parallel_size", 3}})
            .find("does not divide num_gpus_per_node 8") != std::string::npos);
  CHECK(words(good, {{"whole_nodes", true}, {"num_gpus_per_node", 16}}).find("no multiple of 16") != std::string::npos);
  CHECK(words(good, {{"weighted_sizes", {11}}}).find("valid are 1 to 10") != std::string::npos);
  CHECK(words(good, {{"weights", {11}}}).find("give one for each") != std::string::npos);
}
