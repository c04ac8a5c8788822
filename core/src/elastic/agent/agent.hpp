// Agent: the event loop between worker processes and the group's decisions. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "elastic/agent/callers.hpp"
#include "elastic/agent/foreign_group.hpp"
#include "elastic/agent/group.hpp"
#include "elastic/agent/pace.hpp"
#include "elastic/agent/warden.hpp"
#include "elastic/ledger.hpp"
#include "elastic/run_directory.hpp"
#include "pliant/batches.hpp"
#include "pliant/job.hpp"
#include "rendezvous/rendezvous.hpp"

namespace pliant::elastic {

/// Everything that is settled before the first worker starts.
struct AgentOrder {
  const Config& config;
  JobOptions options;
  RunDirectory directory;
  JobFacts facts{};
  std::vector<std::string> command{};           ///< argv[0] is a path
  std::map<int64_t, int64_t> micro_batch_of{};  ///< by valid world size; empty: the job has no [elasticity]
  std::map<int64_t, int64_t> other_batch_of{};  ///< by world size at which the policy answers another global batch
  std::string elasticity_digest{};              ///< of the policy and its options; empty: the job has no [elasticity]
  int64_t min_resize_interval_s = 0;
  std::optional<Ledger> ledger{};            ///< of the resumed run
  std::optional<SnapshotRecord> snapshot{};  ///< to resume from
  std::string config_before{};               ///< that the resumed run had
  std::vector<Caller> callers{};             ///< the workers, rank by rank, where another launcher has started them
};

class Agent {
 public:
  /// `warden`: none where another launcher has started the workers.
  Agent(AgentOrder order, JobObserver& observer, std::optional<Warden> warden);
  ~Agent();

  /// Runs until every worker is gone.
  JobEnd run();

  /// Where the run is by now: a directory that is gone was left for a fresh one.
  [[nodiscard]] const RunDirectory& directory() const;
  [[nodiscard]] const Pace& pace() const;
  [[nodiscard]] const std::optional<Ledger>& ledger() const;
  /// The job's batches; null for a foreign program or when no worker became ready.
  [[nodiscard]] Batches* batches();
  [[nodiscard]] bool uses_api() const;
  [[nodiscard]] int64_t generations() const;
  [[nodiscard]] int64_t restarts() const;
  /// Of the newest generation that stood; 0: none did.
  [[nodiscard]] int64_t world_size() const;
  /// Why that is fewer than were asked for; empty: it is not.
  [[nodiscard]] std::string shrunk_by() const;
  /// Comparisons of the ranks' states, and what they took on the slowest rank.
  [[nodiscard]] int64_t digests() const;
  [[nodiscard]] double digest_seconds() const;
  [[nodiscard]] ShardedMemory sharded_memory() const;
  [[nodiscard]] sharded::TracedPasses traced_passes() const;
  [[nodiscard]] int64_t bytes_moved() const;
  /// Injected kills that were not carried out.
  [[nodiscard]] std::vector<InjectedKill> pending_kills() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant::elastic
