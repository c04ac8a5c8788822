// One call of `pliant run`, with what is done to it and what is seen of it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "chaos/blow.hpp"
#include "chaos/call_tracer.hpp"
#include "chaos/evidence.hpp"
#include "chaos/processes.hpp"
#include "chaos/surroundings.hpp"

namespace pliant::test {

class PliantCall {
 public:
  /// Starts `pliant <words>` in the folder, which holds the config. `directory`: of the run that it resumes, or empty.
  PliantCall(Surroundings& surroundings, const Play& play, const std::vector<std::string>& words,
             std::filesystem::path directory);
  ~PliantCall();
  PliantCall(const PliantCall&) = delete;
  PliantCall& operator=(const PliantCall&) = delete;

  /// Strikes the process that the play names at that call. Before run().
  void trace(int64_t at_call);
  /// Plays `blows`; returns when the job's processes are gone.
  Incarnation run(std::vector<Blow> blows);

  /// The run's directory; empty when none was made.
  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  /// The last line of stdout; null where it is none.
  [[nodiscard]] const nlohmann::json& summary() const { return summary_; }
  [[nodiscard]] int blows_struck() const { return struck_; }
  [[nodiscard]] int64_t calls_seen() const { return tracer_ ? tracer_->stops_seen() : 0; }

 private:
  struct Stopped {
    pid_t pid;
    double until;
  };
  struct Struck {
    double at;
    double explains;
  };

  void reap();
  void follow_ledger();
  void note_progress();
  void play_next();
  bool strike(const Blow& blow);
  bool strike_worker(const WorkerSeen& worker, const Blow& blow);
  void send(pid_t pid, const Blow& blow);
  void signal_agent(const Blow& blow);
  void strike_surroundings(const Blow& blow);
  void undo(double now);
  void find_struck_by_tracer();
  void wait_for_the_last();
  void read_ledger();
  void read_words();

  Surroundings& surroundings_;
  const std::filesystem::path folder_;
  const Play& play_;
  std::filesystem::path directory_;
  pid_t agent_ = 0;
  int gate_ = -1;  ///< closed when the agent may begin
  bool ended_ = false;
  std::unique_ptr<CallTracer> tracer_;
  std::vector<Blow> blows_;
  size_t next_ = 0;
  double due_ = -1;  ///< when the next blow falls; negative: its commit has not come
  std::vector<Stopped> stopped_;
  double disk_free_at_ = -1;
  double link_up_at_ = -1;
  std::vector<Struck> history_;
  int struck_ = 0;
  int ledger_ = -1;
  int64_t lines_before_ = 0;
  std::string line_;  ///< the ledger's unfinished one
  int64_t commits_ = 0;
  double began_ = 0;
  double progress_at_ = 0;
  double late_ = 0;  ///< seconds that this process itself was not run, since the last progress
  Incarnation seen_;
  nlohmann::json summary_;
};

/// Monotonic.
double seconds_now();
/// Complete lines of a ledger.
std::vector<nlohmann::json> ledger_lines(const std::filesystem::path& directory);

}  // namespace pliant::test
