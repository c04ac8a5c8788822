// Reads elasticity blocks as DeepSpeed does, defaults included, and compares them.
#include "plan/scheduler.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/suggest.hpp"

namespace pliant {
namespace {

using Json = nlohmann::json;

constexpr const char* kDeepSpeedVariable = "DEEPSPEED_ELASTICITY_CONFIG";

/// The parts that must be the same. DeepSpeed's defaults, which count only where the block is not enabled.
struct Block {
  Json max_train_batch_size = 2000;
  Json micro_batch_sizes = Json::array({2, 4, 6});
  Json version = 0.2;
};

bool is_integer(const Json& value) {
  return value.is_number_integer() || value.is_boolean();
}
bool is_number(const Json& value) {
  return value.is_number() || value.is_boolean();
}
bool is_positive(const Json& integer) {
  if (integer.is_boolean()) return integer.get<bool>();
  return integer.is_number_unsigned() ? integer.get<uint64_t>() > 0 : integer.get<int64_t>() > 0;
}

bool is_true(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

template <class Integer>
bool same_integer(Integer a, const Json& b) {
  return b.is_number_unsigned() ? std::cmp_equal(a, b.get<uint64_t>()) : std::cmp_equal(a, b.get<int64_t>());
}

/// By value, exactly: 2^53 + 1 is no double, and is none here.
bool same_number(const Json& a, const Json& b) {
  if (b.is_number_float()) {
    if (a.is_number_float()) return a.get<double>() == b.get<double>();
    const auto real = b.get<double>();
    constexpr double kTwoTo63 = 9223372036854775808.0;
    if (std::trunc(real) != real || real < -kTwoTo63 || real >= 2 * kTwoTo63) return false;
    return real < kTwoTo63 ? same_integer(static_cast<int64_t>(real), a) : same_integer(static_cast<uint64_t>(real), a);
  }
  if (a.is_number_float()) return same_number(b, a);
  return a.is_number_unsigned() ? same_integer(a.get<uint64_t>(), b) : same_integer(a.get<int64_t>(), b);
}

/// Booleans are the numbers 0 and 1; numbers compare by value.
bool same(const Json& a, const Json& b) {
  if (a.is_boolean() && is_number(b)) return same(Json(a.get<bool>() ? 1 : 0), b);
  if (b.is_boolean() && is_number(a)) return same(a, Json(b.get<bool>() ? 1 : 0));
  if (a.type() == b.type() && a.is_structured()) {
    if (a.size() != b.size()) return false;
    for (auto it = a.begin(); it != a.end(); ++it) {
      const Json* other = nullptr;
      if (a.is_array()) {
        other = &b[static_cast<size_t>(it - a.begin())];
      } else if (const auto found = b.find(it.key()); found != b.end()) {
        other = &*found;
      }
      if (other == nullptr || !same(*it, *other)) return false;
    }
    return true;
  }
  return a.is_number() && b.is_number() ? same_number(a, b) : a == b;
}

std::string shown(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 200);
}

/// A key of somebody else's making, fit for a message.
std::string shown_key(const std::string& key) {
  const std::string text = shown(Json(key));
  return text.substr(1, text.size() - 2);
}

/// "" or what is wrong with the numbers of a block.
std::string range_fault(const Json& block) {
  const auto number = [&block](const char* key, int fallback) {
    return block.contains(key) ? block[key] : Json(fallback);
  };
  const auto value = [](const Json& json) {
    return json.is_boolean() ? (json.get<bool>() ? 1.0 : 0.0) : json.get<double>();
  };
  for (const auto& [key, fallback, least] :
       {std::tuple{"min_gpus", 1, 1}, std::tuple{"max_gpus", 10000, 1}, std::tuple{"model_parallel_size", 1, 1},
        std::tuple{"num_gpus_per_node", 1, 1}, std::tuple{"min_time", 0, 0}}) {
    const Json given = number(key, fallback);
    if (!is_number(given)) return fmt::format("{} must be a number, not {}", key, shown(given));
    if (value(given) < least) return fmt::format("{} is {}, but must be at least {}", key, shown(given), least);
  }
  if (value(number("max_gpus", 10000)) < value(number("min_gpus", 1))) return "max_gpus is less than min_gpus";
  return {};
}

std::string micro_batch_fault(const Json& sizes) {
  if (!sizes.is_array()) return fmt::format("micro_batch_sizes must be a list, not {}", shown(sizes));
  for (const Json& size : sizes) {
    if (!is_integer(size)) return fmt::format("micro_batch_sizes must hold integers, not {}", shown(size));
  }
  for (const Json& size : sizes) {
    if (!is_positive(size)) return fmt::format("micro_batch_sizes must hold positive integers, not {}", shown(size));
  }
  return {};
}

Result<Json> parse_object(std::string_view text, const std::string& origin) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // the parser would skip it
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || text.starts_with(kByteOrderMark))
    return failed(Status::kInvalidArgument, origin + ": not JSON", ExitCode::kUsage);
  if (!json.is_object()) {
    return failed(Status::kInvalidArgument, fmt::format("{}: expected a JSON object, found {}", origin, shown(json)),
                  ExitCode::kUsage);
  }
  return json;
}

