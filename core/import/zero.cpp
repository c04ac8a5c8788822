// zero_optimization: stage 3 becomes a coordinator, with DeepSpeed's names for what decides about its gathers.
#include <fmt/format.h>

#include <array>
#include <string>

#include "import/draft.hpp"
#include "import/python.hpp"

namespace pliant::config::deepspeed {

namespace {

using Type = Json::Type;

constexpr const char* kPlugin = "zero3";
constexpr std::string_view kStage = "stage3_";
constexpr std::array<std::string_view, 6> kOptions{
    "stage3_prefetch_bucket_size",        "stage3_max_live_parameters",         "stage3_max_reuse_distance",
    "stage3_param_persistence_threshold", "stage3_model_persistence_threshold", "reduce_bucket_size"};
constexpr const char* kWhole = "it must be a whole number of at least 0";

bool is_auto(const Json& value) {
  return value.is(Type::kString) && value.text == "auto";
}

/// `key` of the block, or its other name without "stage3_", which counts where the first is absent.
Source option_of(Draft& draft, const Source& block, std::string_view key) {
  const Source found = block.at(key);
  if (key.substr(0, kStage.size()) != kStage) return found;
  const Source other = block.at(key.substr(kStage.size()));
  if (found && other) draft.leave(other.path, fmt::format("{} counts, the same by its newer name", key));
  return found ? found : other;
}

void carry_option(Draft& draft, const Source& from, std::string_view key) {
  const Json& value = *from.value;
  if (is_auto(value)) return draft.leave(from.path, "\"auto\" is filled in by transformers when training starts");
  const auto refuse = [&](const char* wanted) {
    draft.error(from, fmt::format("{} is {}; {}", from.path, describe(value), wanted));
  };
  if (value.is(Type::kString)) {
    const std::optional<int64_t> read = as_int(value);
    if (!read || *read < 0) return refuse(kWhole);
    return draft.carry(from, key, Value::of(*read), "given as " + describe(value));
  }
  const std::optional<Number> number = as_number(value);
  if (number && number->fit == Number::Fit::kTooLarge && !number->negative) {
    return refuse("it must be at most 9223372036854775807");
  }
  if (!number || number->fit != Number::Fit::kExact || number->floor < 0) return refuse(kWhole);
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
  draft.table({"coordinator", kPlugin});
  for (const std::string_view key : kOptions) {
    if (const Source from = option_of(draft, block, key)) carry_option(draft, from, key);
  }
}

}  // namespace pliant::config::deepspeed
