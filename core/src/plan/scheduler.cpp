// Reads elasticity blocks as DeepSpeed does, defaults included, and compares them.
#include "plan/scheduler.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

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
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // the parser would skip it
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded() || text.starts_with(kByteOrderMark))
    return failed(Status::kInvalidArgument, origin + ": not JSON", ExitCode::kUsage);
  if (!json.is_object()) {
    return failed(Status::kInvalidArgument, fmt::format("{}: expected a JSON object, found {}", origin, shown(json)),
                  ExitCode::kUsage);
  }
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

Result<> compare(const Block& runtime, const Block& scheduler, const std::string& variable) {
  for (const auto& [key, ours, theirs] :
       {std::tuple{"max_train_batch_size", &runtime.max_train_batch_size, &scheduler.max_train_batch_size},
        std::tuple{"micro_batch_sizes", &runtime.micro_batch_sizes, &scheduler.micro_batch_sizes},
        std::tuple{"version", &runtime.version, &scheduler.version}}) {
    if (same(*ours, *theirs)) continue;
    return failed(
        Status::kFailedPrecondition,
        fmt::format("{0} is {1} for the scheduler ({3}) but {2} for this job; start the job with the config that the "
                    "scheduler was given, or unset {3}",
                    key, shown(*theirs), shown(*ours), variable),
        ExitCode::kUsage);
  }
  return {};
}

}  // namespace

std::vector<SchedulerBlock> scheduler_blocks() {
  std::vector<SchedulerBlock> blocks;
  for (const char* variable : {"PLIANT_ELASTICITY_CONFIG", "DEEPSPEED_ELASTICITY_CONFIG"}) {
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

}  // namespace pliant
