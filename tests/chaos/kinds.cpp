// The kinds of faults, each a way of making up a job from a seed.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

#include "chaos/blow.hpp"

namespace pliant::test {
namespace {

using Random = std::mt19937;

constexpr int kCalls = 2;  // of `pliant run` that are disturbed; later ones are let be

int below(Random& random, int limit) {
  return static_cast<int>(random() % static_cast<uint32_t>(limit));
}
double seconds(Random& random, double most) {
  return most * static_cast<double>(random() % 1000) / 1000;
}
template <class Value>
Value one_of(Random& random, std::initializer_list<Value> values) {
  return values.begin()[random() % values.size()];
}

Play usual(Random& random) {
  Play play;
  play.run_keys = fmt::format(
      "workers = 4\ndeterministic = true\nepochs = 2\nsnapshot_every = 7\nmax_restarts = 99\nhang_timeout_s = {}\n"
      "start_timeout_s = {}",
      kHangSeconds, kStartSeconds);
  play.app_keys = "step_ms = 2";
  play.grandchildren = random() % 4 == 0;
  return play;
}

Blow next(Random& random, Deed deed, Who who, int number = 0) {
  Blow blow;
  blow.deed = deed;
  blow.who = who;
  blow.number = number;
  blow.after_commits = 1 + below(random, 12);
  blow.then_s = seconds(random, 0.01);
  blow.pick = static_cast<uint32_t>(random());
  return blow;
}

// Blows count from one another; the loop counts from the start.
std::vector<Blow> in_a_row(std::vector<Blow> blows) {
  int64_t commits = 0;
  for (Blow& blow : blows) blow.after_commits = commits += blow.after_commits;
  return blows;
}

Blow any_signal(Random& random) {
  const Who who = one_of(random, {Who::kWorker, Who::kWorker, Who::kWorker, Who::kNewest, Who::kAgent, Who::kWarden,
                                  Who::kGrandchild, Who::kAllWorkers, Who::kAgentAndWorkers});
  const int signal =
      one_of(random, {SIGKILL,   SIGKILL, SIGKILL,   SIGTERM,  SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,  SIGILL,
                      SIGTRAP,   SIGABRT, SIGBUS,    SIGFPE,   SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE,  SIGALRM,
                      SIGSTKFLT, SIGCHLD, SIGCONT,   SIGSTOP,  SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,   SIGXCPU,
                      SIGXFSZ,   SIGPROF, SIGVTALRM, SIGWINCH, SIGIO,   SIGPWR,  SIGSYS,  SIGRTMIN, SIGRTMAX});
  Blow blow = next(random, Deed::kSignal, who, signal);
  blow.for_s = seconds(random, 1);
  if (random() % 6 == 0) {  // while it starts
    blow.after_commits = 0;
    blow.then_s = seconds(random, 0.15);
  }
  return blow;
}

Play signals(Random& random) {
  Play play = usual(random);
  for (int call = 0; call < kCalls; ++call) {
    std::vector<Blow> blows;
    for (int count = 1 + below(random, 5); count > 0; --count) blows.push_back(any_signal(random));
    play.blows.push_back(in_a_row(blows));
  }
  return play;
}

Play stops(Random& random) {
  Play play = usual(random);
  const bool shrink = random() % 3 == 0;  // leaves a spare
  if (shrink) play.run_keys += "\non_loss = \"shrink\"";
  for (int call = 0; call < kCalls; ++call) {
    std::vector<Blow> blows;
    for (int count = 1 + below(random, 3); count > 0; --count) {
      const Who who =
          one_of(random, {Who::kWorker, Who::kWorker, Who::kNewest, Who::kNewest, Who::kAgent, Who::kWarden});
      const bool joins = who == Who::kNewest;
      if (joins || shrink) blows.push_back(next(random, Deed::kSignal, Who::kWorker, SIGKILL));
      Blow stop = next(random, Deed::kSignal, who, SIGSTOP);
      if (joins) stop.after_commits = 0;
      stop.for_s = who == Who::kAgent || random() % 3 != 0 ? seconds(random, 2.5) : -1;
      blows.push_back(stop);
    }
    play.blows.push_back(in_a_row(blows));
  }
  return play;
}

Play calls(Random& random) {
  Play play;
  play.run_keys = fmt::format(
      "workers = 2\ndeterministic = true\nmax_steps = 6\nsnapshot_every = 2\nmax_restarts = 99\nhang_timeout_s = {}\n"
      "start_timeout_s = {}",
      kHangSeconds, kStartSeconds);
  play.calls = true;
  play.trace_child = one_of(random, {0, 0, 1, 2, 2, 3});  // the agent, the warden, the first workers
  play.trace_signal = play.trace_child == 0 && random() % 4 == 0 ? SIGTERM : SIGKILL;
  return play;
}

Play disks(Random& random) {
  Play play = usual(random);
  play.own_disk = random() % 2 == 0;
  Blow blow = next(random, Deed::kFillDisk, Who::kSurroundings);
  blow.for_s = random() % 2 == 0 ? seconds(random, 0.5) : -1;
  if (!play.own_disk) {
    blow.deed = Deed::kFileSize;
    blow.who = one_of(random, {Who::kAgent, Who::kWorker, Who::kAllWorkers});
    blow.number = one_of(random, {0, 4, 16});
  }
  play.blows = {{blow}};
  return play;
}

Play vanishing(Random& random) {
  Play play = usual(random);
  Blow blow = next(random, Deed::kRemove, Who::kSurroundings);
  blow.name = one_of<const char*>(
      random, {"", "", "ledger.jsonl", "ledger.jsonl", "logs", "snapshots", "config.toml", "job.json", "dataset.bin"});
  play.blows = {{blow}};
  if (random() % 2 == 0) play.blows[0].push_back(next(random, Deed::kSignal, Who::kWorker, SIGKILL));
  if (random() % 4 == 0) play.blows[0].push_back(next(random, Deed::kSignal, Who::kAgent, SIGKILL));
  play.blows[0] = in_a_row(play.blows[0]);
  return play;
}

Play descriptors(Random& random) {
  Play play = usual(random);
  std::vector<Blow> blows;
  for (int count = 1 + below(random, 2); count > 0; --count) {
    const bool joins = random() % 3 != 0;
    if (joins) blows.push_back(next(random, Deed::kSignal, Who::kWorker, SIGKILL));
    Blow blow = next(random, Deed::kDescriptors, joins ? Who::kNewest : Who::kWorker, below(random, 8));
    if (joins) blow.after_commits = 0;
    blow.then_s = 0;
    blows.push_back(blow);
  }
  if (random() % 2 == 0) blows.push_back(next(random, Deed::kSignal, Who::kWorker, SIGKILL));
  play.blows = {in_a_row(blows)};
  return play;
}

Play links(Random& random) {
  Play play = usual(random);
  play.machines = random() % 2 == 0;
  play.own_network = !play.machines;
  play.grandchildren = false;
  play.more = fmt::format(
      "[accelerator]\nuse = \"host\"\n[accelerator.host]\ntransport = \"gloo\"\ninterface = \"{}\"\n"
      "peer_timeout_seconds = {}\n",
      play.machines ? kCable : "lo", kPeerSeconds);
  Blow blow = next(random, Deed::kCutLink, Who::kSurroundings);
  blow.for_s = seconds(random, 4);
  play.blows = {{blow}};
  if (random() % 2 == 0) {
    play.blows[0].insert(play.blows[0].begin(), next(random, Deed::kSignal, Who::kWorker, SIGKILL));
    if (random() % 2 == 0) play.blows[0][1].after_commits = 0;  // while the next group forms
  }
  play.blows[0] = in_a_row(play.blows[0]);
  return play;
}

Play shards(Random& random) {
  Play play = random() % 2 == 0 ? signals(random) : stops(random);
  play.sharded = true;
  play.grandchildren = false;
  const size_t epochs = play.run_keys.find("epochs = 2");
  play.run_keys.replace(epochs, 10, "epochs = 1");
  play.app_keys = "layers = 3\nwidth = 3000";
  // With that budget a layer is gathered again in a step.
  play.coordinator = one_of<const char*>(
      random, {"use = \"zero3\"\n", "use = \"planned\"\n", "use = \"planned\"\nbudget = 65536\n", "use = \"eager\"\n"});
  return play;
}

const std::vector<std::pair<std::string, std::function<Play(Random&)>>>& makers() {
  static const std::vector<std::pair<std::string, std::function<Play(Random&)>>> kMakers{
      {"signals", signals},         {"calls", calls}, {"stops", stops},  {"disks", disks}, {"vanishing", vanishing},
      {"descriptors", descriptors}, {"links", links}, {"shards", shards}};
  return kMakers;
}

}  // namespace

const std::vector<std::string>& kinds() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const auto& [name, make] : makers()) names.push_back(name);
    return names;
  }();
  return kNames;
}

Play play_of(const std::string& kind, uint32_t seed) {
  const auto found =
      std::find_if(makers().begin(), makers().end(), [&](const auto& maker) { return maker.first == kind; });
  if (found == makers().end()) throw std::invalid_argument(fmt::format("there is no kind '{}' of faults", kind));
  std::seed_seq mixed{seed, static_cast<uint32_t>(found - makers().begin())};  // neighbours shall differ
  Random random(mixed);
  return found->second(random);
}

}  // namespace pliant::test
