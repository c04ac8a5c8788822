// RunDirectory: where one run keeps its ledger, snapshots, logs and what its workers must agree on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "pliant/plan.hpp"

namespace pliant::elastic {

/// What every worker of a job must agree on, pinned when the job starts.
struct JobFacts {
  std::string run_id;
  std::string name;
  int64_t global_batch = 0;
  int64_t granule = 1;
};

/// Names inside a run directory. A value; touches nothing by itself.
class RunDirectory {
 public:
  explicit RunDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path config() const { return path_ / "config.toml"; }
  [[nodiscard]] std::filesystem::path facts() const { return path_ / "job.json"; }
  [[nodiscard]] std::filesystem::path ledger() const { return path_ / "ledger.jsonl"; }
  [[nodiscard]] std::filesystem::path dataset() const { return path_ / "dataset.bin"; }
  [[nodiscard]] std::filesystem::path logs() const { return path_ / "logs"; }
  [[nodiscard]] std::filesystem::path snapshots() const { return path_ / "snapshots"; }

  /// Makes `<log_dir>/<name>/<run_id>` with its folders, the config and the facts; points `<log_dir>/<name>/latest` at
  /// it.
  static Result<RunDirectory> create(const std::filesystem::path& log_dir, const JobFacts& facts,
                                     const std::string& resolved_config);
  /// The run that `latest` points at. kNotFound says what to do.
  static Result<RunDirectory> latest(const std::filesystem::path& log_dir, const std::string& name);

  [[nodiscard]] Result<JobFacts> read_facts() const;

 private:
  std::filesystem::path path_;
};

/// Whole or absent: temporary name, fsync, rename.
Result<> write_file(const std::filesystem::path& file, const std::string& text);

}  // namespace pliant::elastic
