// zero_optimization, kept as a comment until there is something to configure with it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "import/draft.hpp"
#include "import/python.hpp"

namespace pliant::config::deepspeed {

namespace {

using Type = Json::Type;

/// What decides about fetching, with DeepSpeed's defaults. Each may be written with "stage3_" before it.
constexpr std::array<std::pair<std::string_view, int64_t>, 5> kFetching{{{"prefetch_bucket_size", 50'000'000},
                                                                         {"max_live_parameters", 1'000'000'000},
                                                                         {"max_reuse_distance", 1'000'000'000},
                                                                         {"param_persistence_threshold", 100'000},
                                                                         {"model_persistence_threshold", INT64_MAX}}};

std::string_view without_stage(std::string_view key) {
  constexpr std::string_view kStage = "stage3_";
  return key.substr(0, kStage.size()) == kStage ? key.substr(kStage.size()) : key;
}

bool is_auto(const Json& value) {
  return value.is(Type::kString) && value.text == "auto";
}

/// The value in TOML; whole numbers as such. "" for what has none.
std::string toml_of(const Json& value) {
  const std::optional<Number> number = value.is(Type::kBool) ? std::optional<Number>{} : as_number(value);
  if (number && number->fit == Number::Fit::kExact) return std::to_string(number->floor);
  switch (value.type) {
    case Type::kBool:
      return value.boolean ? "true" : "false";
    case Type::kInt:
    case Type::kFloat:
      return to_toml(Value::of(as_float(value).value_or(0)));
    case Type::kString:
      return toml_quoted(value.text);
    default:
      return {};
  }
}

void note_lines(Draft& draft, const Source& from, const std::string& before) {
  for (const JsonMember& member : from.value->members) {
    const Source inner = from.at(member.key);
    const std::string key = before + quoted_key(without_stage(member.key));
    if (member.value.is(Type::kObject)) {
      note_lines(draft, inner, key + ".");
    } else if (is_auto(member.value)) {
      draft.leave(inner.path, "\"auto\" is filled in by transformers when training starts");
    } else if (const std::string text = toml_of(member.value); !text.empty()) {
      const bool renamed = without_stage(member.key) != member.key;
      draft.comment_line(fmt::format("{} = {}{}", key, text, renamed ? "  # from " + inner.path : ""));
    }
  }
}

bool given(const Json& block, std::string_view key) {
  return std::any_of(block.members.begin(), block.members.end(),
                     [&](const JsonMember& member) { return without_stage(member.key) == key; });
}

}  // namespace

void note_zero(Draft& draft) {
  const Source block = draft.root().at("zero_optimization");
  if (!block || !block.value->is(Type::kObject) || block.value->members.empty()) return;
  const Source stage = block.at("stage");
  const std::optional<Number> number = stage ? as_number(*stage.value) : std::optional<Number>{};
  const bool shards_parameters = number && number->fit == Number::Fit::kExact && number->floor == 3;
  draft.comment("");
  draft.comment("zero_optimization, kept for a version of Pliant that partitions parameters. This one does not.");
  draft.comment_line("[coordinator.zero3]");
  note_lines(draft, block, "");
  if (!shards_parameters) return;
  for (const auto& [key, value] : kFetching) {
    if (!given(*block.value, key)) {
      draft.comment_line(fmt::format("{} = {}  # DeepSpeed's default", key, value));
    }
  }
}

}  // namespace pliant::config::deepspeed
