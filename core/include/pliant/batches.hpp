// Batches: the one global list of rows of each epoch, cut into global batches. The same at every world size.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pliant/config.hpp"
#include "pliant/given_rows.hpp"
#include "pliant/lengths.hpp"
#include "pliant/plan.hpp"

namespace pliant {

/// The lengths of all sequences; rows and costs, where somebody made them beforehand.
struct Dataset {
  Lengths lengths;          ///< tokens of sequence i, >= 1
  Lengths loss_tokens;      ///< tokens of sequence i that have a loss; empty = lengths
  std::string source = {};  ///< what messages call it: the file that it was read from
  /// Digest of what the sequences hold, where the program has one: a worker that has another one than the most is
  /// ended, and a job is not resumed with another. 0 = none: other text of the same lengths is taken for the same.
  uint64_t content = 0;
  GivenRows rows = {};  ///< for a sampler that takes rows, such as `rows`; empty: what its options name
  Integers costs = {};  ///< what sequence i costs, >= 0, for row_costs in place of rates; empty = rates
  /// What row i of `rows` costs, in place of `costs`: complete_dataset makes costs of sequences of them.
  Integers row_costs = {};
  std::string costs_source = {};  ///< what messages call costs and row_costs
};

/// The data set that [data] names: lengths, and loss_tokens where there are some; `content` is 0, and set by whoever
/// reads the text. Throws what read_lengths throws, with
/// the position of the option, and kInvalidArgument (kInput) where [data] names none.
Dataset load_dataset(const Config& config);

/// `dataset`, and what `config`, opened with the need "sampler", names beside it: the rows of its sampler and the costs
/// of [balancer], unless `dataset` has its own. Batches does it by itself, and Batches::dataset() has them. Throws
/// (kInput) what reading files throws, with the position of the option; kInvalidArgument for rows that are none, with
/// the array and the place in it, for costs that are not one for each sequence or row, and for rows that the sampler
/// does not take.
Dataset complete_dataset(const Config& config, Dataset dataset);

/// Size of a batch in every unit.
struct BatchSize {
  int64_t rows = 0;  ///< those of `padding_rows` too
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t loss_tokens = 0;
  int64_t padding_rows = 0;  ///< rows without sequences; they fill up the last batch of an epoch and are its last rows
  bool operator==(const BatchSize&) const = default;
};

/// The part of a sequence that an entry of a row stands for: tokens [first, first + count).
struct Piece {
  int64_t first = 0;
  int64_t count = 0;
  bool last = true;  ///< no used token of the sequence comes after it: the sequence counts as used here
  bool operator==(const Piece&) const = default;
};

/// One global batch. Row i holds sequences ids[offsets[i] .. offsets[i+1]).
struct Batch {
  int64_t epoch = 0;
  int64_t index = 0;              ///< within the epoch
  std::vector<uint64_t> offsets;  ///< rows + 1 entries, offsets[0] = 0
  std::vector<int64_t> ids;
  std::vector<Piece> pieces;  ///< of each of `ids`; empty = all sequences are whole
  BatchSize size;             ///< a sequence in pieces counts in the batch of its last piece
  /// Tokens of the longest entry: the length to pad to where all micro-batches of a batch need the same one.
  int64_t longest_entry = 0;
  uint64_t digest = 0;  ///< sample_digest of all ids; the pieces of a sequence add up to the sequence's

  [[nodiscard]] std::span<const int64_t> row(int64_t i) const {
    return std::span(ids).subspan(offsets[static_cast<size_t>(i)],
                                  offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)]);
  }
  /// What rows rows.first .. rows.first + rows.count - 1 hold, row by row.
  [[nodiscard]] std::span<const int64_t> ids_of(RowRange rows) const {
    const uint64_t begin = offsets[static_cast<size_t>(rows.first)];
    return std::span(ids).subspan(begin, offsets[static_cast<size_t>(rows.first + rows.count)] - begin);
  }
  /// The pieces of row i, one for each of row(i); empty = all sequences are whole.
  [[nodiscard]] std::span<const Piece> row_pieces(int64_t i) const {
    if (pieces.empty()) return {};
    return std::span(pieces).subspan(offsets[static_cast<size_t>(i)],
                                     offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)]);
  }
};

/// Order-independent digest: the sum modulo 2^64 of a mix of (epoch, id). Digests of parts add up to that of the whole.
uint64_t sample_digest(int64_t epoch, std::span<const int64_t> ids);

/// What one epoch holds.
struct EpochSummary {
  int64_t rows = 0;
  int64_t padding_rows = 0;  ///< of `rows`: the last ones, without sequences, that fill up the last batch
  int64_t batches = 0;       ///< the last one may be short
  int64_t sequences = 0;     ///< in those rows
  int64_t tokens = 0;
  int64_t loss_tokens = 0;
  int64_t longest_row = 0;                 ///< tokens of the row with most tokens
  int64_t truncated = 0;                   ///< of `sequences`, those that lose tokens at their end
  int64_t tokens_cut = 0;                  ///< the tokens that they lose
  std::map<std::string, int64_t> dropped;  ///< by reason; sequences + all dropped = dataset

  /// Rounded down.
  [[nodiscard]] BatchSize mean_batch() const {
    const int64_t count = batches > 0 ? batches : 1;
    const int64_t packs = (rows - padding_rows) / count;
    return {packs, sequences / count, tokens / count, loss_tokens / count, 0};
  }
};

