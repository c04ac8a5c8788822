#include "run_view.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/printable.hpp"
#include "exit_codes.hpp"
#include "metric_json.hpp"
#include "output.hpp"
#include "progress.hpp"
#include "units.hpp"

namespace pliant::cli {
namespace {

constexpr double kLiveInterval = 0.1;   // seconds between two pictures of the live line
constexpr double kPlainInterval = 5.0;  // seconds between two plain lines
constexpr int kBarCells = 24;

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string describe(const JobProgress& p) {
  std::string text = fmt::format("step {}/{}  loss {:.4f}  world {}  lr {:.3g}", p.step, p.total_steps, p.loss,
                                 p.world_size, p.learning_rate);
  for (const auto& [name, value] : p.metrics) text += fmt::format("  {} {:.4g}", name, value);
  if (p.evaluation) {
    for (const auto& [name, value] : p.evaluation->values) {
      text += fmt::format("  {} {:.4g} at {}", name, value, p.evaluation->step);
    }
  }
  if (p.tokens_per_second > 0) text += fmt::format("  {} tokens/s", grouped(std::llround(p.tokens_per_second)));
  if (p.seconds_left > 0) text += fmt::format("  ETA {}", duration(p.seconds_left));
  return text;
}

/// "rank 0: evaluation, 0:12 of at most 10:00"; of several, the one that is at it longest.
std::string describe(const std::vector<BusyWorker>& workers) {
  if (workers.empty()) return {};
  const auto shorter = [](const BusyWorker& a, const BusyWorker& b) { return a.seconds < b.seconds; };
  const BusyWorker& first = *std::max_element(workers.begin(), workers.end(), shorter);
  std::string who =
      fmt::format("{} {}", first.rank < 0 ? "worker" : "rank", first.rank < 0 ? first.worker : first.rank);
  if (workers.size() > 1) who += fmt::format(" and {} more", workers.size() - 1);
  return fmt::format("{}: {}, {} of at most {}", who, printable(first.what), duration(first.seconds),
                     duration(first.at_most_s));
}

std::string bar(const JobProgress& p) {
  return progress_bar(p.total_steps > 0 ? static_cast<double>(p.step) / static_cast<double>(p.total_steps) : 0);
}

}  // namespace

RunView::~RunView() {
  finish_line();
}

void RunView::finish_line() {
  if (line_open_) note("\n");
  line_open_ = false;
}

void RunView::on_commit(const JobProgress& progress) {
  if (quiet_) return;
  progress_ = progress;
  const bool last = progress.step == progress.total_steps;
  const double interval = live_ ? kLiveInterval : kPlainInterval;
  if (drawn_at_ >= 0 && progress.seconds - drawn_at_ < interval && !last) return;
  drawn_at_ = progress.seconds;
  if (live_) return draw();
  note(fmt::format("{}\n", describe(progress)));
}

void RunView::draw() {
  std::string text = progress_ ? describe(*progress_) : std::string();
  if (!busy_.empty()) text += (text.empty() ? "" : "  ") + busy_;
  const bool room_for_bar = progress_ && text.size() + kBarCells + 2 <= terminal_columns();
  const std::string line = room_for_bar ? bar(*progress_) + "  " + text : text.substr(0, terminal_columns() - 1);
  note(fmt::format("\r\033[K{}", line));
  line_open_ = true;
}

void RunView::on_busy(const std::vector<BusyWorker>& workers) {
  busy_ = describe(workers);
  said_busy_ = said_busy_ && !workers.empty();
  if (quiet_) return;
  if (live_) {
    if (progress_ || !busy_.empty()) draw();
    return;
  }
  const auto is_long = [](const BusyWorker& one) { return one.seconds >= kPlainInterval; };
  if (said_busy_ || std::none_of(workers.begin(), workers.end(), is_long)) return;
  said_busy_ = true;
  note(fmt::format("{}\n", busy_));
}

void RunView::on_event(std::string_view line, bool warning) {
  if (quiet_ && !warning) return;
  if (line_open_) note("\r\033[K");
  line_open_ = false;
  const std::string shown = printable(line);  // workers and plugins write what they like
  if (warning) {
    note(fmt::format("{}warning:{} {}\n", color_ ? "\033[33m" : "", color_ ? "\033[0m" : "", shown));
  } else {
    note(fmt::format("{}\n", shown));
  }
}

std::string summary_table(const JobSummary& s) {
  struct Row {
    std::string name, value;
  };
  std::vector<Row> rows;
  const auto add = [&rows](std::string name, std::string value) {
    rows.push_back({std::move(name), std::move(value)});
  };
  const std::string_view outcome = name_of(s.end.outcome);
  add("outcome", s.end.reason.empty() ? std::string(outcome) : fmt::format("{}: {}", outcome, s.end.reason));
  if (s.uses_api && s.steps > 0) {
    add("steps", fmt::format("{} of {}{}", s.steps, s.total_steps,
                             s.resumed_from >= 0 ? fmt::format(", resumed from {}", s.resumed_from) : ""));
    if (s.steps_skipped > 0) add("steps without update", fmt::format("{}; not finite", s.steps_skipped));
    add("global batch", fmt::format("{} rows", s.global_batch));
    add("tokens", fmt::format("{}, {} a second", grouped(s.tokens), grouped(std::llround(s.tokens_per_second))));
    add("packing efficiency", fmt::format("{:.1f} %; with one row per sequence: {:.1f} %", 100 * s.packing_efficiency,
                                          100 * s.efficiency_without_packing));
    add("loss, first ten steps", fmt::format("{:.4f}", s.loss_first));
    add("loss, last ten steps", fmt::format("{:.4f}", s.loss_last));
    for (const auto& [name, value] : s.metrics) add(name, fmt::format("{:.6g} at the last step", value));
    if (!s.evaluations.empty()) {
      for (const auto& [name, value] : s.evaluations.back().values)
        add(name, fmt::format("{:.6g}, evaluated after step {}", value, s.evaluations.back().step));
    }
    add("samples used once", fmt::format("{} of {}", grouped(s.samples_used_once), grouped(s.samples_expected)));
    add("samples repeated", grouped(s.samples_repeated));
    add("samples missing", grouped(s.samples_missing));
    for (const auto& [reason, count] : s.samples_dropped) add("samples dropped, " + reason, grouped(count));
    add("time lost", fmt::format("{:.2f} s", s.seconds_lost));
    if (s.digests > 0) {
      // No other rank has what a sharded job's rank owns: it is compared with what its update left.
      add(s.sharded_memory.weights > 0 ? "shards compared" : "states compared",
          fmt::format("at {} steps, {:.2f} ms each, {:.1f} % of the time", grouped(s.digests),
                      1e3 * s.digest_seconds / static_cast<double>(s.digests),
                      s.wall_seconds > 0 ? 100 * s.digest_seconds / s.wall_seconds : 0));
    }
    if (const ShardedMemory& memory = s.sharded_memory; memory.weights > 0) {
      const auto bytes = [](auto count) { return text_of_bytes(static_cast<double>(count)); };
      add("memory per rank",
          fmt::format("weights {}, optimizer {}, gradients {}; peak gathered {}", bytes(memory.weights),
                      bytes(memory.state), bytes(memory.sums), bytes(memory.gathered_most)));
      if (s.passes > 0) {
        add("passes per rank",
            fmt::format("{}, {} in a recorded order", grouped(s.passes), grouped(s.passes_followed)));
      }
      if (s.gathered > 0) {
        add("gathers per rank", fmt::format("{} parameters, {}", grouped(s.gathered), bytes(s.gathered_bytes)));
      }
      if (s.bytes_moved > 0) {
        add("state moved", bytes(s.bytes_moved) + " to new owners");
      }
    }
  }
  if (s.world_size > 0) {
    add("world size", s.shrunk_by.empty() ? std::to_string(s.world_size)
                                          : fmt::format("{} of {} workers: {}", s.world_size, s.workers, s.shrunk_by));
  }
  add("generations", std::to_string(s.generations));
  add("restarts", std::to_string(s.restarts));
  add("wall time", fmt::format("{:.1f} s", s.wall_seconds));
  if (!s.snapshot.empty()) add("snapshot", s.snapshot);
  if (s.best) add("best snapshot", fmt::format("{}, {} {:.6g}", s.best->file, s.best->metric, s.best->value));
  add("run", s.directory.string());
  std::error_code error;  // those of another launcher write elsewhere
  const bool has_logs = !std::filesystem::is_empty(s.directory / "logs", error) && !error;
  if (has_logs) add("output of workers", (s.directory / "logs").string());
  if (!s.resume.empty()) add("to go on", s.resume);
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  std::string table;
  for (const auto& [name, value] : rows) table += fmt::format("{:<{}}  {}\n", name, width, value);
  return table;
}

std::string summary_json(const JobSummary& s) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.run/1";
  json["exit_code"] = exit_code_of_job(s.end);
  json["outcome"] = name_of(s.end.outcome);
  json["reason"] = s.end.reason;
  json["run_id"] = s.run_id;
  json["directory"] = s.directory.string();
  json["uses_api"] = s.uses_api;
  json["workers"] = s.workers;
  json["world_size"] = s.world_size;
  json["shrunk_by"] = s.shrunk_by.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(s.shrunk_by);
  json["global_batch"] = s.global_batch;
  json["steps"] = s.steps;
  json["steps_this_run"] = s.steps_this_run;
  json["steps_skipped"] = s.steps_skipped;
  json["digests"] = s.digests;
  json["digest_seconds"] = s.digest_seconds;
  if (const ShardedMemory& memory = s.sharded_memory; memory.weights > 0) {
    json["bytes_of_a_rank"] = {{"weights", memory.weights},
                               {"optimizer", memory.state},
                               {"gradients", memory.sums},
                               {"whole_at_once", memory.gathered_most}};
    json["bytes_moved"] = s.bytes_moved;
    if (s.passes > 0) json["passes_of_a_rank"] = {{"all", s.passes}, {"followed", s.passes_followed}};
    json["gathers_of_a_rank"] = {{"parameters", s.gathered}, {"bytes", s.gathered_bytes}};
  }
  json["total_steps"] = s.total_steps;
  json["resumed_from"] = s.resumed_from < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(s.resumed_from);
  json["tokens"] = s.tokens;
  json["tokens_per_second"] = s.tokens_per_second;
  json["packing_efficiency"] = s.packing_efficiency;
  json["efficiency_without_packing"] = s.efficiency_without_packing;
  json["loss_first"] = s.loss_first;
  json["loss_last"] = s.loss_last;
  json["metrics"] = json_of(s.metrics);
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const Evaluation& one : s.evaluations) json["evaluations"].push_back(json_of(one));
  json["samples_expected"] = s.samples_expected;
  json["samples_used_once"] = s.samples_used_once;
  json["samples_repeated"] = s.samples_repeated;
  json["samples_missing"] = s.samples_missing;
  json["samples_dropped"] = s.samples_dropped;
  json["generations"] = s.generations;
  json["restarts"] = s.restarts;
  json["seconds_lost"] = s.seconds_lost;
  json["seconds_to_recover_worst"] = s.seconds_to_recover_worst;
  json["wall_seconds"] = s.wall_seconds;
  json["snapshot"] = s.snapshot.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(s.snapshot);
  json["best_snapshot"] = nullptr;
  if (s.best) {
    json["best_snapshot"] = {
        {"file", s.best->file}, {"step", s.best->step}, {"metric", s.best->metric}, {"value", s.best->value}};
  }
  json["resume"] = s.resume.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(s.resume);
  if (!s.trace.empty()) json["trace"] = s.trace.string();
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pliant::cli
