// Rules by input, each as narrow as its reason.
#include "parity/elasticity_rules.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "parity/python.hpp"

namespace pliant::parity {
namespace {

constexpr int64_t kWidestDouble = 9223372036854775295;  ///< the largest integer that as a double is below 2^63

bool has_type(const Json& value, int32_t type) {
  switch (type) {
    case PLIANT_BOOL:
      return value.is_boolean();
    case PLIANT_INT:
      return is_integer(value);
    case PLIANT_INT_LIST:
      if (!value.is_array()) return false;
      for (const Json& item : value) {
        if (!is_integer(item)) return false;
      }
      return true;
    default:
      return true;  // no policy of these rows has another type
  }
}

/// The `elasticity` object, or an empty one.
Json block_of(const Json& row) {
  const Json& config = row["config"];
  if (!config.is_object() || !config.contains("elasticity") || !config["elasticity"].is_object()) return Json::object();
  return config["elasticity"];
}

/// Past 63 bits, or rounded past them as a double: v0.2 divides, and Python's true division gives doubles.
bool is_wide(const Json& value) {
  if (value.is_array()) return std::any_of(value.begin(), value.end(), is_wide);
  return is_integer(value) && (!fits(value) || value > kWidestDouble);
}

/// The least common multiple of the micro-batch sizes, times the devices of a node, needs more than 63 bits.
bool has_wide_multiple(const Json& sizes, const Json& devices_per_node) {
  int64_t multiple = 1;
  for (const Json& size : sizes) {
    if (!is_integer(size) || !fits(size) || size.get<int64_t>() < 1) return false;
    const auto value = size.get<int64_t>();
    if (__builtin_mul_overflow(multiple / std::gcd(multiple, value), value, &multiple)) return true;
  }
  if (!is_integer(devices_per_node) || !fits(devices_per_node)) return false;
  return __builtin_mul_overflow(multiple, devices_per_node.get<int64_t>(), &multiple);
}

/// A WORLD_SIZE that Python reads as a number and that has too many digits for 63 bits.
bool has_wide_environment(const Json& row) {
  if (!row.contains("env") || !row["env"].is_object() || !row["env"].contains("WORLD_SIZE")) return false;
  const Json& text = row["env"]["WORLD_SIZE"];
  if (!text.is_string()) return false;
  std::string digits = text.get<std::string>();
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos) return false;
  digits.erase(0, digits.find_first_not_of('0'));
  return digits.size() > 19 || (digits.size() == 19 && digits > std::to_string(kWidestDouble));
}

bool has_wide_number(const Json& row, const Json& block, const std::vector<pliant_option>& options) {
  for (const pliant_option& option : options) {
    if (block.contains(option.key) && is_wide(block[option.key])) return true;
  }
  if (is_wide(row["world_size"]) || has_wide_environment(row)) return true;
  return block.contains("micro_batch_sizes") &&
         has_wide_multiple(block["micro_batch_sizes"], block.value("num_gpus_per_node", Json(1)));
}

bool has_other_type(const Json& block, const std::vector<pliant_option>& options) {
  for (const pliant_option& option : options) {
    if (block.contains(option.key) && !has_type(block[option.key], option.type)) return true;
  }
  return false;
}

}  // namespace

std::vector<Rule> elasticity_rules() {
  return {
      {"typed-option",
       "an option of another type than the policy declares (null, true or 1.0 for an integer, 1 for a flag): TOML "
       "options are "
       "typed and refused before the policy sees them"},
      {"typed-world-size", "a world size that is no JSON integer: the ABI passes an int64"},
      {"negative-world-size", "a negative world size: out of domain, the reference answers batches above the cap"},
      {"int64",
       "an integer (also once it is rounded to a double), or the least common multiple of the micro-batch sizes (times "
       "num_gpus_per_node), past 63 bits: out of domain, the reference wraps silently"},
      {"target-version", "a target DeepSpeed version before 0.3.8 or none at all: Pliant has no such argument"},
  };
}

std::string rule_for(const Json& row, const std::vector<pliant_option>& options) {
  const Json block = block_of(row);
  const Json& world_size = row["world_size"];
  if (has_other_type(block, options)) return "typed-option";
  if (!is_integer(world_size)) return "typed-world-size";
  if (world_size.is_number_integer() && world_size < 0) return "negative-world-size";
  if (has_wide_number(row, block, options)) return "int64";
  if (has_old_target(row)) return "target-version";
  return {};
}

bool has_old_target(const Json& row) {
  return !knows_elasticity(row["target_version"]);
}

}  // namespace pliant::parity
