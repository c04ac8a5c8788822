// Audit: replans epoch by epoch, checks the commits of each and counts the uses of its samples.
#include "elastic/audit.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace pliant::elastic {

namespace {

/// The commits of one epoch, in step order.
using Commits = std::vector<const CommitRecord*>;

std::map<int64_t, Commits> by_epoch(const Lineage& lineage) {
  std::map<int64_t, Commits> epochs;
  for (const CommitRecord& commit : lineage.commits) epochs[commit.epoch].push_back(&commit);
  return epochs;
}

std::string size_text(const BatchSize& size) {
  return fmt::format("{} rows{}, {} sequences, {} tokens, {} loss tokens", size.rows,
                     size.padding_rows > 0 ? fmt::format(" ({} of them empty)", size.padding_rows) : "", size.sequences,
                     size.tokens, size.loss_tokens);
}

/// Why `shares` do not hand out rows 0..rows, each once; empty when they do.
std::string share_gap(const std::vector<std::vector<RowRange>>& shares, int64_t rows) {
  std::vector<std::pair<RowRange, size_t>> ranges;  // with their ranks
  for (size_t rank = 0; rank < shares.size(); ++rank) {
    for (const RowRange& range : shares[rank]) ranges.emplace_back(range, rank);
  }
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.first, a.first.count) < std::pair(b.first.first, b.first.count);
  });
  int64_t next = 0;
  for (const auto& [range, rank] : ranges) {
    if (range.first != next || range.count < 0 || range.count > rows - next) {
      return fmt::format("rank {} has {} rows from row {} on, but row {} of {} must come next", rank, range.count,
                         range.first, next, rows);
    }
    next += range.count;
  }
  return next == rows ? std::string() : fmt::format("its shares end at row {} of {}", next, rows);
}

/// Why `commit` is not one of `batch`; empty when it is.
std::string mismatch(const CommitRecord& commit, const Batch& batch) {
  if (commit.size != batch.size) {
    return fmt::format("it records {}, the plan has {}", size_text(commit.size), size_text(batch.size));
  }
  if (commit.digest != batch.digest) {
    return fmt::format("the ranks used other samples (digest {:016x}) than planned (digest {:016x})", commit.digest,
                       batch.digest);
  }
  return share_gap(commit.shares, batch.size.rows);
}

[[nodiscard]] tl::unexpected<Error> foreign(const CommitRecord& commit, std::string_view reason) {
  return failed(
      Status::kDataLoss,
      fmt::format("step {} of the ledger (epoch {}, batch {}) differs from the plan: {}; either the data, the seed or "
                  "the sampler's options have changed since, or a worker did not train on its batches",
                  commit.step, commit.epoch, commit.batch_index, reason));
}

/// How often each sample was used; each of its pieces on its own where it is in pieces.
class Uses {
 public:
  explicit Uses(size_t samples) : whole_(samples) {}

  void count(const Batch& batch) {
    for (size_t i = 0; i < batch.ids.size(); ++i) ++counter(batch, i);
  }
  /// Uses of what entry `i` of `batch` stands for.
  uint32_t& counter(const Batch& batch, size_t i) {
    const int64_t id = batch.ids[i];
    if (is_whole(batch, i)) return whole_[static_cast<size_t>(id)];
    return pieces_[{id, batch.pieces[i].first}];
  }
  static bool is_whole(const Batch& batch, size_t i) {
    return batch.pieces.empty() || (batch.pieces[i].first == 0 && batch.pieces[i].last);
  }

 private:
  std::vector<uint32_t> whole_;
  std::map<std::pair<int64_t, int64_t>, uint32_t> pieces_;
};

