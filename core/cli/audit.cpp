// pliant audit
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.hpp"
#include "output.hpp"
#include "pliant/audit.hpp"
#include "pliant/exit_code.hpp"

namespace pliant::cli {

namespace {

struct AuditArguments {
  std::string run;
  std::string against;
};

std::string verdict_of(const RunComparison& comparison) {
  if (comparison.is_equal()) {
    return fmt::format("equal: {}, {} with their states", counted(comparison.steps, "step"),
                       grouped(comparison.states));
  }
  if (comparison.differs < 0) return comparison.how;
  return fmt::format("step {} {}", comparison.differs, comparison.how);
}

std::string audit_table(const RunAudit& audit, const std::optional<RunComparison>& comparison,
                        const std::string& against) {
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"run", audit.directory.string()});
  rows.push_back({"steps", fmt::format("{} of {}", audit.steps, audit.total_steps)});
  if (audit.steps_skipped > 0)
    rows.push_back({"steps without update", fmt::format("{}, not finite", audit.steps_skipped)});
  rows.push_back({"samples used once",
                  fmt::format("{} of {}", grouped(audit.samples_used_once), grouped(audit.samples_expected))});
  rows.push_back({"samples repeated", grouped(audit.samples_repeated)});
  rows.push_back({"samples missing", grouped(audit.samples_missing)});
  for (const auto& [reason, count] : audit.samples_dropped)
    rows.push_back({"samples dropped, " + reason, grouped(count)});
  rows.push_back({"states compared", fmt::format("at {} of {} steps", grouped(audit.states), grouped(audit.steps))});
  rows.push_back(
      {"rows of ranks derived", fmt::format("at {} of {} steps", grouped(audit.assignments), grouped(audit.steps))});
  rows.push_back({"learning rates derived",
                  fmt::format("at {} of {} steps", grouped(audit.learning_rates), grouped(audit.steps))});
  for (const std::string& what : audit.not_checked) rows.push_back({"not checked", what});
  for (const AuditDifference& one : audit.differences) {
    rows.push_back({fmt::format("differs at step {}", one.step),
                    fmt::format("{}: recorded {}, planned {}", one.field, one.recorded, one.planned)});
  }
  const auto shown = static_cast<int64_t>(audit.differences.size());
  if (audit.differences_found > shown) rows.push_back({"more differences", grouped(audit.differences_found - shown)});
  if (comparison) {
    rows.push_back({"against", against});
    rows.push_back({"verdict", verdict_of(*comparison)});
  }
  return table(rows);
}

std::string audit_json(const RunAudit& audit, const std::optional<RunComparison>& comparison,
                       const std::string& against, int exit_code) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.audit/1";
  json["exit_code"] = exit_code;
  json["run_id"] = audit.run_id;
  json["directory"] = audit.directory.string();
  json["steps"] = audit.steps;
  json["total_steps"] = audit.total_steps;
  json["steps_skipped"] = audit.steps_skipped;
  json["samples_expected"] = audit.samples_expected;
  json["samples_used_once"] = audit.samples_used_once;
  json["samples_repeated"] = audit.samples_repeated;
  json["samples_missing"] = audit.samples_missing;
  json["samples_dropped"] = audit.samples_dropped;
  json["states"] = audit.states;
  json["assignments"] = audit.assignments;
  json["learning_rates"] = audit.learning_rates;
  json["not_checked"] = audit.not_checked;
  json["differences_found"] = audit.differences_found;
  json["differences"] = nlohmann::ordered_json::array();
  for (const AuditDifference& one : audit.differences) {
    json["differences"].push_back(
        {{"step", one.step}, {"field", one.field}, {"recorded", one.recorded}, {"planned", one.planned}});
  }
  json["against"] = nullptr;
  if (comparison) {
    json["against"] = {{"directory", against},
                       {"equal", comparison->is_equal()},
                       {"steps", comparison->steps},
                       {"states", comparison->states},
                       {"step", nullptr},
                       {"how", comparison->how},
                       {"parts", comparison->parts},
                       {"parts_step", nullptr}};
    if (comparison->differs >= 0) json["against"]["step"] = comparison->differs;
    if (comparison->parts_step >= 0) json["against"]["parts_step"] = comparison->parts_step;
  }
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int audit(const Invocation& invocation, const AuditArguments& arguments) {
  const RunAudit audited = audit_run(arguments.run);
  std::optional<RunComparison> comparison;
  if (!arguments.against.empty()) comparison = compare_runs(arguments.run, arguments.against);
  const bool good = audited.is_whole() && (!comparison || comparison->is_equal());
  const int exit_code = static_cast<int>(good ? ExitCode::kOk : ExitCode::kFailed);
  const int written = emit(invocation.json ? audit_json(audited, comparison, arguments.against, exit_code)
                                           : audit_table(audited, comparison, arguments.against));
  return exit_code != 0 ? exit_code : written;
}

}  // namespace

void add_audit(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("audit", "Check what a run committed against its plan, and against another run");
  auto arguments = std::make_shared<AuditArguments>();
  command->add_option("RUN", arguments->run, "The run directory")->required();
  command
      ->add_option("--against", arguments->against,
                   "Another run: report the first step, and the arrays, in which the two differ")
      ->type_name("RUN");
  add_json(*command, invocation);
  command->footer(
      "Replays the ledger and checks that every step used the samples of its plan, that each sample was used once, and "
      "that the rows of the ranks and the learning rate are those of the config. What depends on measured times or "
      "gradients cannot be derived again and is listed as not checked. Changes no file.\n\nExit code 0: the run "
      "followed its plan and, with --against, both runs have the same samples, states and losses; else 1.\n\n"
      "Examples:\n"
      "  pliant audit pliant-runs/tinylm/latest\n"
      "  pliant audit pliant-runs/tinylm/latest --against pliant-runs/tinylm/20261124-023000-0123456789ab\n\n"
      "Every command takes --set, --plugin-dir, --color, -v and -q: see pliant --help");
  command->callback([&invocation, arguments] {
    invocation.action = [&invocation, arguments] { return audit(invocation, *arguments); };
  });
}

}  // namespace pliant::cli
