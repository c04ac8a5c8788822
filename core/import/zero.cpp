// zero_optimization: stage 3 becomes a coordinator, with what decides about its gathers.
#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>

#include "import/draft.hpp"
#include "import/python.hpp"

namespace pliant::config::deepspeed {

namespace {

using Type = Json::Type;

constexpr const char* kPlugin = "zero3";
/// What is carried, and its least value. The source may write "stage3_" before any of them.
constexpr std::array<std::pair<std::string_view, int64_t>, 6> kOptions{{{"prefetch_bucket_size", 0},
                                                                        {"max_live_parameters", 0},
                                                                        {"max_reuse_distance", 0},
                                                                        {"param_persistence_threshold", 0},
                                                                        {"model_persistence_threshold", 0},
                                                                        {"reduce_bucket_size", 1}}};

bool is_auto(const Json& value) {
  return value.is(Type::kString) && value.text == "auto";
}

/// Of the two names of an option the one with "stage3_" counts.
Source option_of(Draft& draft, const Source& block, std::string_view key) {
  const Source plain = block.at(key);
  const Source staged = block.at(fmt::format("stage3_{}", key));
  if (plain && staged) draft.leave(plain.path, fmt::format("stage3_{} counts, its other name", key));
  return staged ? staged : plain;
}

void carry_option(Draft& draft, const Source& from, std::string_view key, int64_t least) {
  const Json& value = *from.value;
  if (is_auto(value)) return draft.leave(from.path, "\"auto\" is filled in by transformers when training starts");
  const std::string whole = fmt::format("it must be a whole number of at least {}", least);
  const auto refuse = [&](const std::string& wanted) {
    draft.error(from, fmt::format("{} is {}; {}", from.path, describe(value), wanted));
  };
  if (value.is(Type::kString)) {
    const std::optional<int64_t> read = as_int(value);
    if (!read || *read < least) return refuse(whole);
    return draft.carry(from, key, Value::of(*read), "given as " + describe(value));
  }
  const std::optional<Number> number = as_number(value);
  if (number && number->fit == Number::Fit::kTooLarge && !number->negative) {
    return refuse("it must be at most 9223372036854775807");
  }
  if (!number || number->fit != Number::Fit::kExact || number->floor < least) {
    return refuse(whole);
  }
  draft.carry(from, key, Value::of(number->floor), value.is(Type::kInt) ? "" : "given as " + describe(value));
}

/// 0 where none is given, as in DeepSpeed; nullopt for what is no whole number.
std::optional<int64_t> stage_of(const Source& block) {
  const Source stage = block.at("stage");
  if (!stage) return 0;
  const std::optional<Number> number = as_number(*stage.value);
  return number && number->fit == Number::Fit::kExact ? std::optional<int64_t>(number->floor) : std::nullopt;
}

void leave_all(Draft& draft, const Source& block, bool known_stage) {
  const char* const reason = known_stage ? "Pliant shards parameters, gradients and optimizer state together, which is "
                                           "stage 3, or nothing; without [coordinator] jobs train replicated"
                                         : "the stage is none of DeepSpeed's: 0, 1, 2, 3";
  for (const JsonMember& member : block.value->members) draft.leave(block.at(member.key).path, reason);
}

}  // namespace

void import_zero(Draft& draft) {
  const Source block = draft.root().at("zero_optimization");
  if (!block || !block.value->is(Type::kObject) || block.value->members.empty()) return;
  const std::optional<int64_t> stage = stage_of(block);
  if (stage != 3) return leave_all(draft, block, stage && *stage >= 0 && *stage < 3);
  draft.comment("");
  draft.comment("ZeRO stage 3. The options below decide when DeepSpeed's own coordinator gathers and releases.");
  draft.table({"coordinator"});
  draft.add("use", Value::of(std::string(kPlugin)), "from " + block.at("stage").path);
  draft.carried(block.at("stage"), "coordinator.use");
  for (const char* const key : {"bf16", "bfloat16"}) {
    const Source enabled = draft.root().at(key).at("enabled");
    if (!enabled || !enabled.value->is(Type::kBool) || !enabled.value->boolean) continue;
    draft.add("compute_dtype", Value::of(std::string("bf16")), "from " + enabled.path);
    draft.carried(enabled, "coordinator.compute_dtype");
    break;
  }
  draft.table({"coordinator", kPlugin});
  for (const auto& [key, least] : kOptions) {
    if (const Source from = option_of(draft, block, key)) carry_option(draft, from, key, least);
  }
}

}  // namespace pliant::config::deepspeed
