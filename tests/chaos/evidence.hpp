// What is seen of one disturbed job, and what is to be held against it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace pliant::test {

/// Commits were given up: the job went back by `steps`.
struct Retreat {
  int64_t steps = 0;
  int64_t world_size = 0;  ///< ranks of the generation that had come so far; each of them held its state
  bool at_start = false;   ///< of a resumed run, before its first commit
};

/// Time from one commit to the next, or from a run's start, or to its end.
struct Gap {
  double seconds = 0;
  double bound = 0;  ///< what was done in it explains so much
};

/// One call of `pliant run`.
struct Incarnation {
  bool ended = true;              ///< by itself, in time
  int exit_code = 0;              ///< 128 + n for signal n
  std::string err;                ///< what it said
  std::vector<std::string> done;  ///< what was done to it, in words
  std::set<int> signals;          ///< that the agent got
  int stops_asked = 0;            ///< of these, how many ask it to stop
  bool warden_struck = false;
  bool surroundings_struck = false;  ///< disk or network: workers may be lost, and it may end
  bool disk_struck = false;          ///< there may have been no room for a snapshot, or it may be gone
  bool ledger_removed = false;
  std::set<int64_t> struck;  ///< workers to which something was done of which they may die
  std::set<int64_t> doomed;  ///< of these, those of which it is sure, or who were stopped for long: their state may go
  std::set<int64_t> lost;    ///< workers that it says it lost
  int64_t restarts = 0;
  std::vector<Retreat> retreats;
  Gap worst;                 ///< the gap that exceeds its bound most, or comes nearest to it
  double longest_gap = 0;    ///< seconds
  double longest_bound = 0;  ///< of that gap
  int64_t left_behind = 0;   ///< processes that outlived it
};

/// One job: a call, and resumed calls until it is finished.
struct Evidence {
  int64_t snapshot_every = 0;  ///< steps
  bool on_loss_shrink = false;
  bool sharded = false;  ///< each worker holds a part of the state: one that dies takes the job back to a snapshot
  int signals_sent = 0;  ///< blows of all kinds
  std::vector<Incarnation> incarnations;
  bool same_weights = true;  ///< as an undisturbed job's, to the bit
  int64_t samples_expected = 0;
  int64_t samples_used_once = 0;
  int64_t samples_repeated = 0;
  std::string skipped;  ///< why this kind cannot be played here
};

/// Steps that were committed and computed again.
int64_t recomputed(const Evidence& evidence);
/// Workers that were lost although nobody touched them.
int64_t healthy_lost(const Incarnation& incarnation);
/// What was lost and need not have been, a sentence each; empty when all is well.
std::vector<std::string> judge(const Evidence& evidence);

}  // namespace pliant::test
