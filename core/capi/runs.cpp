// What a run has left, for C: audits, reports, comparisons, and snapshots that become files of tensors.
#include <limits>

#include "handles.hpp"
#include "pliant/audit.hpp"
#include "pliant/report.hpp"
#include "pliant/snapshot.hpp"
#include "structs.hpp"

struct pliant_report_t : pliant::capi::Handle<pliant::capi::Tag::kReport> {
  static constexpr const char* kName = "report";
  explicit pliant_report_t(pliant::RunReport made) : report(std::move(made)), directory(report.directory.string()) {
    for (const pliant::StepReport& step : report.steps) {
      generations.push_back(step.generation);
      world_sizes.push_back(step.world_size);
      losses.push_back(step.loss);
      learning_rates.push_back(step.learning_rate);
      tokens.push_back(step.tokens);
      rows.push_back(step.rows);
      is_skipped.push_back(step.skipped ? 1 : 0);
      is_short.push_back(step.short_batch ? 1 : 0);
    }
    for (const pliant::GroupReport& group : report.groups) {
      group_generations.push_back(group.generation);
      group_steps.push_back(group.step);
      group_world_sizes.push_back(group.world_size);
      group_causes.push_back(static_cast<int32_t>(group.cause));
      group_reasons.push_back(group.reason.c_str());
      group_steps_discarded.push_back(group.steps_discarded);
    }
  }

  const pliant::RunReport report;
  const std::string directory;
  std::vector<int64_t> generations, world_sizes, tokens, rows;
  std::vector<double> losses, learning_rates;
  std::vector<uint8_t> is_skipped, is_short;
  std::vector<int64_t> group_generations, group_steps, group_world_sizes, group_steps_discarded;
  std::vector<int32_t> group_causes;
  std::vector<const char*> group_reasons;
};

struct pliant_comparison_t : pliant::capi::Handle<pliant::capi::Tag::kComparison> {
  static constexpr const char* kName = "comparison";
  explicit pliant_comparison_t(pliant::RunComparison made)
      : comparison(std::move(made)), parts(pliant::capi::pointers_to(comparison.parts)) {}

  const pliant::RunComparison comparison;
  const std::vector<const char*> parts;
};

// The numbers of the header are those of the enumeration.
static_assert(static_cast<int32_t>(pliant::GroupCause::kUnknown) == PLIANT_GROUP_UNKNOWN);
static_assert(static_cast<int32_t>(pliant::GroupCause::kStart) == PLIANT_GROUP_START);
static_assert(static_cast<int32_t>(pliant::GroupCause::kResume) == PLIANT_GROUP_RESUME);
static_assert(static_cast<int32_t>(pliant::GroupCause::kLoss) == PLIANT_GROUP_LOSS);
static_assert(static_cast<int32_t>(pliant::GroupCause::kLeave) == PLIANT_GROUP_LEAVE);
static_assert(static_cast<int32_t>(pliant::GroupCause::kJoin) == PLIANT_GROUP_JOIN);
static_assert(static_cast<int32_t>(pliant::GroupCause::kFault) == PLIANT_GROUP_FAULT);

int32_t pliant_audit_run(const char* directory, pliant_audit_t* audit, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::capi::require(directory, "directory");
    pliant::capi::check_size(audit, "audit");
    const pliant::RunAudit found = pliant::audit_run(directory);
    pliant_audit_t made{};
    made.is_whole = found.is_whole() ? 1 : 0;
    made.steps = found.steps;
    made.samples_expected = found.samples_expected;
    made.samples_used_once = found.samples_used_once;
    made.samples_repeated = found.samples_repeated;
    made.samples_missing = found.samples_missing;
    made.differences = found.differences_found;
    pliant::capi::write(audit, made, "audit");
  });
}