/// Counts how often the commits of one epoch used each sample.
Result<Uses> count_uses(const Commits& commits, Batches& batches, int64_t epoch) {
  Uses uses(batches.dataset().lengths.size());
  const int64_t planned = batches.epoch(epoch).batches;
  for (const CommitRecord* commit : commits) {
    if (commit->batch_index < 0 || commit->batch_index >= planned) {
      return foreign(*commit, fmt::format("the epoch has {} batches", planned));
    }
    const Batch batch = batches.batch(epoch, commit->batch_index);
    if (const std::string reason = mismatch(*commit, batch); !reason.empty()) return foreign(*commit, reason);
    uses.count(batch);
  }
  return uses;
}

/// The pieces of one sample that the expected batches hold.
struct PieceUses {
  uint32_t fewest = ~uint32_t{0};
  uint32_t most = 0;
  bool last_seen = false;
};

void judge(uint32_t fewest, uint32_t most, Audit& audit) {
  ++audit.expected;
  if (fewest == 0) {
    ++audit.missing;
  } else if (most > 1) {
    ++audit.repeated;
  } else {
    ++audit.used_once;
  }
}

/// Compares `uses` with the first `expected_batches` of `epoch`. A sample in pieces is expected once, where its last
/// piece is, and used once when each of its pieces is.
void tally(Uses& uses, Batches& batches, int64_t epoch, int64_t expected_batches, Audit& audit) {
  std::map<int64_t, PieceUses> in_pieces;
  for (int64_t index = 0; index < expected_batches; ++index) {
    const Batch batch = batches.batch(epoch, index);
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      const uint32_t count = uses.counter(batch, i);
      if (Uses::is_whole(batch, i)) {
        judge(count, count, audit);
        continue;
      }
      PieceUses& parts = in_pieces[batch.ids[i]];
      parts.fewest = std::min(parts.fewest, count);
      parts.most = std::max(parts.most, count);
      parts.last_seen = parts.last_seen || batch.pieces[i].last;
    }
  }
  for (const auto& [id, parts] : in_pieces) {
    if (parts.last_seen) judge(parts.fewest, parts.most, audit);
  }
}

Result<Audit> audit_epochs(const Lineage& lineage, Batches& batches, int64_t steps, AuditFrom from) {
  Audit audit;
  std::map<int64_t, Commits> commits = by_epoch(lineage);
  if (!commits.empty() && commits.begin()->first < 0) {
    return foreign(*commits.begin()->second.front(), "epochs are counted from 0");
  }
  int64_t left = steps - from.step;
  int64_t epoch = from.epoch;
  for (; left > 0; ++epoch) {
    const EpochSummary& summary = batches.epoch(epoch);
    const int64_t expected_batches = std::min(left, summary.batches);
    left -= expected_batches;
    for (const auto& [reason, count] : summary.dropped) audit.dropped[reason] += count;
    auto uses = count_uses(commits[epoch], batches, epoch);
    if (!uses) return tl::unexpected<Error>(uses.error());
    tally(*uses, batches, epoch, expected_batches, audit);
  }
  // Commits of later epochs are no uses that were asked for, but they must be right all the same.
  for (auto later = commits.lower_bound(epoch); later != commits.end(); ++later) {
    const auto uses = count_uses(later->second, batches, later->first);
    if (!uses) return tl::unexpected<Error>(uses.error());
  }
  return audit;
}

}  // namespace

Result<Audit> audit(const Lineage& lineage, Batches& batches, int64_t steps, AuditFrom from) {
  try {
    if (steps < 0 || (steps > 0 && !batches.has_step(steps - 1))) {
      return failed(Status::kInvalidArgument,
                    fmt::format("cannot audit {} steps: the job has {}", steps, batches.expected_steps()));
    }
    return audit_epochs(lineage, batches, steps, from);
  } catch (const Error& error) {
    return tl::unexpected<Error>(error);
  }
}

int64_t steps_of_job(Batches& batches) {
  static_cast<void>(batches.has_step(batches.expected_steps() - 1));  // counts what the answer needs
  return batches.expected_steps();
}

}  // namespace pliant::elastic
