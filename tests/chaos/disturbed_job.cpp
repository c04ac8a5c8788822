// A job from its first call to its last.
#include "chaos/disturbed_job.hpp"

#include <sys/prctl.h>

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "chaos/pliant_call.hpp"
#include "chaos/surroundings.hpp"
#include "integration/job_runner.hpp"
#include "unit/accelerator/own_namespaces.hpp"

namespace pliant::test {
namespace {

namespace fs = std::filesystem;

constexpr int kMostCalls = 8;
constexpr int kMostDead = 2;  // calls in a row that could do nothing with what is left of a run directory

// The state in the newest snapshot: what is around it differs between runs. See core/src/elastic/snapshot.cpp.
std::string newest_state(const fs::path& directory) {
  fs::path newest;
  std::error_code none;
  for (fs::directory_iterator entry(directory / "snapshots", none), end; !none && entry != end; entry.increment(none)) {
    if (newest.empty() || entry->path().filename() > newest.filename()) newest = entry->path();
  }
  const std::string bytes = newest.empty() ? "" : read_all(newest);
  uint32_t header = 0;
  uint64_t state = 0;
  if (bytes.size() < 32) return "";
  std::memcpy(&header, bytes.data() + 12, sizeof(header));
  std::memcpy(&state, bytes.data() + bytes.size() - 16, sizeof(state));
  if (16 + size_t{header} + 16 > bytes.size()) return "";
  return bytes.substr(16 + header, state);
}

std::vector<std::string> words_of(const Play& play, const Surroundings& around, const fs::path& resumed) {
  std::vector<std::string> words{"run", "pliant.toml", "--json"};
  if (!resumed.empty()) words.insert(words.end(), {"--resume", resumed.string()});
  const std::string before = (play.grandchildren ? "sleep 1000 & " : "") + around.before_worker();
  if (play.grandchildren || play.machines)
    words.insert(words.end(), {"--", "sh", "-c", before + PLIANT_TEST_BIN_DIR + "/toy_worker"});
  return words;
}

// A run that was rescued beside its directory is gone on with; else what is left of the directory.
fs::path to_resume(const fs::path& folder, const fs::path& directory) {
  std::error_code none;
  for (fs::directory_iterator entry(folder / "pliant-runs" / "toy", none), end; !none && entry != end;
       entry.increment(none)) {
    if (entry->path().filename().string().find("-rescued") != std::string::npos) return entry->path();
  }
  return fs::exists(directory / "job.json") ? directory : fs::path();
}

void count_samples(const nlohmann::json& summary, Evidence& evidence) {
  if (!summary.is_object()) return;
  evidence.samples_used_once = summary.value("samples_used_once", int64_t{-1});
  evidence.samples_repeated = summary.value("samples_repeated", int64_t{-1});
}

}  // namespace

std::string config_of(const Play& play) {
  std::string config = toy_config(play.run_keys, play.app_keys) + play.more;
  if (!play.sharded) return config;
  const std::string worker = std::string(PLIANT_TEST_BIN_DIR) + "/toy_worker";
  config.replace(config.find(worker), worker.size(), "sharded_trainer");  // beside the pliant program
  return config + "[coordinator]\n" + play.coordinator;
}

Undisturbed play_undisturbed(const Play& play) {
  Play quiet = play;
  quiet.more.clear();
  quiet.grandchildren = quiet.own_disk = quiet.own_network = quiet.machines = false;
  Surroundings around(quiet);
  write_all(around.folder() / "pliant.toml", config_of(quiet));
  PliantCall call(around, quiet, words_of(quiet, around, {}), {});
  try {
    if (quiet.calls) call.trace(INT64_MAX);
  } catch (const pliant_test::Refused& refused) {
    Undisturbed none;
    none.refused = refused.what();
    return none;
  }
  const Incarnation seen = call.run({});
  if (seen.exit_code != 0) throw std::runtime_error("a job that nobody disturbs fails: " + seen.err);
  return {"", newest_state(call.directory()), call.summary()["samples_expected"].get<int64_t>(), call.calls_seen()};
}

Evidence play_disturbed(const Play& play, const Undisturbed& undisturbed, int64_t at_call) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Surroundings around(play);
  Evidence evidence;
  evidence.snapshot_every = play.calls ? 2 : 7;
  evidence.on_loss_shrink = play.run_keys.find("shrink") != std::string::npos;
  evidence.sharded = play.sharded;
  evidence.samples_expected = undisturbed.samples;
  evidence.skipped = around.refused().empty() ? undisturbed.refused : around.refused();
  if (!evidence.skipped.empty()) return evidence;
  write_all(around.folder() / "pliant.toml", config_of(play));
  fs::path directory;
  bool removed = false;
  int dead = 0;
  for (size_t at = 0; at < kMostCalls; ++at) {
    const fs::path resumed = dead >= kMostDead ? fs::path() : to_resume(around.folder(), directory);
    PliantCall call(around, play, words_of(play, around, resumed), resumed);
    if (play.calls && at == 0) call.trace(at_call);
    Incarnation seen = call.run(at < play.blows.size() ? play.blows[at] : std::vector<Blow>());
    if (at == 0 && seen.exit_code != 0 && seen.err.find("(Debian: libgloo") != std::string::npos) {
      evidence.skipped = "Gloo is not here";
      return evidence;
    }
    evidence.signals_sent += call.blows_struck();
    directory = call.directory();
    dead = removed && seen.exit_code == 2 ? dead + 1 : 0;
    if (removed) seen.surroundings_struck = seen.disk_struck = true;  // files are still missing
    removed = removed || (seen.disk_struck && !play.own_disk);
    evidence.incarnations.push_back(seen);
    count_samples(call.summary(), evidence);
    if (seen.exit_code == 0 || !seen.ended) break;
  }
  if (evidence.incarnations.back().exit_code == 0) evidence.same_weights = newest_state(directory) == undisturbed.state;
  if (evidence.incarnations.back().exit_code == 0 && !removed) {  // what is on disk must say so, too
    PliantCall audit(around, play, words_of(play, around, directory), directory);
    evidence.incarnations.push_back(audit.run({}));
    count_samples(audit.summary(), evidence);
  }
  return evidence;
}

}  // namespace pliant::test
