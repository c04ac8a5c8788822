// Looks for what stops a run, without starting one.
#include "config_findings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/inside.hpp"
#include "config/instances.hpp"
#include "config/values/diagnostics.hpp"
#include "elastic/agent/worker_process.hpp"
#include "elastic/run_directory.hpp"
#include "plan/study.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/plan.hpp"
#include "pliant/sharded.hpp"

namespace pliant::cli {

namespace {

namespace fs = std::filesystem;
using config::Effective;
using config::ValueOrigin;

class Findings {
 public:
  explicit Findings(const config::StatePtr& state)
      : state_(*state), config_(detail::Inside::handle_of<Config>(state)), all_(*state->diagnostics) {}

  std::optional<Error> all() {
    if (is_sound("lr")) keep("lr", [&] { LearningRate::check(config_); });
    if (is_sound("coordinator")) keep("coordinator", [&] { ShardedModel::check(config_); });
    if (is_sound("elasticity") && config::is_open(config_, "elasticity")) keep("elasticity", [&] { look_at_plan(); });
    look_at_files();
    if (!config_.run().command.empty()) look_at_program();
    if (!all_.failed()) return std::nullopt;
    return all_.error_count() == 1 && only_ ? *only_ : all_.to_error();
  }

 private:
  [[nodiscard]] bool is_sound(std::string_view section) const { return !state_.faulty.contains(section); }

  /// Runs `check` of [section] and keeps what it throws.
  void keep(std::string_view section, const std::function<void()>& check) {
    try {
      check();
    } catch (const Error& refused) {
      add(config::place_of(config_, section, refused), refused,
          refused.is_located() ? refused.message() : "error: " + refused.message(),
          refused.is_located() ? refused.findings().front().message : refused.message());
    }
  }

  void add(const ValueOrigin& origin, const Error& error) {
    const size_t end = std::min(error.message().find('\n'), error.message().size());  // lines of help follow
    config::Finding finding;
    finding.origin = origin;
    finding.message = error.message().substr(0, end);
    const std::string text = state_.diagnostics->render(finding) + error.message().substr(end);
    const std::vector<ConfigFinding> found{state_.diagnostics->found(finding)};
    add(origin, error.with_message(text).with_origin(Origin::kInput).set_findings(found), text, finding.message);
  }

  void add(const ValueOrigin& origin, const Error& error, const std::string& text, const std::string& message) {
    config::Finding finding;
    finding.origin = origin;
    finding.message = message;
    finding.error_origin = error.origin();
    finding.status = error.status();
    finding.block = text;
    all_.add(std::move(finding));
    only_ = error;
  }

  [[nodiscard]] const Effective& option(const char* section, const char* key) const {
    return *state_.core_tables.at(section).find(key);
  }

  /// The plan at the workers that a run starts, where the config says what to run or with how many.
  void look_at_plan() {
    if (!option("run", "workers").is_set) return;  // it is not what somebody wrote
    const Planner planner(config_);
    if (!workers_of_run(config_)) {
      static_cast<void>(any_plan(planner));
      return;
    }
    try {
      static_cast<void>(planner.plan(config_.run().workers));
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
      const ValueOrigin& workers = option("run", "workers").value.origin;
      const bool written = workers.layer != config::Layer::kDefault;
      add(written ? workers : option("run", "command").value.origin,
          with_changes(config_, error.with_message("run.workers: " + error.message()), config_.run().workers,
                       elastic::batch_kept_by(config_.file())));
    }
  }

  void look_at_file(const std::string& table, const Effective& row) {
    std::error_code error;
    if (!row.is_set || row.value.text.empty() || fs::exists(row.value.text, error)) return;
    add(row.value.origin,
        Error(Status::kNotFound, fmt::format("{}{}: there is no {}", table, row.option->key, row.value.text),
              Origin::kInput));
  }

  void look_at_files() {
    for (const char* const key : {"text", "lengths", "loss_tokens"}) look_at_file("data.", option("data", key));
    for (const char* const key : {"costs", "row_costs"}) look_at_file("balancer.", option("balancer", key));
    if (const auto sampler = state_.selections.find("sampler"); sampler != state_.selections.end()) {
      for (const Effective& row : sampler->second.table.rows) {
        if (config::is_row_file(*row.option)) look_at_file("sampler." + sampler->second.use + ".", row);
      }
    }
    const Effective& folder = option("run", "working_dir");
    std::error_code error;
    if (!folder.is_set || folder.value.text.empty() || fs::is_directory(folder.value.text, error)) return;
    add(folder.value.origin,
        Error(Status::kNotFound, fmt::format("run.working_dir: {} is not a directory", folder.value.text),
              Origin::kInput));
  }

  void look_at_program() {
    const RunOptions& run = config_.run();
    const auto program = elastic::find_program(run.command.front(), run.working_dir);
    if (!program) add(option("run", "command").value.origin, program.error());
  }

  const detail::ConfigState& state_;
  Config config_;
  config::Diagnostics all_;    ///< what opening the config found, and what was found since
  std::optional<Error> only_;  ///< the last of these
};

}  // namespace

std::optional<Error> run_findings(const config::Examined& examined) {
  return examined.state == nullptr ? examined.error : Findings(examined.state).all();
}

}  // namespace pliant::cli
