// soak(): each job is played and judged in a process of its own, which sends what is to be counted as one line of JSON.
#include "chaos/soak.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "chaos/blow.hpp"
#include "chaos/disturbed_job.hpp"
#include "scratch_folder.hpp"

namespace pliant::test {
namespace {

using Json = nlohmann::json;

// Jobs that follow each other strike far apart, and many of them at every call.
constexpr int64_t kStride = 7919;

struct Job {
  std::string kind;
  uint32_t seed = 0;
  int64_t at_call = 0;  ///< 0: by the seed
  [[nodiscard]] std::string name() const {
    return at_call == 0 ? fmt::format("{}:{}", kind, seed) : fmt::format("{}:{}:{}", kind, seed, at_call);
  }
};

struct Running {
  Job job;
  int from = -1;
};

// What undisturbed jobs end with; each is played once.
class References {
 public:
  const Undisturbed& of(const Play& play) {
    const std::string key = fmt::format("{}|{}|{}", play.run_keys, play.calls, play.trace_child);
    const auto known = made_.find(key);
    return known != made_.end() ? known->second : made_.emplace(key, play_undisturbed(play)).first->second;
  }

 private:
  std::map<std::string, Undisturbed> made_;
};

int64_t call_of(const Job& job, const Play& play, References& references) {
  if (!play.calls) return 0;
  return job.at_call > 0 ? job.at_call : 1 + (job.seed * kStride) % std::max<int64_t>(references.of(play).stops, 1);
}

Json played(const Job& job, const Play& play, const Undisturbed& reference) {
  const Evidence evidence = play_disturbed(play, reference, job.at_call);
  Json told{{"skipped", evidence.skipped},
            {"against", judge(evidence)},
            {"blows", evidence.signals_sent},
            {"calls", evidence.incarnations.size()},
            {"recomputed", recomputed(evidence)}};
  int64_t healthy = 0;
  double gap = 0;
  double bound = 0;
  std::string words;
  for (const Incarnation& run : evidence.incarnations) {
    healthy += healthy_lost(run);
    for (const std::string& line : run.done) words += "  * " + line + "\n";
    words += run.err;
    words += fmt::format("  -- exit code {}; longest gap {:.1f} s", run.exit_code, run.longest_gap);
    for (const Retreat& retreat : run.retreats) words += fmt::format("; {} steps given up", retreat.steps);
    words += "\n";
    if (run.longest_gap <= gap) continue;
    gap = run.longest_gap;
    bound = run.longest_bound;
  }
  told["healthy_lost"] = healthy;
  told["gap"] = gap;
  told["bound"] = bound;
  told["words"] = words;
  return told;
}

Running start(const Job& job, const Play& play, const Undisturbed& reference) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  std::fflush(nullptr);  // or the child would print it again
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) {
    ::close(ends[0]);
    Json told;
    try {
      told = played(job, play, reference);
    } catch (const std::exception& thrown) {
      told = {{"against", {std::string("the harness failed: ") + thrown.what()}}};
    }
    const std::string text = told.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (size_t done = 0; done < text.size();) {
      const ssize_t n = ::write(ends[1], text.data() + done, text.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    ::_exit(0);
  }
  ::close(ends[1]);
  return {job, ends[0]};
}

Json finish(const Running& running) {
  std::string text;
  char bytes[4096];
  ssize_t n = 0;
  while ((n = ::read(running.from, bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR)) {
    if (n > 0) text.append(bytes, static_cast<size_t>(n));
  }
  ::close(running.from);
  Json told = Json::parse(text, nullptr, false);
  return told.is_object() ? told : Json{{"against", {"the harness died"}}};
}

void say(const Job& job, const Json& told) {
  if (const char* const folder = std::getenv("PLIANT_SOAK_LOGS"); folder != nullptr) {
    std::filesystem::create_directories(folder);
    write_all(std::filesystem::path(folder) / (job.name() + ".log"), told.value("words", ""));
  }
  std::string lines = fmt::format("FAILED: scripts/soak --replay {}\n", job.name());
  for (const auto& line : told["against"]) lines += "  " + line.get<std::string>() + "\n";
  std::fputs(lines.c_str(), stderr);
}

void count(Tally& tally, const Job& job, const Json& told) {
  ++tally.jobs;
  if (const std::string why = told.value("skipped", ""); !why.empty()) {
    ++tally.skipped;
    tally.why_skipped = why;
    return;
  }
  tally.blows += told.value("blows", int64_t{0});
  tally.calls += told.value("calls", int64_t{0});
  tally.recomputed += told.value("recomputed", int64_t{0});
  tally.healthy_lost += told.value("healthy_lost", int64_t{0});
  if (const double gap = told.value("gap", 0.0); gap > tally.longest_gap) {
    tally.longest_gap = gap;
    tally.longest_bound = told.value("bound", 0.0);
  }
  if (told["against"].empty()) return;
  ++tally.failed;
  say(job, told);
}

Job parse(const std::string& text) {
  std::istringstream parts(text);
  Job job;
  std::string seed;
  std::string call;
  std::getline(parts, job.kind, ':');
  std::getline(parts, seed, ':');
  std::getline(parts, call, ':');
  job.seed = static_cast<uint32_t>(std::stoul(seed));
  if (!call.empty()) job.at_call = std::stoll(call);
  return job;
}

}  // namespace

std::vector<Tally> soak(const SoakOrder& order) {
  const std::vector<std::string>& names = order.only.empty() ? kinds() : order.only;
  std::vector<Tally> tallies;
  for (const std::string& name : names) tallies.emplace_back().kind = name;
  const auto job_at = [&](int64_t i) {
    return Job{names[static_cast<size_t>(i) % names.size()], order.first_seed + static_cast<uint32_t>(i), 0};
  };
  References references;  // all before the first job: they reap every child
  for (int64_t i = 0; i < order.jobs; ++i) references.of(play_of(job_at(i).kind, job_at(i).seed));
  std::vector<std::pair<Tally*, Running>> running;
  const auto end_one = [&] {
    const Running first = running.front().second;
    count(*running.front().first, first.job, finish(first));
    running.erase(running.begin());
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  };
  for (int64_t i = 0; i < order.jobs; ++i) {
    if (static_cast<int>(running.size()) >= order.at_once) end_one();
    Job job = job_at(i);
    const Play play = play_of(job.kind, job.seed);
    job.at_call = call_of(job, play, references);
    running.emplace_back(&tallies[static_cast<size_t>(i) % names.size()], start(job, play, references.of(play)));
  }
  while (!running.empty()) end_one();
  return tallies;
}

bool replay(const std::string& text) {
  Job job = parse(text);
  const Play play = play_of(job.kind, job.seed);
  References references;
  const Undisturbed& reference = references.of(play);
  job.at_call = call_of(job, play, references);
  const Json told = finish(start(job, play, reference));
  ::waitpid(-1, nullptr, 0);
  std::fputs(told.value("words", "").c_str(), stderr);
  if (const std::string why = told.value("skipped", ""); !why.empty()) {
    std::fprintf(stderr, "skipped: %s\n", why.c_str());
    return true;
  }
  if (!told["against"].empty()) say(job, told);
  return told["against"].empty();
}

std::string table_of(const std::vector<Tally>& tallies) {
  std::string table =
      fmt::format("{:<12} {:>5} {:>6} {:>7} {:>6} {:>6} {:>10} {:>12} {:>11} {:>7}\n", "kind", "jobs", "failed",
                  "skipped", "blows", "calls", "recomputed", "healthy lost", "longest gap", "bound");
  for (const Tally& row : tallies) {
    table += fmt::format("{:<12} {:>5} {:>6} {:>7} {:>6} {:>6} {:>10} {:>12} {:>9.1f} s {:>5.1f} s\n", row.kind,
                         row.jobs, row.failed, row.skipped, row.blows, row.calls, row.recomputed, row.healthy_lost,
                         row.longest_gap, row.longest_bound);
  }
  for (const Tally& row : tallies) {
    if (!row.why_skipped.empty()) table += fmt::format("{} skipped: {}\n", row.kind, row.why_skipped);
  }
  return table;
}

}  // namespace pliant::test
