// Rows of ensure_immutable_elastic_config: the scheduler's block against the job's.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "parity/parity.hpp"
#include "parity/status_classes.hpp"
#include "plan/scheduler.hpp"

namespace pliant::parity {
namespace {

constexpr const char* kVariable = "DEEPSPEED_ELASTICITY_CONFIG";
constexpr const char* kTextKey = "env_DEEPSPEED_ELASTICITY_CONFIG";

/// The key that a mismatch message of the reference is about, or "".
std::string mismatched_key(const std::string& message) {
  for (const auto& [theirs, ours] :
       {std::pair{"max_acceptable_batch_size", "max_train_batch_size"}, std::pair{"micro_batches", "micro_batch_sizes"},
        std::pair{"version", "version"}}) {
    if (message.rfind(fmt::format("Elastic config '{}=", theirs), 0) == 0) return ours;
  }
  return {};
}

Outcome check_refusal(const Json& expected, const Error& error) {
  const std::string refusal = fmt::format("{}: {}", name_of(error.status()), error.message());
  if (!expected.contains("error")) return Outcome::failed(expected.dump(), refusal);
  const Json& recorded = expected["error"];
  const Json message = recorded.value("message", Json());
  const std::string key = message.is_string() ? mismatched_key(message.get<std::string>()) : std::string{};
  const bool same = key.empty()
                        ? same_class(recorded["type"].get<std::string>(), error.status())
                        : error.status() == Status::kFailedPrecondition && error.message().rfind(key + " is ", 0) == 0;
  return same ? Outcome::passed() : Outcome::failed(expected.dump(), refusal);
}

Outcome check(const Json& row, Plugins& /*plugins*/, const Options& /*options*/) {
  const Json& expected = row["out"];
  std::vector<SchedulerBlock> blocks;
  if (row[kTextKey].is_string()) blocks.push_back({kVariable, row[kTextKey].get<std::string>()});
  const Result<SchedulerView> view = ensure_same_elasticity(row["runtime"].dump(), blocks);
  if (!view) return check_refusal(expected, view.error());
  Json shaped{{"ok", true}};
  if (*view == SchedulerView::kUnknown) shaped["warned"] = true;
  return shaped == expected ? Outcome::passed() : Outcome::failed(expected.dump(), shaped.dump());
}

bool matches(const Json& row) {
  return row.contains("runtime") && row.contains(kTextKey) && row.contains("out");
}

}  // namespace

std::vector<RowKind> immutable_rows() {
  return {{"elasticity_immutable", &matches, {}, &check}};
}

}  // namespace pliant::parity