/// What the rows of an epoch fill of what they could hold.
struct Packing {
  std::string unit = "tokens";  ///< what counts against the budget: tokens, padded_tokens, loss_tokens or cost
  int64_t budget = 0;           ///< units that a row can hold; 0 = the sampler sets no limit
  double used = 0;              ///< units in all rows
  int64_t least_rows = 0;       ///< no packing of the same entries has fewer rows; 0 = not known
  /// Part of the room of all rows with sequences that is used: by tokens, where padding is not; in `unit` for
  /// loss_tokens and cost. Where there is no budget, the room of a row is the longest row.
  double efficiency = 0;
};

/// How long a job is, for schedules that end with it.
struct JobLength {
  int64_t steps = 0;  ///< 0 = not known
  BatchSize size;     ///< all batches together, without rows of padding; zeros = not known
};

/// Not thread-safe. Looks at one epoch at a time, coming() at two; moving to another epoch replans, O(sequences). The
/// rows stay with the sampler; beside them and the lengths, memory is a bit a sequence while an epoch is checked.
/// Samplers that can stream (pliant.row_stream) hold no rows of data sets of 2^28 sequences or more.
class Batches {
 public:
  /// `config` was opened with the need "sampler". Throws kInvalidArgument (kInput) for an empty data set or a length <
  /// 1, and what the sampler refuses (kInput), and kPlugin when the sampler breaks its contract: a row without
  /// sequences that does not fill up the last batch, an id out of range or given twice, pieces that do not make up
  /// their sequence, rows that do not add up.
  Batches(const Config& config, const Plan& plan, Dataset dataset);
  /// Opens where `saved` was saved: as the other one and load() do, but in place of epoch 0, and of those up to the
  /// one that it is in, that one alone is planned, by the first call that needs it. Throws what load throws; here an
  /// option of the sampler that differs is refused also where the rows are the same. A sampler that gives other rows
  /// than when it was saved is refused by that first call (kFailedPrecondition, kInput).
  Batches(const Config& config, const Plan& plan, Dataset dataset, std::string_view saved);
  ~Batches();
  Batches(Batches&&) noexcept;
  Batches& operator=(Batches&&) noexcept;

  [[nodiscard]] const Dataset& dataset() const;
  const EpochSummary& epoch(int64_t epoch);
  /// Ids that `epoch` leaves out.
  std::vector<int64_t> dropped(int64_t epoch);
  /// The same under the sampler's words for the reasons, ascending.
  std::map<std::string, std::vector<int64_t>> dropped_by_reason(int64_t epoch);
  /// Ids of the sequences that `epoch` truncates, ascending.
  std::vector<int64_t> truncated(int64_t epoch);
  Batch batch(int64_t epoch, int64_t index);
  /// Rows [first, first + count) of an epoch, at least one, as if they were one batch; its index is -1. For looking at
  /// an epoch in portions of any size.
  Batch rows(int64_t epoch, int64_t first, int64_t count);
  /// O(entries). Throws what the sampler refuses.
  Packing packing(int64_t epoch);
  /// True when the job has a step `step`: it is in one of the epochs of [run] and below max_steps. Plans the epochs
  /// before it that were not yet counted, not its own.
  bool has_step(int64_t step);
  /// Steps of the whole job: exact when every epoch was counted or max_steps ends it sooner; until then epochs that
  /// were not counted are taken to be like the last that was. Plans epoch 0 at most.
  int64_t expected_steps();
  /// All epochs of [run], or the part of them that max_steps leaves. Plans every epoch that counts, but no more than
  /// 64: later ones are taken to be like the mean of those.
  JobLength job_length();
  /// The batch of job step `step`; has_step(step). Plans the epochs up to its own that were not yet counted.
  Batch at_step(int64_t step);
  /// The batch after the last one that next gave; nullopt at the end of the job.
  std::optional<Batch> next();
  /// What next() gives when it is called for the `ahead`-th time from now on, at least 1, without a change to that: for
  /// loaders that read ahead. nullopt past the end of the job, and past the epoch after the one that next gave a batch
  /// of last (before the first: gives one of). The first look into that later epoch plans it, O(sequences), by a second
  /// instance of the sampler; next() takes the plan over, so that none is made twice. Until then the rows of two epochs
  /// are in memory. Throws kInvalidArgument for less than 1.
  std::optional<Batch> coming(int64_t ahead);
  /// The step whose batch next gives, from 0.
  [[nodiscard]] int64_t next_step() const;
  /// Has next give that of `step`. Plans nothing. Throws kOutOfRange below 0.
  void seek(int64_t step);
  /// Where next is, in a few hundred bytes. The batches that follow are the same at every world size, so it may be
  /// loaded at any other.
  [[nodiscard]] std::string save() const;
  /// Goes on where save was called: O(sequences), that epoch is planned again, none of those before it. Throws (kInput)
  /// and changes nothing: kDataLoss for other bytes than save's; kUnimplemented for those of a later version;
  /// kFailedPrecondition where data set, sampler, options, seed or global batch are not the same, saying which. A
  /// sampler that gives other rows is refused by the call that plans that epoch, as above.
  void load(std::string_view saved);
  /// Digest of everything that decides the batches: lengths, given rows and costs, seed, plan (global batch and
  /// granule), sampler, options. Options count through the sampler's saved state and through the rows that they give
  /// epoch 0.
  [[nodiscard]] uint64_t fingerprint() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pliant
