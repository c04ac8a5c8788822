// make_plan: config -> policy -> checked plan, after the scheduler's block was held against the config's.
#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "config/parse.hpp"
#include "plan/policy.hpp"
#include "plan/scheduler.hpp"
#include "pliant/plan.hpp"
#include "plugin/plugin.hpp"

namespace pliant {
namespace {

/// The options of a DeepSpeed policy as the block that a scheduler would have seen; nullopt for other policies, which
/// no DeepSpeed scheduler can size.
std::optional<std::string> deepspeed_block(const Config& config) {
  const std::string& policy = config.use("elasticity");
  if (policy != "v0.1" && policy != "v0.2") return std::nullopt;
  const std::string text = config.resolved_toml();
  config::Diagnostics diagnostics("resolved config", text);
  const std::optional<config::Value> root = config::parse_document(text, diagnostics);
  const config::Value* options = root ? config::at(*root, {"elasticity", policy}) : nullptr;
  nlohmann::json block{{"enabled", true}, {"version", policy == "v0.1" ? 0.1 : 0.2}};
  if (options == nullptr) return block.dump();
  if (const config::Value* cap = options->find("max_train_batch_size"); cap != nullptr) {
    block["max_train_batch_size"] = cap->integer;
  }
  if (const config::Value* sizes = options->find("micro_batch_sizes"); sizes != nullptr) {
    block["micro_batch_sizes"] = nlohmann::json::array();
    for (const config::Value& size : sizes->items) block["micro_batch_sizes"].push_back(size.integer);
  }
  return block.dump();
}

Result<> agree_with_scheduler(const Config& config) {
  const std::vector<SchedulerBlock> blocks = scheduler_blocks();
  if (blocks.empty()) return {};
  const std::optional<std::string> block = deepspeed_block(config);
  if (!block) return {};
  Result<SchedulerView> view = ensure_same_elasticity(*block, blocks);
  if (!view) return failed(std::move(view));
  return {};
}

Result<Plan> planned(const Config& config, int64_t world_size) {
  if (world_size < 0) {
    return failed(Status::kInvalidArgument,
                  fmt::format("world size {} is negative; give at least 1, or 0 for none in particular", world_size),
                  ExitCode::kUsage);
  }
  if (Result<> agreed = agree_with_scheduler(config); !agreed) return tl::unexpected<Error>(agreed.error());
  Result<plugin::Instance> policy = plugin::instantiate(config, "elasticity");
  if (!policy) return failed(std::move(policy));
  PlanQuestion question;
  question.world_size = world_size;
  question.want_micro_batch = world_size > 0;
  if (const char* text = std::getenv("WORLD_SIZE"); text != nullptr) question.world_size_text = text;
  Result<Plan> answered = ask_policy(*policy, question);
  if (!answered) return answered;
  const std::string who = name_of(policy->plugin());
  Result<Plan> plan = checked_plan(std::move(*answered), question, who);
  if (!plan) return plan;
  if (plan->world_sizes.empty()) {
    return failed(
        Status::kIncompatibleWorldSize,
        fmt::format("{}: no world size can share global batch {}; widen the limits in [elasticity.\"{}\"] of {}", who,
                    plan->global_batch, config.use("elasticity"), config.file().string()),
        ExitCode::kUsage);
  }
  if (world_size > 0 && !plan->valid(world_size)) {
    return failed(Status::kIncompatibleWorldSize, fmt::format("{}: {}", who, plan->explain_invalid(world_size)),
                  ExitCode::kUsage);
  }
  return plan;
}

}  // namespace

Plan make_plan(const Config& config, int64_t world_size) {
  return or_throw(planned(config, world_size));
}

}  // namespace pliant
