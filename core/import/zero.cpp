// zero_optimization: stage 3 becomes a coordinator, with what decides about its gathers, and the types of what travels.
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
  if (plain && staged) draft.leave(plain.path, fmt::format("stage3_{}, its other name, is used", key));
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
  const char* const reason = known_stage ? "Pliant shards parameters, gradients and optimizer state together (stage 3) "
                                           "or nothing; without [coordinator] jobs train replicated"
                                         : "the stage must be 0, 1, 2 or 3";
  for (const JsonMember& member : block.value->members) draft.leave(block.at(member.key).path, reason);
}

/// The key that says that the model is in bf16; absent where none does.
Source bf16_of(const Draft& draft) {
  for (const char* const key : {"bf16", "bfloat16"}) {
    Source enabled = draft.root().at(key).at("enabled");
    if (enabled && enabled.value->is(Type::kBool) && enabled.value->boolean) return enabled;
  }
  return {};
}

/// Gradients travel in communication_data_type, or where it is not given in the type of the model.
void carry_reduce_dtype(Draft& draft, const Source& bf16) {
  const Source from = draft.root().at("communication_data_type");
  if (!from || from.value->is(Type::kNull)) {
    if (from) draft.leave(from.path, "null is its default: the type of the model");
    if (bf16) draft.add("reduce_dtype", Value::of(std::string("bf16")), "as in DeepSpeed if " + bf16.path + " is on");
    return;
  }
  const std::string type = from.value->is(Type::kString) ? lower(from.value->text) : std::string();
  if (type == "fp16") {
    return draft.leave(from.path, "gradients are sent as f32 or bf16: coordinator.reduce_dtype, default \"f32\"");
  }
  if (type != "fp32" && type != "bf16" && type != "bfp16") {  // "bfp16": older releases
    return draft.error(
        from, fmt::format("{} is {}; allowed: \"fp32\", \"bf16\" and \"fp16\"", from.path, describe(*from.value)));
  }
  draft.carry(from, "reduce_dtype", Value::of(std::string(type == "fp32" ? "f32" : "bf16")));
}

void explain_fp16(Draft& draft) {
  const Source enabled = draft.root().at("fp16").at("enabled");
  if (!enabled || !enabled.value->is(Type::kBool) || !enabled.value->boolean) return;
  draft.leave(enabled.path, "shards are computed in f32 or bf16: coordinator.compute_dtype, default \"f32\"");
}

/// DeepSpeed's word for no offloading.
void explain_offload(Draft& draft, const Source& block) {
  for (const char* const key : {"offload_param", "offload_optimizer"}) {
    const Source device = block.at(key).at("device");
    if (!device || !device.value->is(Type::kString) || device.value->text != "none") continue;
    draft.leave(block.at(key).path, "not needed: nothing is offloaded");
  }
}

/// Owners add up in f32, which is at least what was asked for.
void explain_sums(Draft& draft) {
  const Source given = draft.root().at("data_types").at("grad_accum_dtype");
  if (given) draft.leave(given.path, "owners add gradients up in f32, regardless of the type they are sent in");
}

}  // namespace

void import_zero(Draft& draft) {
  const Source block = draft.root().at("zero_optimization");
  if (!block || !block.value->is(Type::kObject) || block.value->members.empty()) return;
  const std::optional<int64_t> stage = stage_of(block);
  if (stage != 3) return leave_all(draft, block, stage && *stage >= 0 && *stage < 3);
  draft.comment("");
  draft.comment("ZeRO stage 3. The options below decide when DeepSpeed's coordinator gathers and releases.");
  draft.table({"coordinator"});
  draft.add("use", Value::of(std::string(kPlugin)), "from " + block.at("stage").path);
  draft.carried(block.at("stage"), "coordinator.use");
  const Source bf16 = bf16_of(draft);
  if (bf16) {
    draft.add("compute_dtype", Value::of(std::string("bf16")), "from " + bf16.path);
    draft.carried(bf16, "coordinator.compute_dtype");
  }
  carry_reduce_dtype(draft, bf16);
  explain_sums(draft);
  if (!bf16) explain_fp16(draft);
  explain_offload(draft, block);
  draft.table({"coordinator", kPlugin});
  for (const auto& [key, least] : kOptions) {
    if (const Source from = option_of(draft, block, key)) carry_option(draft, from, key, least);
  }
}

}  // namespace pliant::config::deepspeed
