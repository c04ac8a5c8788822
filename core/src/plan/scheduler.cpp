// Holds the elastic config of a job against the blocks that a scheduler left.
#include "plan/scheduler.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/environment.hpp"
#include "base/suggest.hpp"
#include "plan/block_json.hpp"

namespace pliant {
namespace {

using Json = nlohmann::json;

constexpr const char* kDeepSpeedVariable = "DEEPSPEED_ELASTICITY_CONFIG";

tl::unexpected<Error> no_block(const std::string& variable, const std::string& why) {
  return failed(Status::kInvalidArgument, fmt::format("{}: {}", variable, why), Origin::kInput);
}

bool is_deepspeed(const std::string& policy) {
  return policy == "v0.1" || policy == "v0.2";
}

/// Our options as the block that a DeepSpeed scheduler would have seen.
std::string deepspeed_block(const ElasticityBlock& ours) {
  const Json block{{"enabled", true},
                   {"version", ours.policy == "v0.1" ? 0.1 : 0.2},
                   {"max_train_batch_size", ours.options["max_train_batch_size"]},
                   {"micro_batch_sizes", ours.options["micro_batch_sizes"]}};
  return block.dump();
}

/// `theirs`: options by name. Those that are missing stand for their defaults.
Result<> compare_options(const ElasticityBlock& ours, const Json& theirs, const std::string& variable) {
  for (const auto& [key, value] : theirs.items()) {
    if (ours.options.contains(key)) continue;
    std::vector<std::string> known;
    for (const auto& option : ours.options.items()) known.push_back(option.key());
    const std::vector<std::string> near = nearest(key, known);
    return no_block(variable, fmt::format("'{}' is not an option of policy '{}'{}", shown_key(key), ours.policy,
                                          near.empty() ? "" : fmt::format("; did you mean '{}'?", near.front())));
  }
  for (const auto& [key, value] : ours.options.items()) {
    const Json& given = theirs.contains(key) ? theirs[key] : ours.defaults[key];
    if (!same(given, value)) return scheduler_differs(key, given, value, variable);
  }
  return {};
}

/// The form that `pliant plan --json` prints, or a part of it with at least policy or digest.
Result<> compare_printed(const ElasticityBlock& ours, const Json& theirs, const std::string& variable) {
  for (const auto& [key, value] : theirs.items()) {
    if (key != "policy" && key != "version" && key != "options" && key != "digest") {
      return no_block(variable,
                      fmt::format("unknown key '{}'; allowed: policy, version, options and digest", shown_key(key)));
    }
  }
  for (const auto& [key, value] : {std::pair{"policy", &ours.policy}, std::pair{"version", &ours.version}}) {
    if (theirs.contains(key) && theirs[key] != *value) return scheduler_differs(key, theirs[key], *value, variable);
  }
  if (theirs.contains("options")) {
    if (!theirs["options"].is_object()) {
      return no_block(variable, fmt::format("options must be an object, not {}", shown(theirs["options"])));
    }
    if (Result<> compared = compare_options(ours, theirs["options"], variable); !compared) return compared;
  }
  const std::string digest = ours.digest();
  if (theirs.contains("digest") && theirs["digest"] != digest) {
    return scheduler_differs("the elasticity digest", theirs["digest"], digest, variable);
  }
  return {};
}

/// Options by name and DeepSpeed's own keys.
Result<> compare_flat(const ElasticityBlock& ours, Json theirs, const SchedulerBlock& block) {
  if (is_deepspeed(ours.policy)) {
    Result<SchedulerView> view = ensure_same_elasticity(deepspeed_block(ours), {block});
    if (!view) return failed(std::move(view));
    for (const char* compared : {"max_train_batch_size", "micro_batch_sizes"})
      theirs[compared] = ours.options[compared];
  } else if (theirs.contains("version")) {
    return scheduler_differs("policy", Json("DeepSpeed elasticity " + shown(theirs["version"])), ours.policy,
                             block.variable);
  }
  for (const char* other : {"enabled", "version", "ignore_non_elastic_batch_info"}) theirs.erase(other);
  return compare_options(ours, theirs, block.variable);
}

}  // namespace

std::vector<SchedulerBlock> scheduler_blocks() {
  std::vector<SchedulerBlock> blocks;
  for (const char* variable : {"PLIANT_ELASTICITY_CONFIG", kDeepSpeedVariable}) {
    if (const char* text = environment_variable(variable); text != nullptr) blocks.push_back({variable, text});
  }
  return blocks;
}

Result<> ensure_same_block(const ElasticityBlock& ours, const std::vector<SchedulerBlock>& blocks) {
  for (const SchedulerBlock& block : blocks) {
    if (block.variable == kDeepSpeedVariable) {
      if (!is_deepspeed(ours.policy)) continue;
      Result<SchedulerView> view = ensure_same_elasticity(deepspeed_block(ours), {block});
      if (!view) return failed(std::move(view));
      continue;
    }
    Result<Json> theirs = parse_object(block.json, block.variable);
    if (!theirs) return failed(std::move(theirs));
    const bool printed = theirs->contains("policy") || theirs->contains("digest");
    Result<> compared = printed ? compare_printed(ours, *theirs, block.variable) : compare_flat(ours, *theirs, block);
    if (!compared) return compared;
  }
  return {};
}

Result<> agree_with_scheduler(const Config& config) {
  const std::vector<SchedulerBlock> blocks = scheduler_blocks();
  if (blocks.empty()) return {};
  const Result<ElasticityBlock> ours = elasticity_block(config);
  if (!ours) return tl::unexpected<Error>(ours.error());
  return ensure_same_block(*ours, blocks);
}

Result<> ensure_same_elasticity_as_agent(const Config& config, const std::string& digest) {
  const Result<ElasticityBlock> ours = elasticity_block(config);
  if (!ours) return tl::unexpected<Error>(ours.error());
  if (ours->digest() != digest) {
    return failed(Status::kFailedPrecondition,
                  fmt::format("the elastic config of this worker differs from the job's: digest {} here, {} there; the "
                              "plugin of policy '{}' or {} has changed since the job began",
                              ours->digest(), digest, ours->policy, config.file().string()),
                  Origin::kInput);
  }
  return ensure_same_block(*ours, scheduler_blocks());
}

}  // namespace pliant
