#include "elastic/agent/resume_choice.hpp"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include "elastic/ledger.hpp"
#include "elastic/snapshot.hpp"

namespace pliant::elastic {
namespace {

namespace fs = std::filesystem;

// A ledger that cannot be read counts: to resume the run says what is wrong with it.
bool has_steps(const RunDirectory& directory) {
  std::error_code error;
  if (!fs::exists(directory.ledger(), error) || Ledger::is_blank(directory.ledger())) return false;
  const Result<Lineage> lineage = Ledger::replay(directory.ledger());
  return !lineage || !lineage->commits.empty();
}

bool is_at_work(const RunDirectory& directory) {
  return !DirectoryLock::take(directory);
}

// All runs beside `latest` but it, the newest first. Their names begin with the second in which they were made.
std::vector<RunDirectory> runs_beside(const RunDirectory& latest) {
  struct Run {
    std::string second;
    fs::file_time_type made;
    fs::path path;
  };
  constexpr size_t kSecond = std::string_view("20261124-023000").size();
  std::vector<Run> found;
  std::error_code error;
  for (fs::directory_iterator entry(latest.path().parent_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code none;
    const RunDirectory run(entry->path());
    if (entry->is_symlink(none) || run.path() == latest.path() || !fs::exists(run.facts(), none)) continue;
    found.push_back(
        {run.path().filename().string().substr(0, kSecond), fs::last_write_time(run.facts(), none), run.path()});
  }
  std::sort(found.begin(), found.end(),
            [](const Run& a, const Run& b) { return std::tie(a.second, a.made) > std::tie(b.second, b.made); });
  std::vector<RunDirectory> runs;
  for (Run& run : found) runs.emplace_back(std::move(run.path));
  return runs;
}

}  // namespace

bool has_snapshots(const RunDirectory& directory) {
  std::error_code error;
  for (fs::directory_iterator entry(directory.snapshots(), error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == kSnapshotExtension) return true;
  }
  return false;
}

Result<RunDirectory> newest_to_resume(const fs::path& log_dir, const std::string& name,
                                      std::vector<RunDirectory>& passed_over) {
  Result<RunDirectory> latest = RunDirectory::latest(log_dir, name);
  if (!latest) return latest;
  std::vector<RunDirectory> newer;
  std::vector<RunDirectory> runs = runs_beside(*latest);
  runs.insert(runs.begin(), *latest);
  for (RunDirectory& run : runs) {
    if (has_snapshots(run) || has_steps(run) || is_at_work(run)) {
      passed_over = std::move(newer);
      return run;
    }
    newer.push_back(std::move(run));
  }
  return latest;
}

std::optional<RunDirectory> newest_of_launcher(const fs::path& log_dir, const std::string& name,
                                               const std::string& launcher) {
  const Result<RunDirectory> latest = RunDirectory::latest(log_dir, name);
  if (!latest) return std::nullopt;
  std::vector<RunDirectory> runs = runs_beside(*latest);
  runs.insert(runs.begin(), *latest);
  for (RunDirectory& run : runs) {
    const Result<JobFacts> facts = run.read_facts();
    if (facts && facts->launcher == launcher) return std::move(run);
  }
  return std::nullopt;
}

}  // namespace pliant::elastic
