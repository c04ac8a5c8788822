// Rows of compute_elastic_config: the adapter plays that function's outer part, the policy plugin does the planning.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <variant>

#include "config/instances.hpp"
#include "parity/elasticity_rules.hpp"
#include "parity/parity.hpp"
#include "parity/python.hpp"
#include "parity/sha256.hpp"
#include "parity/status_classes.hpp"
#include "plan/policy.hpp"
#include "pliant/import.hpp"

namespace pliant::parity {
namespace {

constexpr double kVersion01 = 0.1;
constexpr double kVersion02 = 0.2;
constexpr int64_t kMostSizes = 10'000'000;  // listed for comparison; no policy of these rows comes near

struct Answer {
  Plan plan;
  bool has_micro_batch = false;  ///< the reference would return a third value
};

tl::unexpected<Error> refused(std::string message) {
  return failed(Status::kInvalidArgument, std::move(message));
}

/// The options of the row that the policy declares; the reference ignores all others.
Json declared(const Json& block, const std::vector<pliant_option>& options) {
  Json kept = Json::object();
  for (const pliant_option& option : options) {
    if (block.contains(option.key)) kept[option.key] = block[option.key];
  }
  return kept;
}

/// What the reference does with a version that no policy has, after the options were found right.
tl::unexpected<Error> no_such_version(double version, const Json& block) {
  const bool parallel = block.contains("model_parallel_size") && block["model_parallel_size"] > 1;
  if (parallel) return refused(fmt::format("version {} has no model parallelism", version));
  if (version > kVersion02) return refused(fmt::format("version {} is newer than 0.2", version));
  return failed(Status::kNotFound, fmt::format("no policy has version {}", version));
}

PlanQuestion question_of(const Json& row) {
  PlanQuestion question;
  question.world_size = row["world_size"].get<int64_t>();
  question.want_micro_batch = is_true(row["return_microbatch"]);
  if (row["env"].contains("WORLD_SIZE")) question.world_size_text = row["env"]["WORLD_SIZE"].get<std::string>();
  return question;
}

std::string policy_of(const Json& block) {
  const std::optional<double> version = as_float(block.value("version", Json(kVersion02)));
  return version && *version == kVersion01 ? "v0.1" : "v0.2";
}

/// The policy with the options that stand in the row, and the outer part of the reference's function.
Result<plugin::Instance> policy_of_row(const Json& config, Plugins& plugins, const Options& options) {
  if (!config.is_object()) return refused("the config is no object");
  if (!config.contains("elasticity")) return refused("the config has no elasticity block");
  const Json& block = config["elasticity"];
  if (!block.is_object()) return refused("the elasticity block is no object");
  if (!is_true(block.value("enabled", Json(false)))) return refused("elasticity is not enabled");
  const std::optional<double> version = as_float(block.value("version", Json(kVersion02)));
  if (!version) return refused("the version is no number");
  const std::string name = policy_of(block);
  auto plugin = plugins.open("elasticity", name);
  if (!plugin) return failed(std::move(plugin));
  Json table = declared(block, (*plugin)->options());
  if (options.lcm_may_exceed_max) table["lcm_may_exceed_max"] = true;
  Result<plugin::Instance> policy = plugins.make("elasticity", name, table);
  if (policy && *version != kVersion01 && *version != kVersion02) return no_such_version(*version, table);
  return policy;
}

/// The policy of the TOML that a user gets for the row's config.
Result<plugin::Instance> imported_policy(const Json& config, Plugins& plugins) {
  try {
    const ImportedConfig imported = import_deepspeed(python_json(config), "row");
    Result<Config> opened = plugins.open_config(imported.toml, {"elasticity"});
    return opened ? config::instantiate(*opened, "elasticity") : failed(std::move(opened));
  } catch (const Error& error) {
    return tl::unexpected<Error>(error);
  }
}

Result<Answer> answer(const Json& row, Plugins& plugins, const Options& options) {
  const Json& config = row["config"];
  const Result<plugin::Instance> policy =
      options.through_import ? imported_policy(config, plugins) : policy_of_row(config, plugins, options);
  if (!policy) return tl::unexpected<Error>(policy.error());
  if (!row["world_size"].is_number_integer() || !fits(row["world_size"])) return refused("the world size is no int64");
  const PlanQuestion question = question_of(row);
  Result<Plan> plan = ask_policy(*policy, question);
  if (!plan) return failed(std::move(plan));
  return Answer{std::move(*plan), question.world_size > 0 || question.want_micro_batch};
}

std::vector<int64_t> sizes_of(const Plan& plan) {
  std::vector<int64_t> sizes;
  for (const WorldRange& range : plan.world_sizes) {
    for (int64_t size = range.first; size <= range.last && std::ssize(sizes) < kMostSizes; size += range.step)
      sizes.push_back(size);
  }
  return sizes;
}

/// v0.1 answers no list at all, rather than an empty one, exactly when nothing beat its start, the smallest
/// micro-batch.
bool undecided(const Json& row, const Plan& plan) {
  const Json& micro_batches = row["config"]["elasticity"]["micro_batch_sizes"];
  return plan.world_sizes.empty() &&
         plan.global_batch == std::min_element(micro_batches.begin(), micro_batches.end())->get<int64_t>();
}

/// The answer in the shape of the row's `out`; the list in the shape that `expected` has.
Json in_shape_of(const Json& expected, const Json& row, const Answer& answer) {
  const std::vector<int64_t> sizes = sizes_of(answer.plan);
  Json list{{"n", sizes.size()}};
  if (expected.is_object() && expected.contains("sha256")) {
    const auto shown = static_cast<std::ptrdiff_t>(std::min<size_t>(8, sizes.size()));
    list["first"] = std::vector<int64_t>(sizes.begin(), sizes.begin() + shown);
    list["last"] = std::vector<int64_t>(sizes.end() - shown, sizes.end());
    list["sha256"] = sha256(fmt::format("{}", fmt::join(sizes, ",")));
  } else {
    list["all"] = sizes;
  }
  Json shaped{{"final_batch_size", answer.plan.global_batch},
              {"valid_gpus", undecided(row, answer.plan) ? Json() : list}};
  if (answer.has_micro_batch) {
    shaped["micro_batch_size"] = answer.plan.micro_batch == 0 ? Json() : Json(answer.plan.micro_batch);
  }
  return shaped;
}

/// A plan with a batch and sizes of at least 1 must also be one that make_plan takes. v0.2 has one more oddity, only
/// where it picks the micro-batch itself: any micro-batch divides the share of a device that gets no row.
std::string contract_fault(const Plan& plan, const Json& row) {
  if (plan.global_batch < 1 || (!plan.world_sizes.empty() && plan.world_sizes.front().first < 1)) return {};
  if (plan.micro_batch > plan.global_batch && row["world_size"] == 0) return {};
  PlanQuestion question;
  question.world_size = row["world_size"].get<int64_t>();
  const Result<Plan> checked = checked_plan(plan, question, "the policy");
  return checked ? std::string{} : checked.error().message();
}

Outcome excused(const Json& row, Plugins& plugins, const Options& options, const std::string& expected,
                const std::string& actual) {
  const Json& config = row["config"];
  const bool has_block = config.is_object() && config.contains("elasticity") && config["elasticity"].is_object();
  auto plugin = plugins.open("elasticity", has_block ? policy_of(config["elasticity"]) : "v0.2");
  const std::string rule = plugin ? rule_for(row, (*plugin)->options()) : std::string{};
  // Import writes what TOML can say in place of what it cannot, so nothing is left to excuse by its type.
  const bool excuses = !rule.empty() && !(options.through_import && rule == "typed-option");
  return !excuses ? Outcome::failed(expected, actual) : Outcome::skipped(rule);
}

Outcome check_elasticity(const Json& row, Plugins& plugins, const Options& options) {
  const Json& expected = options.lcm_may_exceed_max && row.contains("out_seed") ? row["out_seed"] : row["out"];
  const Result<Answer> actual = answer(row, plugins, options);
  if (!actual) {
    const Error& error = actual.error();
    const std::string refusal = fmt::format("{}: {}", name_of(error.status()), error.message());
    if (!expected.contains("error")) return excused(row, plugins, options, expected.dump(), refusal);
    const auto type = expected["error"]["type"].get<std::string>();
    if (error.origin() != Origin::kPlugin && same_class(type, error.status())) return Outcome::passed();
    return excused(row, plugins, options, expected.dump(), refusal);
  }
  const Json shaped = in_shape_of(expected.value("valid_gpus", Json()), row, *actual);
  if (expected.contains("error")) {
    return has_old_target(row) ? Outcome::skipped("target-version") : Outcome::failed(expected.dump(), shaped.dump());
  }
  if (shaped != expected) return Outcome::failed(expected.dump(), shaped.dump());
  const std::string fault = contract_fault(actual->plan, row);
  return fault.empty() ? Outcome::passed() : Outcome::failed("a plan that keeps the contract", fault);
}

bool matches(const Json& row) {
  for (const char* key : {"config", "target_version", "world_size", "return_microbatch", "env", "out"}) {
    if (!row.contains(key)) return false;
  }
  return row["env"].is_object() && row["out"].is_object();
}

}  // namespace

std::vector<RowKind> elasticity_rows() {
  return {{"elasticity", &matches, elasticity_rules(), &check_elasticity}};
}

}  // namespace pliant::parity