int32_t pliant_report_run(const char* directory, pliant_report_t** report, pliant_error_t* error) {
  return pliant::capi::hand_out(report, error, [&] {
    pliant::capi::require(directory, "directory");
    return std::make_unique<pliant_report_t>(pliant::report_run(directory));
  });
}

int32_t pliant_report_free(pliant_report_t* report) {
  return pliant::capi::free_any(report);
}

int32_t pliant_report_look(const pliant_report_t* report, pliant_report_view_t* view, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_report_t& known = pliant::capi::given(report);
    pliant_report_view_t made{};
    made.run_id = known.report.run_id.c_str();
    made.directory = known.directory.c_str();
    made.step_count = known.report.steps.size();
    made.generations = known.generations.data();
    made.world_sizes = known.world_sizes.data();
    made.losses = known.losses.data();
    made.learning_rates = known.learning_rates.data();
    made.tokens = known.tokens.data();
    made.rows = known.rows.data();
    made.is_skipped = known.is_skipped.data();
    made.is_short = known.is_short.data();
    made.group_count = known.report.groups.size();
    made.group_generations = known.group_generations.data();
    made.group_steps = known.group_steps.data();
    made.group_world_sizes = known.group_world_sizes.data();
    made.group_causes = known.group_causes.data();
    made.group_reasons = known.group_reasons.data();
    made.group_steps_discarded = known.group_steps_discarded.data();
    made.steps_discarded = known.report.steps_discarded();
    made.steps_skipped = known.report.steps_skipped();
    made.not_finite_step = known.report.not_finite_step.value_or(-1);
    made.not_finite_reason = known.report.not_finite_reason.c_str();
    pliant::capi::write(view, made, "view");
  });
}

int32_t pliant_compare_runs(const char* directory, const char* other, pliant_comparison_t** comparison,
                            pliant_error_t* error) {
  return pliant::capi::hand_out(comparison, error, [&] {
    pliant::capi::require(directory, "directory");
    pliant::capi::require(other, "other");
    return std::make_unique<pliant_comparison_t>(pliant::compare_runs(directory, other));
  });
}

int32_t pliant_comparison_free(pliant_comparison_t* comparison) {
  return pliant::capi::free_any(comparison);
}

int32_t pliant_comparison_look(const pliant_comparison_t* comparison, pliant_comparison_view_t* view,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_comparison_t& known = pliant::capi::given(comparison);
    pliant_comparison_view_t made{};
    made.is_equal = known.comparison.is_equal() ? 1 : 0;
    made.steps = known.comparison.steps;
    made.states = known.comparison.states;
    made.differs = known.comparison.differs;
    made.how = known.comparison.how.c_str();
    made.part_count = known.parts.size();
    made.parts = known.parts.data();
    made.parts_step = known.comparison.parts_step;
    pliant::capi::write(view, made, "view");
  });
}

int32_t pliant_export_snapshot(const char* from, const pliant_export_options_t* options, const char* file,
                               pliant_exported_t* exported, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::capi::require(from, "from");
    pliant::capi::require(file, "file");
    const pliant_export_options_t known = pliant::capi::read_or_default(options, "options");
    pliant::capi::check_flags(known.flags, PLIANT_EXPORT_BEST | PLIANT_EXPORT_REPLACE, "options");
    if (exported != nullptr) pliant::capi::check_size(exported, "exported");
    pliant::SnapshotChoice which;
    which.best = (known.flags & PLIANT_EXPORT_BEST) != 0;
    if (known.step != nullptr) which.step = *known.step;
    const pliant::SnapshotExport found =
        pliant::export_snapshot(from, which, file, (known.flags & PLIANT_EXPORT_REPLACE) != 0);
    if (exported == nullptr) return;
    pliant_exported_t made{};
    made.step = found.step;
    made.value = found.best ? found.best->value : std::numeric_limits<double>::quiet_NaN();
    made.tensors = found.tensors;
    made.bytes = found.bytes;
    pliant::capi::write(exported, made, "exported");
  });
}
