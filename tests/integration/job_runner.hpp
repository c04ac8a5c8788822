// JobRunner: runs `pliant` as a user would, in a folder of its own, and reads what it leaves behind.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "elastic/ledger.hpp"
#include "scratch_folder.hpp"

namespace pliant::test {

/// A config for the toy worker; `more` is appended ([app] comes last, so keys of it may be given).
std::string toy_config(const std::string& run_keys, const std::string& app_keys = "");
/// Keys of [app]: the toy worker of `rank` does `how` at `step`, in its first incarnation; -1: every rank.
std::string misbehaving(const std::string& how, int rank, int64_t step);

inline bool has(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// Writes a ledger again with every commit as `change` leaves it, each line whole.
void forge_ledger(const std::filesystem::path& file, const std::function<void(elastic::CommitRecord&)>& change);

/// The words of a command as a shell takes them: '...' and \ are known.
std::vector<std::string> words_of_shell(const std::string& line);

struct Ended {
  int exit_code = 0;       ///< 128 + n for a signal
  std::string out;         ///< stdout
  std::string err;         ///< stderr
  nlohmann::json summary;  ///< last line of stdout when it is JSON
};

/// Variables of the environment while this lives, and then what they were before; jobs inherit them.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& values);
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment();

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

class JobRunner {
 public:
  /// Writes pliant.toml into the folder.
  void config(const std::string& text);
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }

  /// `pliant <arguments>` in the folder, waited for.
  Ended run(const std::vector<std::string>& arguments);
  /// `pliant run pliant.toml --json` and `more`.
  Ended run_json(std::vector<std::string> more = {});
  /// The command that is the first of `text` in backticks, as whoever reads it would give it, with --json.
  Ended paste(const std::string& text);
  /// `run` under a limit on the size of files, in KiB, whose signal is ignored: writes fail as on a full disk.
  Ended run_limited(uint64_t file_kib, const std::vector<std::string>& arguments);
  /// Starts it and returns its pid; end it with wait.
  pid_t start(const std::vector<std::string>& arguments, uint64_t file_kib = 0);
  Ended wait(pid_t pid);

  /// Blocks until `condition` holds, which is asked again and again; false when the process `pid` ended first.
  static bool wait_until(pid_t pid, const std::function<bool()>& condition);
  /// Blocks until the newest run's ledger holds `commits` commits; false when the process `pid` ended first.
  bool wait_for_commits(pid_t pid, int64_t commits);
  /// The same for records of one kind.
  bool wait_for_records(pid_t pid, const std::string& kind, int64_t count);
  /// Blocks until its stderr holds `words`; false when the process `pid` ended first.
  bool wait_for_words(pid_t pid, const std::string& words);
  /// The newest run's directory.
  [[nodiscard]] std::filesystem::path latest() const;
  /// Records of one kind in the newest run's ledger.
  [[nodiscard]] std::vector<nlohmann::json> ledger(const std::string& key) const;
  /// Digests of what the program held when step `step` began, by part: arrays and "(rest)".
  [[nodiscard]] nlohmann::json parts_of_state(int64_t step) const;
  /// What the newest snapshot of the newest run holds: step, fingerprint, learning rate, names and shapes of the
  /// arrays, the state. Left out are the run's id and the digest of a sharded model's parameters, which a job that is
  /// whole has not. Empty when there is none.
  [[nodiscard]] std::string snapshot() const;
  /// The process that was started as rank `rank` of this folder's runs; 0 when there is none.
  [[nodiscard]] pid_t worker(int64_t rank) const;
  /// The process that was started as the `restart`-th replacement; 0 when there is none.
  [[nodiscard]] pid_t replacement(int64_t restart) const;
  /// Processes of this folder's runs that are still alive.
  [[nodiscard]] int processes_left() const;
  /// Blocks until there is none: those whose agent was killed end a moment later.
  void wait_for_processes() const;

 private:
  /// Living processes of this folder's runs with their environments.
  [[nodiscard]] std::map<pid_t, std::string> processes() const;
  /// The one whose environment holds `variable` ("RANK=1"); 0 when there is none.
  [[nodiscard]] pid_t process_with(const std::string& variable) const;
  ScratchFolder folder_;
};

/// The commits that count in the end.
std::vector<elastic::CommitRecord> commits_of(const JobRunner& job);
/// Each is of the same samples as the one of `others` in its place; to the bit in deterministic mode, else of nearly
/// the same loss.
void check_commits(const std::vector<elastic::CommitRecord>& commits, const std::vector<elastic::CommitRecord>& others,
                   bool deterministic);

}  // namespace pliant::test
