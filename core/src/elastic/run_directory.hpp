// RunDirectory: where one run keeps its ledger, snapshots, logs and what its workers must agree on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "pliant/plan.hpp"

namespace pliant::elastic {

/// What every worker of a job must agree on, pinned when the job starts.
struct JobFacts {
  std::string run_id;
  std::string name;
  int64_t global_batch = 0;
  int64_t granule = 1;
  std::string launcher{};  ///< CallingWorkers::launcher of the job that began the run
};

/// What is wrong where a program uses the embedding API and its job has no plan.
inline constexpr const char* kNeedsPlan =
    "this program uses the embedding API, which needs a plan: add an [elasticity] section to the config, for example "
    "--set elasticity.use=exact --set elasticity.exact.max_train_batch_size=32 --set "
    "'elasticity.exact.micro_batch_sizes=[1]'";

/// What job.json holds.
std::string text_of(const JobFacts& facts);

/// Of a resolved config, hex: equal digests, equal options.
std::string digest_of_config(std::string_view resolved);

/// Why nothing can be read of the ledger of `run`, which has none, and what to name instead.
std::string why_no_ledger(const std::filesystem::path& run);

/// Names inside a run directory. A value; touches nothing by itself.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path config() const { return path_ / "config.toml"; }
  /// Where a config is kept once a resume has put another in its place.
  [[nodiscard]] std::filesystem::path config_before(const std::string& digest) const {
    return path_ / "configs" / (digest + ".toml");
  }
  /// Where [app] was written (config/app_places.hpp).
  [[nodiscard]] std::filesystem::path app_places() const { return path_ / "config.places.json"; }
  [[nodiscard]] std::filesystem::path facts() const { return path_ / "job.json"; }
  [[nodiscard]] std::filesystem::path ledger() const { return path_ / "ledger.jsonl"; }
  [[nodiscard]] std::filesystem::path dataset() const { return path_ / "dataset.bin"; }
  [[nodiscard]] std::filesystem::path logs() const { return path_ / "logs"; }
  /// What workers have brought, such as the names and shapes of arrays, line by line, by its digest.
  [[nodiscard]] std::filesystem::path list_of(const std::string& digest) const { return path_ / "lists" / digest; }
  [[nodiscard]] std::filesystem::path snapshots() const { return path_ / "snapshots"; }
  /// What worker `worker` records for a trace (sharded/trace/trace_log.hpp), while the job runs; relative to the
  /// directory.
  [[nodiscard]] static std::string trace_of(int64_t worker) {
    return "logs/" + std::string(kTrace) + std::to_string(worker);
  }
  /// What worker `worker` of a sharded job visits (sharded/visit_page.hpp), while it lives; likewise.
  [[nodiscard]] static std::string visits_of(int64_t worker) {
    return "logs/" + std::string(kVisits) + std::to_string(worker);
  }
  /// Traces that are there, with their workers, in the order of these.
  [[nodiscard]] std::vector<std::pair<int64_t, std::filesystem::path>> traces() const;
  /// Remove such files: of an agent that was killed, or those that nobody reads any more.
  void remove_traces() const;
  void remove_visits() const;

  // Paths are resolved once, here: a link such as `latest` may point elsewhere a moment later.

  /// Makes `<log_dir>/<name>/<run_id>`, empty. kFailedPrecondition when it is there already: then it is another run's.
  static Result<RunDirectory> create(const std::filesystem::path& log_dir, const JobFacts& facts);
  /// The run in `directory`. kNotFound (kInput) when there is no such folder.
  static Result<RunDirectory> open(const std::filesystem::path& directory);
  /// The run that `latest` points at. kNotFound says what to do.
  static Result<RunDirectory> latest(const std::filesystem::path& log_dir, const std::string& name);

  // Hold a DirectoryLock before you write.

  /// Makes the folders inside; those that are there stay as they are.
  [[nodiscard]] Result<> make_folders() const;
  /// Makes the folders, the facts and the config.
  [[nodiscard]] Result<> fill(const JobFacts& facts, const std::string& resolved_config) const;
  /// Puts `resolved` in the place of the config `before`, which is kept.
  [[nodiscard]] Result<> change_config(const std::string& before, const std::string& resolved) const;
  /// Points `latest` beside it at it.
  [[nodiscard]] Result<> become_latest() const;

  [[nodiscard]] Result<JobFacts> read_facts() const;

 private:
  static constexpr std::string_view kTrace = ".trace-";
  static constexpr std::string_view kVisits = ".visits-";
  /// Files of logs/ that are called `prefix` and a worker, with that, in its order.
  [[nodiscard]] std::vector<std::pair<int64_t, std::filesystem::path>> of_workers(std::string_view prefix) const;
  void remove_of_workers(std::string_view prefix) const;
  std::filesystem::path path_;
};

/// What the job keeps whose run wrote `config_file`; nullopt for any other file.
std::optional<PinnedBatch> batch_kept_by(const std::filesystem::path& config_file);

/// What goes on with a run, as a shell takes it: "pliant run DIR/config.toml --resume DIR -- PROGRAM ARGUMENT". The
/// config is the run's own, which has all that flags and the environment had a say in. `program`: what came after `--`;
/// empty: [run] command has it.
std::string resume_command(const RunDirectory& directory, const std::vector<std::string>& program = {});

/// `words` as a shell takes them, with spaces between.
std::string shell_words(const std::vector<std::string>& words);

/// Workers find there what came after `--`, as shell_words writes it; empty: [run] command has the program.
inline constexpr const char* kProgramVariable = "PLIANT_PROGRAM";
/// resume_command, by a worker of the run, which finds the program there, or as `program`.
std::string resume_command_of_worker(const RunDirectory& directory);
std::string resume_with(const RunDirectory& directory, const std::string& program);

/// One agent at a time works in a run directory. Held until it is destroyed.
class DirectoryLock {
 public:
  /// kFailedPrecondition (kInput) when another process holds it.
  static Result<DirectoryLock> take(const RunDirectory& directory);

 private:
  explicit DirectoryLock(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

/// When it was made, in UTC, and 12 random digits: "20261124-023000-0123456789ab". Agents in containers are often all
/// process 1, and a scheduler starts many in one second.
std::string fresh_run_id();

/// Whole or absent: temporary name, fsync, rename.
Result<> write_file(const std::filesystem::path& file, const std::string& text);

}  // namespace pliant::elastic
