// What is done to a job from outside, and when.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace pliant::test {

enum class Who { kAgent, kWarden, kWorker, kNewest, kGrandchild, kAllWorkers, kAgentAndWorkers, kSurroundings };

enum class Deed {
  kSignal,       ///< number: of the signal. One that stops is followed by SIGCONT after for_s
  kDescriptors,  ///< number: as many more file descriptors may be open from now on
  kFileSize,     ///< number: no file grows beyond so many KiB from now on
  kFillDisk,     ///< the run directory's file system has no room for for_s
  kRemove,       ///< `name` goes from the run directory; "" is the directory itself
  kCutLink,      ///< Play::own_network and Play::machines say which, for_s
};

/// Blows follow one another: each waits until the one before has struck.
struct Blow {
  Deed deed = Deed::kSignal;
  Who who = Who::kWorker;
  int number = 0;
  int64_t after_commits = 0;  ///< of this call of `pliant run`
  double then_s = 0;          ///< seconds after that commit
  double for_s = 0;           ///< seconds; negative: for good
  uint32_t pick = 0;          ///< which of several
  std::string name;
};

/// How a kind of fault is played.
struct Play {
  std::string run_keys;     ///< of [run] in the config
  std::string app_keys;     ///< of [app]
  std::string more;         ///< further sections
  bool sharded = false;     ///< samples/sharded_trainer in place of the toy worker
  std::string coordinator;  ///< of a sharded job: [coordinator], without the line that opens it
  bool grandchildren = false;
  bool own_disk = false;     ///< the runs lie on a small file system
  bool own_network = false;  ///< and in a network of their own, which goes down
  bool machines = false;     ///< or ranks take turns on two machines, one of which loses its cable
  bool calls = false;        ///< instead of blows one process is struck at one of its system calls
  int trace_child = 0;       ///< which, as CallTracer counts
  int trace_signal = 0;
  std::vector<std::vector<Blow>> blows;  ///< of each call of `pliant run`; none of later ones
};

/// Names of the kinds, in the order of the table.
const std::vector<std::string>& kinds();
/// What job `seed` of a kind is. Throws std::invalid_argument for a kind that does not exist.
Play play_of(const std::string& kind, uint32_t seed);

/// Seconds without progress that are explained in any job on a loaded machine: a start, or the loss of workers.
constexpr double kUsualSeconds = 5;
/// [run] hang_timeout_s and start_timeout_s of the jobs.
constexpr double kHangSeconds = 1.5;
constexpr double kStartSeconds = 4;
/// [accelerator.host] peer_timeout_seconds where links are cut.
constexpr double kPeerSeconds = 1;
/// Name of the interface of each machine, where there are several.
constexpr const char* kCable = "cable";
/// Seconds without progress that `blow` explains beyond the usual. The table is in docs/how-to/soak.md.
double explains(const Blow& blow);
/// What a blow does to a worker.
enum class Harm { kNone, kPossible, kSure };
/// At worst.
Harm harm_of(const Blow& blow);
bool stops_a_process(int signal);
std::string words_for(const Blow& blow);

}  // namespace pliant::test
