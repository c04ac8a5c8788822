// Looks for what stops a run, without starting one.
#include "config_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/values/diagnostics.hpp"
#include "elastic/agent/worker_process.hpp"
#include "plan/study.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/plan.hpp"
#include "pliant/sharded.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;
using config::Effective;
using config::Origin;

class Findings {
 public:
  explicit Findings(const detail::ConfigState& state) : state_(state) {}

  std::optional<Error> all() {
    ConfigNeeds needs;
    for (const auto& [section, selection] : state_.selections) {
      if (selection.plugin != nullptr) needs.insert(section);
    }
    const config::Opening& opening = state_.opening;
    try {
      const Config config = Config::parse(opening.text, needs, opening.overrides, opening.name.string());
      keep([&] { LearningRate::check(config); });
      keep([&] { ShardedModel::check(config); });
      if (needs.contains("elasticity")) keep([&] { look_at_plan(config); });
      look_at_files();
      if (!config.run().command.empty()) look_at_program(config.run());
    } catch (const Error& refused) {
      return refused;
    }
    return together();
  }

 private:
  /// Runs `check` and keeps what it throws.
  void keep(const std::function<void()>& check) {
    try {
      check();
    } catch (const Error& refused) {
      found_.push_back(refused);
    }
  }

  void add(const Origin& origin, const Error& error) {
    const size_t end = std::min(error.message().find('\n'), error.message().size());  // lines of help follow
    config::Finding finding;
    finding.origin = origin;
    finding.message = error.message().substr(0, end);
    const std::string text = state_.diagnostics->render(finding) + error.message().substr(end);
    found_.push_back(error.with_message(text).with_exit_code(ExitCode::kUsage));
    found_.back().set_located();
  }

  [[nodiscard]] const Effective& option(const char* section, const char* key) const {
    return *state_.core_tables.at(section).find(key);
  }

  /// The plan at the workers that a run starts, where the config says what to run or with how many.
  void look_at_plan(const Config& config) {
    const Origin& workers = option("run", "workers").value.origin;
    const bool is_of_run = workers.layer != config::Layer::kDefault || !config.run().command.empty();
    const Planner planner(config);
    if (!is_of_run) {
      static_cast<void>(any_plan(planner));
      return;
    }
    try {
      static_cast<void>(planner.plan(config.run().workers));
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
      const bool written = workers.layer != config::Layer::kDefault;
      add(written ? workers : option("run", "command").value.origin,
          with_changes(config, error.with_message("run.workers: " + error.message()), config.run().workers));
    }
  }

  void look_at_files() {
    for (const char* const key : {"text", "lengths", "loss_tokens"}) {
      const Effective& row = option("data", key);
      std::error_code error;
      if (row.value.text.empty() || fs::exists(row.value.text, error)) continue;
      add(row.value.origin,
          Error(Status::kNotFound, fmt::format("data.{}: there is no {}", key, row.value.text), ExitCode::kUsage));
    }
    const Effective& folder = option("run", "working_dir");
    std::error_code error;
    if (folder.value.text.empty() || fs::is_directory(folder.value.text, error)) return;
    add(folder.value.origin,
        Error(Status::kNotFound, fmt::format("run.working_dir: {} is not a directory", folder.value.text),
              ExitCode::kUsage));
  }

  void look_at_program(const RunOptions& run) {
    const auto program = elastic::find_program(run.command.front(), run.working_dir);
    if (!program) add(option("run", "command").value.origin, program.error());
  }

  /// One error with all of them.
  [[nodiscard]] std::optional<Error> together() const {
    if (found_.empty()) return std::nullopt;
    if (found_.size() == 1) return found_.front();
    std::string text;
    ExitCode exit_code = ExitCode::kPlugin;
    for (const Error& error : found_) {
      text += (text.empty() ? "" : "\n") + (error.is_located() ? error.message() : "error: " + error.message());
      if (error.exit_code() == ExitCode::kUsage) exit_code = ExitCode::kUsage;
    }
    return Error(found_.front().status(), text, exit_code).set_located();
  }

  const detail::ConfigState& state_;
  std::vector<Error> found_;
};

}  // namespace

std::optional<Error> run_findings(const detail::ConfigState& state) {
  return Findings(state).all();
}

}  // namespace pliant::cli
