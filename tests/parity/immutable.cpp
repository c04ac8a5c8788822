// Rows of ensure_immutable_elastic_config: the scheduler's block against the job's.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "parity/parity.hpp"
#include "parity/python.hpp"
#include "parity/row_reader.hpp"
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

bool has_wide_integer(const Json& value) {
  return value.is_binary() || (value.is_structured() && std::any_of(value.begin(), value.end(), has_wide_integer));
}

/// The rule that one of the two texts falls under, or "".
std::string rule_for_text(const std::string& text) {
  if (!Json::accept(text)) return "strict-json";
  const std::optional<Json> block = parse_row(text);
  return block && has_wide_integer(*block) ? "int64" : "";
}

Outcome check_immutable(const Json& row, Plugins& /*plugins*/, const Options& /*options*/) {
  const Json& expected = row["out"];
  const std::string runtime = python_json(row["runtime"]);
  std::vector<SchedulerBlock> blocks;
  if (row[kTextKey].is_string()) blocks.push_back({kVariable, row[kTextKey].get<std::string>()});
  const Result<SchedulerView> view = ensure_same_elasticity(runtime, blocks);
  if (!view) {
    const Outcome outcome = check_refusal(expected, view.error());
    std::string rule = blocks.empty() ? std::string{} : rule_for_text(blocks.front().json);
    if (rule.empty()) rule = rule_for_text(runtime);
    return outcome.verdict == Outcome::Verdict::kFailed && !rule.empty() ? Outcome::skipped(rule) : outcome;
  }
  Json shaped{{"ok", true}};
  if (*view == SchedulerView::kUnknown) shaped["warned"] = true;
  return shaped == expected ? Outcome::passed() : Outcome::failed(expected.dump(), shaped.dump());
}

bool is_immutable_row(const Json& row) {
  return row.contains("runtime") && row.contains(kTextKey) && row.contains("out");
}

}  // namespace

std::vector<RowKind> immutable_rows() {
  return {{"elasticity_immutable",
           &is_immutable_row,
           {{"strict-json",
             "a block that only Python's JSON reader takes: NaN, an infinity, half a surrogate pair, a number past a "
             "double: refused"},
            {"int64", "an integer of a block past 64 bits: refused where an integer must be"}},
           &check_immutable}};
}

}  // namespace pliant::parity
