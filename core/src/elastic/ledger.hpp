// Ledger: the append-only record of what a run committed. A step that is in it happened; a step that is not did not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "pliant/batches.hpp"
#include "pliant/metric.hpp"
#include "pliant/plan.hpp"
#include "pliant/report.hpp"

namespace pliant::elastic {

/// The first line of a ledger.
struct HeaderRecord {
  std::string run_id;
  std::string fingerprint;
};

/// Step `step` is final: every rank of `generation` had reduced it.
struct CommitRecord {
  int64_t step = 0;
  int64_t generation = 0;
  int64_t epoch = 0;
  int64_t batch_index = 0;
  std::vector<std::vector<RowRange>> shares;  ///< rows of each rank, rank order; ranges ascend and do not touch
  BatchSize size;
  uint64_t digest = 0;  ///< sample_digest of what the ranks say they used
  double loss = 0;      ///< mean per loss token
  double learning_rate = 0;
  bool skipped = false;             ///< its update was not finite and was left out; its samples are used
  std::optional<uint64_t> state{};  ///< StateDigest::root of the state that all ranks began it with, where it was taken
  std::map<std::string, double> metrics{};  ///< of the program's own, over all ranks
};

/// A worker group began to work.
struct GenerationRecord {
  int64_t generation = 0;
  int64_t world_size = 0;
  int64_t next_step = 0;
  std::string reason;    ///< "start", "worker 2 was killed by signal 9", ...
  std::string config{};  ///< digest of its config (digest_of_config); empty in ledgers that did not say
  GroupCause cause = GroupCause::kUnknown;  ///< kUnknown in ledgers that did not say
};

struct SnapshotRecord {
  int64_t step = 0;                 ///< committed steps that the snapshot holds
  std::string file;                 ///< relative to the run directory
  std::optional<uint64_t> state{};  ///< StateDigest::root, where ranks compared what they held at the end of a run
  /// No ranks had compared what it holds when it was recorded, and they were to. In a Lineage: nor have they since.
  bool unconfirmed = false;
};

/// The lineage goes on from `step` committed steps; commits from there on, so far, are void.
struct RestartRecord {
  int64_t step = 0;
};

/// The job ended at `step`, which is not committed, for its update was not finite.
struct NotFiniteRecord {
  int64_t step = 0;
  std::string reason;
};

/// The program asked for the end of the job after `step` committed steps, before its plan ends.
struct EndRecord {
  int64_t step = 0;
  std::string reason;
};

using LedgerRecord = std::variant<HeaderRecord, CommitRecord, GenerationRecord, SnapshotRecord, RestartRecord,
                                  NotFiniteRecord, Evaluation, EndRecord>;

/// What replaying a ledger gives.
struct Lineage {
  std::string run_id;                 ///< of the header
  std::vector<CommitRecord> commits;  ///< commits[i].step == i, those that survive
  std::vector<GenerationRecord> generations;
  std::vector<size_t> began_before;        ///< of each commit: how many of `generations` stand before it
  std::vector<SnapshotRecord> snapshots;   ///< oldest first, only those on the lineage; each step and file once
  std::optional<int64_t> not_finite_step;  ///< of the last NotFiniteRecord
  std::optional<EndRecord> end;            ///< that the lineage ends with: no step was committed after it
  std::vector<Evaluation> evaluations;     ///< on the lineage, by step; what came twice counts as it came last
  std::string fingerprint;                 ///< of the header: what the run must match to be resumed
};

/// JSON lines, one record a line. Every append is on disk (fdatasync) before it returns.
class Ledger {
 public:
  /// A new ledger with a header, whole or absent. kFailedPrecondition when the file exists.
  static Result<Ledger> create(const std::filesystem::path& file, const std::string& run_id,
                               const std::string& fingerprint);
  /// Opens for appending and replays. A torn last line (the writer died) is cut off; damage elsewhere is kDataLoss with
  /// the line.
  static Result<Ledger> open(const std::filesystem::path& file);
  /// Reads only. `see` gets every record in the order of the file, also those that did not survive, before it counts.
  static Result<Lineage> replay(const std::filesystem::path& file,
                                const std::function<void(const LedgerRecord&)>& see = {});
  /// True for a file without one whole line: whoever began it died before it held anything.
  static bool is_blank(const std::filesystem::path& file);
  /// What survives of the lineage in a new file, also where this one's is no longer in place or whole.
  [[nodiscard]] Result<Ledger> copy_to(const std::filesystem::path& file) const;
  /// kNotFound when its file was removed or replaced: nobody would find what is appended from then on. kDataLoss when
  /// somebody else made it shorter or longer.
  [[nodiscard]] Result<> check_in_place() const;
  ~Ledger();
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) noexcept;

  /// kResourceExhausted for a full disk: what was half written is cut off again, so that the ledger stays readable.
  Result<> append(const CommitRecord& record);
  Result<> append(const GenerationRecord& record);
  Result<> append(const SnapshotRecord& record);
  Result<> append(const RestartRecord& record);
  Result<> append(const NotFiniteRecord& record);
  Result<> append(const Evaluation& record);
  Result<> append(const EndRecord& record);
  /// The lineage so far, kept up to date by append.
  [[nodiscard]] const Lineage& lineage() const;

 private:
  struct State;
  explicit Ledger(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pliant::elastic
