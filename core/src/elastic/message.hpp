// The messages between an agent and its workers: one JSON object a line, over a socket that the worker inherits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "elastic/metric_table.hpp"
#include "pliant/balancer.hpp"
#include "pliant/sharded.hpp"
#include "sharded/trace/traced_passes.hpp"
#include "sharded/trace/visited.hpp"

namespace pliant::elastic {

/// Raised whenever a message changes: agent and worker may come from two builds of Pliant. The agent tells its own in
/// the environment, and a worker that speaks another refuses to begin.
inline constexpr int kProtocol = 21;
inline constexpr const char* kProtocolVariable = "PLIANT_PROTOCOL";

/// Where in a step an injected kill or stop strikes.
/// kCopy: half way through its copy of a state, the first one from the injection's step on.
/// kGather, kScatter: of a sharded job, when the rank has begun the step's first gather of a parameter, or has first
/// sent gradients to their owners, and has not waited for it.
/// kSnapshot, kFinish: as it writes a snapshot, or its part of one; and, of a sharded job, as it finishes one whose
/// parts all ranks have written. The first one that holds the injection's step or more.
enum class InjectionPoint {
  kForward,
  kReduce,
  kVote,
  kCommit,
  kApply,
  kCopy,
  kGather,
  kScatter,
  kSnapshot,
  kFinish,
  kBucket
};

/// "kill:rank=2,step=20,at=forward" as the worker sees it.
struct Injection {
  int64_t id = 0;
  int64_t step = 0;
  InjectionPoint at = InjectionPoint::kForward;
  bool stop = false;  ///< SIGSTOP instead of SIGKILL
};

/// How long a rank computed its share, and what it was.
struct ShareTime {
  int64_t tokens = 0;        ///< sum of the lengths; 0: the time says nothing
  double squares = 0;        ///< sum of the squared lengths
  int64_t microseconds = 0;  ///< from Session::next to Step::commit, and until all has run that was enqueued by then
};

// Worker to agent.

/// The program uses the embedding API.
struct Hello {
  int64_t pid = 0;
};
/// Dataset and state are there; the worker can be given a rank once the agent has found that it agrees with the others.
/// It has written nothing.
struct Ready {
  std::string fingerprint;  ///< Batches::fingerprint, hex
  std::string options{};    ///< digest of the resolved config, hex
  int64_t device = 0;       ///< that it computes on
  std::string device_name{};
  bool host_visible = true;  ///< its device is the CPU, or has the CPU's memory
  bool sharded = false;      ///< its state is a part of the ranks' state: each holds what it owns
  std::string model{};       ///< of a sharded job: digest of parameters, modules and what is kept for each weight, hex
  std::string arrays{};      ///< digest of StateArrays::layout, hex; empty where the program has none
  std::string gradient{};  ///< its elements, and the digest of what they are the gradient of where the program says it
  std::string policies{};  ///< digest of what balancer and learning-rate rule answer to the same question, hex
  /// plugin_files(). Others than those of other workers may give the same answers: another machine may need a build of
  /// its own.
  std::vector<std::string> plugins{};
};
/// Answer to WriteData.
struct DataWritten {
  std::string error;  ///< empty: the data set is there
  int status = 0;     ///< of the error, a Status
  Origin origin = Origin::kRun;
};
/// An error of Origin::kInput or kPlugin leaves a call of the session: the worker refuses its config or its machine. A
/// program may catch it and go on; most end with its exit code. Whether another worker refuses the same is told by
/// these fields.
struct Refused {
  int status = 0;  ///< a Status
  Origin origin = Origin::kRun;
  std::string options{};  ///< that it is about (Error::options)
  bool operator==(const Refused&) const = default;
};
/// Rank 0 made the id of the generation's communicator.
struct CommIdMade {
  int64_t generation = 0;
  std::string id;  ///< hex
};
/// This rank has begun to join the communicator and waits for the others.
struct Joining {
  int64_t generation = 0;
};
/// All have joined, and what this rank gives of the state is at hand: it takes part in the copy.
struct Copying {
  int64_t generation = 0;
  /// From here until Formed it holds nothing: the copy is written over what it held. Of a sharded job: parts of the
  /// state move from here until all ranks are formed.
  bool in_place = false;
  bool given_up = false;  ///< the program gave up by itself, after a commit, what may have changed its part
};
/// The communicator stands and the state is that of next_step.
struct Formed {
  int64_t generation = 0;
  std::string owners{};     ///< of a sharded job: who owns what from now on (Ownership::save)
  int64_t bytes_moved = 0;  ///< that this rank sent of the state to its new owners
};
/// Answer to Tell, and to a Commit that asks for the state, as a Tell may, too: the committed steps that this worker's
/// state holds; -1: it holds a part of a copy, which is nothing.
struct Holds {
  int64_t step = 0;
  bool compared = false;  ///< state is there
  uint64_t state = 0;     ///< StateDigest::root
};
/// This rank has computed its share and enters the reduction.
struct Reducing {
  int64_t generation = 0;
  int64_t step = 0;
  uint64_t assignment = 0;  ///< digest of what this rank takes the step's assignment to be
  uint64_t rows = 0;        ///< and of its batch (digest_of)
};
/// This rank has reduced the step. digest, loss: of the whole global batch, equal on all ranks.
struct Vote {
  int64_t generation = 0;
  int64_t step = 0;
  uint64_t digest = 0;
  double loss_sum = 0;
  int64_t loss_tokens = 0;
  double learning_rate = 0;
  ShareTime share{};                   ///< of this rank
  bool finite = true;                  ///< gradient and loss of the whole global batch, equal on all ranks
  std::vector<RowRange> not_finite{};  ///< of this rank: rows with a NaN or an infinity; the first of them
  int64_t not_finite_more = 0;         ///< ranges of such rows that are not told
  bool sum_finite = true;              ///< false: what this rank added up is not, and of which rows is not known
  bool sum_overflows = false;          ///< what this rank added up is not finite, although each of its rows is
  bool compared = false;               ///< state is that of the step's beginning
  uint64_t state = 0;                  ///< StateDigest::root
  int64_t digest_microseconds = 0;     ///< that it took
  sharded::VisitCount visits{};        ///< of a sharded job: equal on all ranks
  std::vector<double> scaling{};       ///< all that the learning-rate rules answered to this rank
  std::vector<MetricShare> metrics{};  ///< of this rank
  std::string end{};                   ///< why it asks for the end of the job after this step; empty: it does not
};
/// What this worker found out about the state after `step` committed steps. Sent before it goes on to the next step, or
/// has finished; what it found out later comes by itself. What it found out within an attempt at the next step comes
/// before its vote, and counts where that attempt, of `attempt`, is committed: in another one it is found out again.
struct Evaluated {
  int64_t step = 0;
  std::vector<MetricShare> metrics{};
  int64_t attempt = -1;  ///< a generation; -1: outside of attempts
};
/// What a rank met in a collective that failed.
enum class BreakCause {
  kFault,     ///< of the job, the program or the accelerator
  kPeerLost,  ///< this rank is well; others were lost to it, or aborted
  kShortage,  ///< this rank has too little memory or too few descriptors
  kRefused,   ///< the snapshot fits neither program nor config: no worker of the job can begin from it
};
/// The work of a rank with the others failed although the agent had not ended the generation.
struct Broken {
  int64_t generation = 0;
  std::string reason;
  BreakCause cause = BreakCause::kFault;
};
struct SnapshotWritten {
  int64_t step = 0;
  std::string file;
  std::string error;      ///< empty: it is there
  bool compared = false;  ///< state is that of what it holds; of a sharded job, where Assemble had digests
  uint64_t state = 0;     ///< StateDigest::root
};
/// Of a sharded job: what this rank owns is on disk, in the draft of a snapshot (snapshot_draft.hpp).
struct PartWritten {
  int64_t step = 0;
  std::string file;
  std::string error;                ///< empty: it is there
  int64_t generation = 0;           ///< of the draft
  uint64_t cut = 0;                 ///< digest of what this rank owns (digest_of_cut)
  uint64_t beside = 0;              ///< digest of all that is no part: head and rest of the file, the same on all ranks
  std::vector<uint64_t> digests{};  ///< of what this rank owns of each array; empty where states have none
};
/// The program does something that is no step (Session::busy); an empty `what`: it does no more.
struct BusyWith {
  std::string what;
  double at_most_s = 0;
};
/// The worker is about to carry out an injection on itself.
struct Injected {
  int64_t id = 0;
};
/// The worker was told to stop and will exit. Of a sharded job: the bytes that it held, by kind, and its passes; zeros
/// otherwise.
struct Finished {
  ShardedMemory memory{};
  sharded::TracedPasses passes{};
};

using FromWorker =
    std::variant<Hello, Ready, DataWritten, Refused, CommIdMade, Joining, Copying, Formed, Holds, Reducing, Vote,
                 Evaluated, Broken, SnapshotWritten, PartWritten, BusyWith, Injected, Finished>;

// Agent to worker.

/// Write the data set into the run directory, or compare it with what is there. Answered by DataWritten; sent to a
/// worker that agrees with what the job is, before the first generation.
struct WriteData {};
/// A new generation. rank < 0: this worker is a spare.
struct Form {
  int64_t generation = 0;
  int64_t rank = -1;
  int64_t world_size = 0;
  int64_t next_step = 0;
  int64_t micro_batch = 1;
  CostRates rates{};         ///< for the balancer, from the first step on
  int64_t donor = 0;         ///< the rank whose state counts
  bool copy_state = false;   ///< some rank needs the donor's state; all ranks take part in the copy
  bool wants_state = false;  ///< this rank needs it
  bool compare = false;      ///< some ranks' states are copies that were never compared: take the first step's digest
  std::string restore;       ///< snapshot that the donor, or every rank of a sharded job, loads first; empty: the state
                             ///< it has
  /// Of a sharded job whose state is there: who owns what so far (Ownership::save), the place there of each rank of
  /// this generation, or -1, and how many of them own the state from now on. Where those are not all, the generation
  /// makes no steps: the others give away what they own, and a generation without them follows.
  std::string owners{};
  std::vector<int64_t> was{};
  int64_t stay = 0;
  std::vector<Injection> injections;
  /// Where this worker records what it does (sharded/trace/trace_log.hpp), relative to the run directory; empty:
  /// nowhere. It goes on in the file that it has.
  std::string trace{};
  /// Of a sharded job, likewise: its page of visits (sharded/visit_page.hpp).
  std::string visits{};
  Evaluation evaluation{.step = -1};  ///< the last one that came with a commit before `next_step`; step -1: none
};
struct CommIdShared {
  int64_t generation = 0;
  std::string id;
};
/// The step is in the ledger: apply it.
struct Commit {
  int64_t step = 0;
  bool wait = false;     ///< start no step before the next order: Form, Save or Stop
  std::string snapshot;  ///< not empty: rank 0, or every rank of a sharded job, writes a snapshot there after applying
  CostRates rates{};     ///< for the balancer, from the next step on
  bool skip = false;     ///< do not apply it: its update is not finite
  bool compare = false;  ///< the last step: answer with Holds and the state's digest once it is applied
  Evaluation evaluation{.step = -1};  ///< that all ranks have gone on from with this step; step -1: none
};
/// The generation is over.
struct Abort {
  int64_t generation = 0;
};
/// Asks for Holds. Sent before the job goes back, since a worker may have copied a state and not have come to say so;
/// and to a worker without a rank, which answers at once if it is to be given one.
struct Tell {
  bool compare = false;  ///< with the digest of its state, where it holds one
};
/// Write a snapshot of the committed state: the writer that was chosen before is gone. Answered by SnapshotWritten.
struct Save {
  int64_t step = 0;  ///< steps that the state holds
  std::string file;  ///< relative to the run directory, or absolute where that is gone
};
/// All ranks have written their parts of this snapshot: finish it. Answered by SnapshotWritten.
struct Assemble {
  int64_t step = 0;
  std::string file;
  std::vector<uint64_t> digests{};  ///< the last snapshot: of each array, of all ranks together
};
/// The job is over for this worker.
struct Stop {};

using ToWorker = std::variant<WriteData, Form, CommIdShared, Commit, Abort, Tell, Save, Assemble, Stop>;

/// Bytes of a line, at most. Whoever sends a longer one is broken: its peer must not keep what has no end.
constexpr size_t kLongestMessage = size_t{1} << 20;

/// One line without the newline.
std::string to_line(const FromWorker& message);
std::string to_line(const ToWorker& message);
/// kDataLoss for a line that is no message.
Result<FromWorker> parse_from_worker(std::string_view line);
Result<ToWorker> parse_to_worker(std::string_view line);

/// "forward", "reduce", ...; kInvalidArgument with the allowed words.
Result<InjectionPoint> parse_injection_point(std::string_view word);

}  // namespace pliant::elastic
