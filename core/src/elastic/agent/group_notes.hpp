// What a group keeps in mind of snapshots that are under way and of workers that failed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/agent/group_actions.hpp"
#include "elastic/ledger.hpp"
#include "elastic/message.hpp"

namespace pliant::elastic {

/// Why a group is formed.
struct GroupReason {
  GroupCause cause = GroupCause::kStart;
  std::string text = "start";
  std::optional<WorkerEnd> worker{};  ///< of a loss: how the worker ended, unless it was killed by the agent
};

/// A snapshot that was recorded since states were last compared.
struct UnconfirmedSnapshot {
  SnapshotRecord record;
  WorkerId writer = -1;
};

/// The snapshot of which the owners write their parts.
struct SnapshotInParts {
  int64_t step = 0;
  std::string file;
  std::vector<WorkerId> writers;
  int64_t generation = 0;               ///< in whose draft they are
  std::map<WorkerId, uint64_t> cuts;    ///< digests of what each of them owns (digest_of_cut)
  std::map<WorkerId, uint64_t> beside;  ///< of those who have: PartWritten::beside
  std::vector<uint64_t> digests{};      ///< sums of PartWritten::digests of those who have; empty: one told none
  bool assembling = false;              ///< all have; the first of them finishes it
};

/// The newest snapshot that [run] snapshot_every asked for, until it is recorded.
struct DueSnapshot {
  int64_t step = 0;
  WorkerId writer = -1;
};

/// A collective that failed on a worker.
struct BrokenCollective {
  WorkerId worker;
  bool shortage;
};

/// The last exit of a worker that was ready and refused its config or a plugin, until the job has come further than it
/// was then.
struct LastRefusal {
  Origin origin = Origin::kRun;
  std::optional<Refused> what;
  WorkerId newest = -1;  ///< worker at that time
  int64_t generation = 0;
  int64_t committed = 0;
};

}  // namespace pliant::elastic
