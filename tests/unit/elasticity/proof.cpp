// The properties of each policy.
#include "proof.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "parity/parity.hpp"
#include "plan/policy.hpp"
#include "plan_cases.hpp"

namespace proof {
namespace {

using cases::Random;
using nlohmann::json;
using pliant::Plan;
using pliant::Result;

Result<Plan> ask(const std::string& policy, const json& options, int64_t size = 0, int64_t devices = 0) {
  static pliant::parity::Plugins opened = [] {
    setenv("PLIANT_LOG", "error", 0);  // policies warn about odd configs
    return pliant::parity::Plugins(PLIANT_PLUGIN_DIR);
  }();
  auto instance = opened.make("elasticity", policy, options);
  if (!instance) return tl::unexpected<pliant::Error>(instance.error());
  pliant::PlanQuestion question;
  question.world_size = size;
  if (devices > 0) question.world_size_text = std::to_string(devices);
  return pliant::ask_policy(*instance, question);
}

std::vector<int64_t> sizes_of(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const auto& range : plan.world_sizes) {
    for (int64_t size = range.first; size <= range.last; size += range.step) sizes.push_back(size);
  }
  return sizes;
}

/// Rows add up and no share is more than a granule larger than another.
bool shares_work(const Plan& plan, int64_t size) {
  int64_t rows = 0;
  int64_t least = plan.global_batch;
  int64_t most = 0;
  for (int64_t rank = 0; rank < size; ++rank) {
    const pliant::RowRange share = pliant::share_of(plan.global_batch, plan.granule, size, rank);
    if (share.first != rows) return false;
    rows += share.count;
    least = std::min(least, share.count);
    most = std::max(most, share.count);
  }
  return rows == plan.global_batch && least > 0 && most - least <= plan.granule;
}

/// One of the sizes, asked for: the same plan, and a micro-batch that the size can use.
std::string fault_at(const std::string& policy, const json& options, const Plan& plan, int64_t size, bool evenly) {
  const Result<Plan> same = ask(policy, options, size);
  if (!same) return "size refused: " + same.error().message();
  if (same->global_batch != plan.global_batch || same->world_sizes != plan.world_sizes) return "another plan at a size";
  if (same->micro_batch < 1) return "no micro-batch at a size";
  if (evenly && plan.global_batch % (size * same->micro_batch) != 0) return "shares are no whole micro-batches";
  return shares_work(*same, size) ? "" : "shares do not work at a size";
}

std::string check_deepspeed(Random& random, const std::string& policy, json& options, bool& planned) {
  const bool nodes = policy == "v0.2";
  const oracle::Config config = nodes ? cases::deepspeed_nodes(random) : cases::deepspeed(random);
  options = cases::options_of(config);
  if (!nodes) options.erase("model_parallel_size");
  const int64_t devices = nodes && !config.strict ? random.in(1, random.one_in(2) ? 40 : 700) : 0;
  const Result<Plan> plan = ask(policy, options, 0, devices);
  const std::optional<oracle::Plan> expected = !nodes          ? oracle::v01(config)
                                               : config.strict ? oracle::v02_strict(config)
                                                               : oracle::v02(config, devices);
  if (plan.has_value() != expected.has_value()) return plan ? "planned" : "refused: " + plan.error().message();
  planned = plan.has_value();
  if (!planned) return "";
  const std::vector<int64_t> sizes = sizes_of(*plan);
  if (plan->global_batch != expected->batch || sizes != expected->sizes) {
    return fmt::format("for {} devices batch {} with {} sizes, not {} with {}", devices, plan->global_batch,
                       sizes.size(), expected->batch, expected->sizes.size());
  }
  if (nodes && !config.strict && plan->micro_batch != expected->micro_batch) {
    return fmt::format("for {} devices micro-batch {}, not {}", devices, plan->micro_batch, expected->micro_batch);
  }
  if (!sizes.empty() && (!nodes || config.strict)) {
    const int64_t size = sizes[static_cast<size_t>(random.in(0, std::ssize(sizes) - 1))];
    if (std::string fault = fault_at(policy, options, *plan, size, true); !fault.empty()) return fault;
  }
  if (nodes && !config.strict) return "";  // its choice of a micro-batch takes the first in the list
  json other = options;
  other["micro_batch_sizes"] = cases::shuffled(config.micro_batches, random);
  const Result<Plan> again = ask(policy, other);
  if (!again || again->global_batch != plan->global_batch || again->world_sizes != plan->world_sizes) {
    return "the order of micro_batch_sizes matters";
  }
  options["min_gpus"] = std::max<int64_t>(1, config.low - random.in(0, 9));
  options["max_gpus"] = config.high + random.in(0, 90);
  const Result<Plan> wider = ask(policy, options);
  return wider && sizes_of(*wider).size() >= sizes.size() ? "" : "wider limits leave fewer sizes";
}

/// a's share of idle time is at most b's.
bool no_worse(const oracle::ExactConfig& config, const std::vector<int64_t>& sizes, const Plan& a, const Plan& b) {
  return !oracle::clearly_less(oracle::loss_of(config, sizes, b.global_batch, b.micro_batch),
                               oracle::loss_of(config, sizes, a.global_batch, a.micro_batch));
}

/// With the same sizes counted.
std::string check_exact_grows(Random& random, const oracle::ExactConfig& config, const oracle::ExactPlan& expected,
                              const Plan& plan, json& options) {
  const int64_t largest = *std::max_element(config.micro_batches.begin(), config.micro_batches.end());
  if (largest > config.cap || config.max_devices > config.cap / plan.granule * config.model_parallel) return "";
  options["max_train_batch_size"] = config.cap + random.in(0, 50);
  const Result<Plan> grown = ask("exact", options);
  if (!grown || !no_worse(config, expected.counted, *grown, plan)) return "a higher cap is worse";
  if (config.weighted_sizes.empty()) return "";
  options["max_train_batch_size"] = config.cap;
  const int64_t used = *std::max_element(config.weighted_sizes.begin(), config.weighted_sizes.end());
  options["max_gpus"] = used * config.model_parallel;
  const Result<Plan> lower = ask("exact", options);
  return lower && no_worse(config, expected.counted, *lower, plan) ? "" : "a lower floor is worse";
}

std::string check_exact(Random& random, json& options, bool& planned) {
  const oracle::ExactConfig config = cases::exact(random);
  options = cases::options_of(config);
  const Result<Plan> plan = ask("exact", options);
  const std::optional<oracle::ExactPlan> expected = oracle::exact(config);
  if (plan.has_value() != expected.has_value()) return plan ? "planned" : "refused: " + plan.error().message();
  planned = plan.has_value();
  if (!planned) return "";
  const std::vector<int64_t> sizes = sizes_of(*plan);
  if (plan->global_batch != expected->batch || plan->micro_batch != expected->micro_batch || sizes != expected->sizes) {
    return fmt::format("batch {}, micro-batch {}, {} sizes, not {}, {}, {}", plan->global_batch, plan->micro_batch,
                       sizes.size(), expected->batch, expected->micro_batch, expected->sizes.size());
  }
  for (const int64_t size : {sizes.front(), sizes.back()}) {
    if (std::string fault = fault_at("exact", options, *plan, size, false); !fault.empty()) return fault;
  }
  json other = options;
  other["micro_batch_sizes"] = cases::shuffled(config.micro_batches, random);
  const Result<Plan> again = ask("exact", other);
  if (!again || again->global_batch != plan->global_batch || again->micro_batch != plan->micro_batch) {
    return "the order of micro_batch_sizes matters";
  }
  return check_exact_grows(random, config, *expected, *plan, options);
}

/// Every size that a plan of v0.1 or strict v0.2 lists shares the batch by whole micro-batches.
std::string sizes_fault(const Plan& plan, const std::vector<int64_t>& micro_batches) {
  for (const int64_t size : sizes_of(plan)) {
    const bool shared = std::any_of(micro_batches.begin(), micro_batches.end(), [&](int64_t micro) {
      return plan.global_batch % size == 0 && plan.global_batch / size % micro == 0;
    });
    if (!shared) return fmt::format("{} ranks cannot share {} rows", size, plan.global_batch);
  }
  return "";
}

std::string check_extreme(Random& random, std::string& policy, json& options, bool& planned) {
  policy = std::vector<std::string>{"v0.1", "v0.2", "exact"}[static_cast<size_t>(random.in(0, 2))];
  options = cases::extreme(random, policy);
  const bool fallback = policy == "v0.2" && !options["strict"].get<bool>();
  const int64_t devices = fallback ? random.in(1, int64_t{1} << random.in(1, 62)) : 0;
  const Result<Plan> plan = ask(policy, options, 0, devices);
  if (!plan) {
    const bool known = plan.error().status() == pliant::Status::kOutOfRange ||
                       plan.error().status() == pliant::Status::kInvalidArgument;
    return known && plan.error().origin() == pliant::Origin::kInput ? "" : "refused: " + plan.error().message();
  }
  planned = true;
  if (fallback) return "";  // rule 0.2 answers from doubles here, and below 1 where no micro-batch fits
  const Result<Plan> checked = pliant::checked_plan(*plan, {}, "the policy");
  if (!checked) return checked.error().message();
  const auto cap = options["max_train_batch_size"].get<int64_t>();
  if (plan->global_batch > cap && !options.value("lcm_may_exceed_max", false)) return "the batch exceeds the cap";
  if (plan->world_sizes.empty()) return policy == "v0.1" && !options["strict"].get<bool>() ? "" : "no sizes";
  const auto parallel = options.value("model_parallel_size", int64_t{1});
  const int64_t first = plan->world_sizes.front().first;
  const int64_t last = plan->world_sizes.back().last;
  if (first < (options["min_gpus"].get<int64_t>() - 1) / parallel + 1) return "a size below min_gpus";
  if (last > options["max_gpus"].get<int64_t>() / parallel) return "a size above max_gpus";
  if (policy == "exact") return "";
  return sizes_fault(*plan, options["micro_batch_sizes"].get<std::vector<int64_t>>());
}

}  // namespace

const std::vector<std::string>& subjects() {
  static const std::vector<std::string> kSubjects{"v0.1", "v0.2", "exact", "extreme"};
  return kSubjects;
}

Outcome check(const std::string& subject, uint64_t number) {
  Random random(number * 0x2545f4914f6cdd1dU);
  std::string policy = subject;
  json options;
  Outcome outcome;
  std::string fault;
  if (subject == "extreme") {
    fault = check_extreme(random, policy, options, outcome.planned);
  } else if (subject == "exact") {
    fault = check_exact(random, options, outcome.planned);
  } else {
    fault = check_deepspeed(random, policy, options, outcome.planned);
  }
  if (!fault.empty()) {
    outcome.counterexample = fmt::format("{} {}: {}\n{}", subject, number, fault, cases::toml_of(policy, options));
  }
  return outcome;
}

}  // namespace proof