Result<Block> read(std::string_view text, const std::string& origin) {
  const Result<Json> parsed = parse_object(text, origin);
  if (!parsed) return tl::unexpected<Error>(parsed.error());
  const Json& json = *parsed;
  Block block;
  const bool enabled = json.contains("enabled") && is_true(json["enabled"]);
  for (const auto& [key, field] : {std::pair{"max_train_batch_size", &block.max_train_batch_size},
                                   std::pair{"micro_batch_sizes", &block.micro_batch_sizes}}) {
    if (json.contains(key)) {
      *field = json[key];
    } else if (enabled) {
      return failed(Status::kInvalidArgument, fmt::format("{}: {} is missing", origin, key), ExitCode::kUsage);
    }
  }
  if (json.contains("version")) block.version = json["version"];
  std::string fault = micro_batch_fault(block.micro_batch_sizes);
  if (fault.empty()) fault = range_fault(json);
  if (!fault.empty()) return failed(Status::kInvalidArgument, fmt::format("{}: {}", origin, fault), ExitCode::kUsage);
  return block;
}

tl::unexpected<Error> differs(std::string_view key, const Json& theirs, const Json& ours, const std::string& variable) {
  return failed(
      Status::kFailedPrecondition,
      fmt::format("{0} is {1} for the scheduler ({3}) but {2} for this job; start the job with the config that the "
                  "scheduler was given, or unset {3}",
                  key, shown(theirs), shown(ours), variable),
      ExitCode::kUsage);
}

Result<> compare(const Block& runtime, const Block& scheduler, const std::string& variable) {
  for (const auto& [key, ours, theirs] :
       {std::tuple{"max_train_batch_size", &runtime.max_train_batch_size, &scheduler.max_train_batch_size},
        std::tuple{"micro_batch_sizes", &runtime.micro_batch_sizes, &scheduler.micro_batch_sizes},
        std::tuple{"version", &runtime.version, &scheduler.version}}) {
    if (same(*ours, *theirs)) continue;
    return differs(key, *theirs, *ours, variable);
  }
  return {};
}

tl::unexpected<Error> no_block(const std::string& variable, const std::string& why) {
  return failed(Status::kInvalidArgument, fmt::format("{}: {}", variable, why), ExitCode::kUsage);
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
    return no_block(variable, fmt::format("'{}' is no option of policy '{}'{}", shown_key(key), ours.policy,
                                          near.empty() ? "" : fmt::format("; did you mean '{}'?", near.front())));
  }
  for (const auto& [key, value] : ours.options.items()) {
    const Json& given = theirs.contains(key) ? theirs[key] : ours.defaults[key];
    if (!same(given, value)) return differs(key, given, value, variable);
  }
  return {};
}

/// The form that `pliant plan --json` prints, or a part of it with at least policy or digest.
Result<> compare_printed(const ElasticityBlock& ours, const Json& theirs, const std::string& variable) {
  for (const auto& [key, value] : theirs.items()) {
    if (key != "policy" && key != "version" && key != "options" && key != "digest") {
      return no_block(variable,
                      fmt::format("'{}' has no place beside policy, version, options and digest", shown_key(key)));
    }
  }
  for (const auto& [key, value] : {std::pair{"policy", &ours.policy}, std::pair{"version", &ours.version}}) {
    if (theirs.contains(key) && theirs[key] != *value) return differs(key, theirs[key], *value, variable);
  }
  if (theirs.contains("options")) {
    if (!theirs["options"].is_object()) {
      return no_block(variable, fmt::format("options must be an object, not {}", shown(theirs["options"])));
    }
    if (Result<> compared = compare_options(ours, theirs["options"], variable); !compared) return compared;
  }
  const std::string digest = ours.digest();
  if (theirs.contains("digest") && theirs["digest"] != digest) {
    return differs("the elasticity digest", theirs["digest"], digest, variable);
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
    return differs("policy", Json("DeepSpeed elasticity " + shown(theirs["version"])), ours.policy, block.variable);
  }
  for (const char* other : {"enabled", "version", "ignore_non_elastic_batch_info"}) theirs.erase(other);
  return compare_options(ours, theirs, block.variable);
}

}  // namespace

std::vector<SchedulerBlock> scheduler_blocks() {
  std::vector<SchedulerBlock> blocks;
  for (const char* variable : {"PLIANT_ELASTICITY_CONFIG", kDeepSpeedVariable}) {
    if (const char* text = std::getenv(variable); text != nullptr) blocks.push_back({variable, text});
  }
  return blocks;
}

Result<SchedulerView> ensure_same_elasticity(std::string_view runtime_json, const std::vector<SchedulerBlock>& blocks) {
  if (blocks.empty()) return SchedulerView::kUnknown;
  for (const SchedulerBlock& given : blocks) {
    Result<Block> scheduler = read(given.json, given.variable);
    if (!scheduler) return failed(std::move(scheduler));
    Result<Block> runtime = read(runtime_json, "this job's elasticity block");
    if (!runtime) return failed(std::move(runtime));
    Result<> compared = compare(*runtime, *scheduler, given.variable);
    if (!compared) return tl::unexpected<Error>(compared.error());
  }
  return SchedulerView::kSame;
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

}  // namespace pliant
