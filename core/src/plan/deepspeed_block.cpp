// Reads elasticity blocks as DeepSpeed does, defaults included, and compares them.
#include <fmt/format.h>

#include "plan/block_json.hpp"
#include "plan/scheduler.hpp"

namespace pliant {
namespace {

using Json = nlohmann::json;

/// The parts that must be the same. DeepSpeed's defaults, which count only where the block is not enabled.
struct Block {
  Json max_train_batch_size = 2000;
  Json micro_batch_sizes = Json::array({2, 4, 6});
  Json version = 0.2;
};

bool is_integer(const Json& value) {
  return value.is_number_integer() || value.is_boolean();
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
      return failed(Status::kInvalidArgument, fmt::format("{}: {} is missing", origin, key), Origin::kInput);
    }
  }
  if (json.contains("version")) block.version = json["version"];
  std::string fault = micro_batch_fault(block.micro_batch_sizes);
  if (fault.empty()) fault = range_fault(json);
  if (!fault.empty()) return failed(Status::kInvalidArgument, fmt::format("{}: {}", origin, fault), Origin::kInput);
  return block;
}

Result<> compare(const Block& runtime, const Block& scheduler, const std::string& variable) {
  for (const auto& [key, ours, theirs] :
       {std::tuple{"max_train_batch_size", &runtime.max_train_batch_size, &scheduler.max_train_batch_size},
        std::tuple{"micro_batch_sizes", &runtime.micro_batch_sizes, &scheduler.micro_batch_sizes},
        std::tuple{"version", &runtime.version, &scheduler.version}}) {
    if (same(*ours, *theirs)) continue;
    return scheduler_differs(key, *theirs, *ours, variable);
  }
  return {};
}

}  // namespace

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

}  // namespace pliant
