// Reads and checks the table.
#include "config/lr_groups.hpp"

#include <fmt/format.h>

namespace pliant::config {

namespace {

constexpr double kMostRate = 1e6;  // as of [lr] base_lr

void refuse_rule(const Value& lr, Diagnostics& diagnostics) {
  const auto refuse = [&](std::string_view key, const Value& name) {
    if (name.type != Value::Type::kString || name.text != kLrGroups) return;
    diagnostics.error(name.origin,
                      fmt::format("lr.{} cannot name a rule '{}': [lr.{}] has the base rates of groups of parameters",
                                  key, kLrGroups, kLrGroups));
  };
  for (const std::string_view key : {"use", "schedule", "then"}) {
    const Value* const given = lr.find(key);
    if (given == nullptr) continue;
    refuse(key, *given);
    for (const Value& item : given->items) refuse(key, item);
  }
}

}  // namespace

std::map<std::string, double> read_lr_groups(const Value& root, Diagnostics& diagnostics) {
  std::map<std::string, double> groups;
  const Value* const lr = root.find("lr");
  if (lr == nullptr || lr->type != Value::Type::kTable) return groups;
  refuse_rule(*lr, diagnostics);
  const Member* const table = lr->member(kLrGroups);
  if (table == nullptr) return groups;
  if (table->value.type != Value::Type::kTable) {
    diagnostics.error(table->key_origin,
                      fmt::format("[lr.{}] must be a table, not {}", kLrGroups, describe(table->value)),
                      {fmt::format("write [lr.{}], and below it a base rate for each group: head = 0.01", kLrGroups)});
    return groups;
  }
  for (const Member& group : table->value.members) {
    const std::string where = dotted({"lr", std::string(kLrGroups), group.key});
    const Value& given = group.value;
    const bool is_number = given.type == Value::Type::kInt || given.type == Value::Type::kFloat;
    const double rate = given.type == Value::Type::kInt ? static_cast<double>(given.integer) : given.real;
    if (!is_number) {
      diagnostics.error(given.origin, fmt::format("{} must be a number, not {}", where, describe(given)));
    } else if (!(rate > 0 && rate <= kMostRate)) {
      diagnostics.error(given.origin,
                        fmt::format("{} must be above 0 and at most {}, not {}", where, kMostRate, to_toml(given)));
    } else {
      groups[group.key] = rate;
    }
  }
  return groups;
}

}  // namespace pliant::config
