// Planner: one instance of an elasticity policy, asked by one thread at a time, its warnings caught.
#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/no_fork.hpp"
#include "config/instances.hpp"
#include "plan/block.hpp"
#include "plan/policy.hpp"
#include "pliant/plan.hpp"
#include "plugin/plugin.hpp"

namespace pliant {
namespace {

constexpr size_t kMostWarnings = 100;

/// Where the policy's log lines go: warnings are kept, everything else is dropped.
struct Warnings {
  std::mutex mutex;
  std::vector<std::string> lines;
};

void catch_line(void* context, int32_t level, pliant_str message) {
  if (level < PLIANT_LOG_WARNING || message.data == nullptr) return;
  auto& caught = *static_cast<Warnings*>(context);
  try {
    const std::lock_guard lock(caught.mutex);
    std::string line(message.data, static_cast<size_t>(message.size));
    const bool known = std::find(caught.lines.begin(), caught.lines.end(), line) != caught.lines.end();
    if (!known && caught.lines.size() < kMostWarnings) caught.lines.push_back(std::move(line));
  } catch (...) {  // a warning that no memory holds is lost; the plan is not
  }
}

const void* no_extension(void*, const char*) {
  return nullptr;
}

}  // namespace

struct Planner::State {
  explicit State(const Config& opened) : config(opened) {}

  std::string policy;
  Config config;
  std::string block;
  std::string digest;
  mutable Warnings warnings;
  std::vector<std::string> warnings_at_start;
  pliant_host host{};
  std::optional<plugin::Instance> instance;
  mutable ProcessLock asking;  ///< a policy is called by one thread at a time

  [[nodiscard]] Result<Plan> answer(const PlanQuestion& question) const;
  [[nodiscard]] Result<Plan> checked_answer(const PlanQuestion& question) const;
};

Planner::Planner(const Config& config) {
  auto state = std::make_shared<State>(config);
  const ElasticityBlock block = or_throw(elasticity_block(config));
  state->policy = block.policy;
  state->block = block.canonical();
  state->digest = block.digest();
  state->host = {sizeof(pliant_host), PLIANT_ABI_MINOR, &state->warnings, &catch_line, &no_extension};
  state->instance = or_throw(config::instantiate(config, "elasticity", &state->host));
  state->warnings_at_start = std::exchange(state->warnings.lines, {});
  state_ = std::move(state);
}

Result<Plan> Planner::State::answer(const PlanQuestion& question) const {
  const ProcessLock::Held alone(asking, "planner");
  warnings.lines = warnings_at_start;
  Result<Plan> plan = checked_answer(question);
  if (plan) {
    plan->warnings = warnings.lines;
    return plan;
  }
  const Status status = plan.error().status();
  const bool options =
      status == Status::kInvalidArgument || status == Status::kOutOfRange || status == Status::kFailedPrecondition;
  const Error refusal = options ? config::at_option(config, "elasticity", plan.error()) : plan.error();
  std::string notes;
  for (const std::string& warning : warnings.lines) notes += "\n  note: " + warning;
  return tl::unexpected<Error>(refusal.with_lines(notes));
}

Result<Plan> Planner::State::checked_answer(const PlanQuestion& question) const {
  Result<Plan> answered = ask_policy(*instance, question);
  if (!answered) return answered;
  const std::string who = name_of(instance->plugin());
  Result<Plan> plan = checked_plan(std::move(*answered), question, who);
  if (!plan) return plan;
  if (plan->world_sizes.empty()) {
    return failed(
        Status::kIncompatibleWorldSize,
        fmt::format("{}: no world size divides global batch {}; widen the limits in [elasticity.\"{}\"] of {}", who,
                    plan->global_batch, policy, config.file().string()),
        Origin::kInput);
  }
  if (question.world_size > 0 && !plan->valid(question.world_size)) {
    return failed(Status::kIncompatibleWorldSize,
                  fmt::format("{}: {}", who, plan->explain_invalid(question.world_size)), Origin::kInput);
  }
  return plan;
}

Plan Planner::plan(int64_t world_size, const std::optional<std::string>& world_size_text) const {
  if (world_size < 0) {
    throw Error(Status::kInvalidArgument,
                fmt::format("world size {} is negative; give at least 1, or 0 for any", world_size), Origin::kInput);
  }
  PlanQuestion question;
  question.world_size = world_size;
  question.want_micro_batch = world_size > 0;
  question.world_size_text = world_size_text;
  return or_throw(state_->answer(question));
}

Plan Planner::unchecked(int64_t world_size, bool want_micro_batch,
                        const std::optional<std::string>& world_size_text) const {
  PlanQuestion question;
  question.world_size = world_size;
  question.want_micro_batch = want_micro_batch;
  question.world_size_text = world_size_text;
  const ProcessLock::Held alone(state_->asking, "planner");
  state_->warnings.lines = state_->warnings_at_start;
  Plan plan = or_throw(ask_policy(*state_->instance, question));
  plan.warnings = state_->warnings.lines;
  return plan;
}

const std::string& Planner::policy() const {
  return state_->policy;
}
const std::string& Planner::block() const {
  return state_->block;
}
const std::string& Planner::digest() const {
  return state_->digest;
}

}  // namespace pliant
