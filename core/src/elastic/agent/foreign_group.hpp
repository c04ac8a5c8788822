// ForeignGroup: the agent's decisions about programs that know nothing of Pliant: when one dies, all are ended and
// started again together, as torchrun does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/agent/group.hpp"

namespace pliant::elastic {

/// What a foreign group asks of the agent.
class ForeignActions {
 public:
  virtual ~ForeignActions() = default;
  /// Starts `world_size` workers with restart count `restarts`; ForeignGroup::started follows for each.
  virtual void spawn_group(int64_t world_size, int64_t restarts) = 0;
  virtual void signal(WorkerId worker, int signal) = 0;
  virtual void event(const std::string& line, bool warning) = 0;
  [[nodiscard]] virtual double now() const = 0;
};

struct ForeignOptions {
  std::map<int64_t, int64_t> micro_batch_of;  ///< by valid world size
  int64_t workers = 1;
  std::string on_loss = "replace";  ///< "shrink": one size smaller at each failure
  int64_t max_restarts = 3;
  double stop_grace_s = 15;  ///< from SIGTERM to SIGKILL
};

class ForeignGroup {
 public:
  ForeignGroup(ForeignOptions options, ForeignActions& actions) : options_(std::move(options)), actions_(actions) {
    world_size_ = options_.workers;
  }
  void started(WorkerId worker, int64_t rank);
  void ended(WorkerId worker, const ExitStatus& status);
  /// `signal` and `why` are in the end of the job.
  void request_stop(int signal, std::string why);
  void tick();

  [[nodiscard]] const std::optional<JobEnd>& job_end() const { return over_; }
  [[nodiscard]] int64_t restarts() const { return restarts_; }
  [[nodiscard]] int64_t world_size() const { return world_size_; }
  /// The failure that last made it smaller than was asked for; empty: none did.
  [[nodiscard]] const std::string& shrunk_by() const { return shrunk_by_; }

 private:
  /// All of them ended alike by themselves, soon after the first start: no start mends that.
  [[nodiscard]] bool all_failed_alike() const;
  void end_for_failure();
  void end_all(int signal);
  void all_gone();

  ForeignOptions options_;
  ForeignActions& actions_;
  std::map<WorkerId, int64_t> rank_of_;
  std::vector<ExitStatus> failed_;  ///< how those of this attempt ended that failed by themselves
  int64_t world_size_ = 0;
  int64_t restarts_ = 0;
  std::string failure_;  ///< of this attempt; empty: none yet
  WorkerEnd failed_as_;  ///< how the worker ended that failure_ names
  std::string shrunk_by_;
  double started_at_ = -1;   ///< when the first attempt began
  double alone_since_ = -1;  ///< since when one has failed at the start and the others have not been ended for it
  int stop_signal_ = 0;      ///< 0: no stop was asked for
  std::string stop_reason_;
  double terminated_at_ = -1;  ///< when SIGTERM was sent
  std::optional<JobEnd> over_;
};

}  // namespace pliant::elastic
