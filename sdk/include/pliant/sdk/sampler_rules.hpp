// What a sampler answers, held against pliant/abi/batch_sampler.h and its extensions. For hosts, which refuse what
// breaks it, and for tests of samplers.
//
//   EpochRules rules(lengths, rows_per_batch, counts_of(answer));
//   for each row: rules.row(entries), then rules.entry(...) for each of its entries; at last rules.end()
//
// A function that gives a text says in words what is wrong, "" for nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pliant/abi/batch_sampler.h"
#include "pliant/abi/packing.h"

namespace pliant::sdk {

/// What begin_epoch announced.
struct EpochCounts {
  uint64_t rows = 0;
  uint64_t sequences = 0;
  uint64_t entries = 0;
  uint64_t truncated = 0;
  uint64_t dropped = 0;
  /// Whether `pieces` is to be asked for.
  [[nodiscard]] bool in_pieces() const { return entries != sequences || truncated != 0; }
};

/// Of a plugin that counts no entries each sequence is one.
[[nodiscard]] inline EpochCounts counts_of(const pliant_epoch& answer) {
  return {answer.row_count, answer.sequence_count, answer.entry_count == 0 ? answer.sequence_count : answer.entry_count,
          answer.truncated_count, answer.dropped_count};
}

/// What was announced of `asked` sequences. `tokens` gives the tokens of all of them; it is called where sequences are
/// in pieces.
template <class Tokens>
[[nodiscard]] std::string counts_fault(const EpochCounts& said, uint64_t asked, int64_t rows_per_batch,
                                       const Tokens& tokens) {
  using std::to_string;
  if (said.sequences > asked || said.dropped != asked - said.sequences) {
    return to_string(said.sequences) + " sequences in rows and " + to_string(said.dropped) + " dropped; " +
           to_string(asked) + " were requested";
  }
  if (said.entries < said.sequences || said.entries > (said.in_pieces() ? uint64_t{tokens()} : said.sequences)) {
    return to_string(said.entries) + " entries for " + to_string(said.sequences) +
           " sequences; each has at least one, and no more than tokens";
  }
  const auto padding = static_cast<uint64_t>(rows_per_batch) - 1;
  if (said.rows > said.entries && said.rows - said.entries > padding) {
    return to_string(said.rows) + " rows of " + to_string(said.entries) +
           " sequences: rows without sequences may only fill up the last batch";
  }
  return {};
}

/// Offsets of rows from `first_row` on: the first is 0, they do not fall, and end within `most_entries`.
[[nodiscard]] inline std::string offsets_fault(std::span<const uint64_t> offsets, uint64_t first_row,
                                               uint64_t most_entries) {
  using std::to_string;
  if (offsets.front() != 0) return "the first offset is " + to_string(offsets.front()) + ", not 0";
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    const uint64_t begin = offsets[row];
    const uint64_t end = offsets[row + 1];
    if (end >= begin && end <= most_entries) continue;
    return "row " + to_string(first_row + row) + " ends at " + to_string(end) + " but begins at " + to_string(begin) +
           "; there are " + to_string(most_entries) + " sequences";
  }
  return {};
}

/// Ids are in the data set, and pieces within their sequences; first_tokens and token_counts empty: all are whole.
[[nodiscard]] inline std::string entries_fault(std::span<const int64_t> ids, std::span<const int64_t> first_tokens,
                                               std::span<const int64_t> token_counts,
                                               std::span<const int32_t> lengths) {
  using std::to_string;
  for (const int64_t id : ids) {
    if (static_cast<uint64_t>(id) < lengths.size()) continue;
    return "sequence id " + to_string(id) + " in a row; ids are 0 to " + to_string(lengths.size() - 1);
  }
  for (size_t i = 0; i < first_tokens.size(); ++i) {
    const int64_t length = lengths[static_cast<size_t>(ids[i])];
    const int64_t first = first_tokens[i];
    const int64_t count = token_counts[i];
    if (first >= 0 && count >= 1 && count <= length - first) continue;
    return "a piece of sequence " + to_string(ids[i]) + " begins at token " + to_string(first) + " and has " +
           to_string(count) + " tokens; the sequence has " + to_string(length);
  }
  return {};
}

/// The word for the reason for which sequence `id` is dropped, as drop_reason gave it.
[[nodiscard]] inline std::string drop_reason_fault(int64_t id, int32_t reason, const char* word) {
  if (word != nullptr && *word != '\0') return {};
  return "sequence " + std::to_string(id) + " is dropped for the unknown reason " + std::to_string(reason) +
         ", which has no name";
}

[[nodiscard]] inline std::string packing_fault(const pliant_packing_report& report) {
  if (report.unit >= PLIANT_UNIT_TOKENS && report.unit <= PLIANT_UNIT_COST && report.budget >= 0) return {};
  return "its packing report has unit " + std::to_string(report.unit) + " and budget " + std::to_string(report.budget);
}

/// What an epoch may be wrong about.
enum class EpochRule {
  kCounts,   ///< the rows hold something else than was announced
  kPadding,  ///< rows without sequences that are not the last ones, or more than fill up a batch
  kPieces,   ///< of a sequence, that overlap or leave a gap
  kOnce      ///< a sequence in two places, or one that there is not
};

/// Part of a sequence, as an entry of a row has it.
struct PartialEntry {
  int64_t id = 0;
  int32_t first = 0;
  int32_t count = 0;
};

/// A sequence that loses tokens at its end.
struct Truncated {
  int64_t id = 0;
  int64_t kept = 0;  ///< tokens
};

/// Is given the rows of one epoch in their order, whose offsets and entries were found right. A call returns false once
/// something is wrong: then rule() and fault() say what. A bit a sequence and what pieces there are.
class EpochRules {
 public:
  /// `said`: nullopt where nothing is announced and nothing dropped, as of a stream. `lengths` outlive this.
  EpochRules(std::span<const int32_t> lengths, int64_t rows_per_batch, const std::optional<EpochCounts>& said)
      : lengths_(lengths),
        rows_per_batch_(rows_per_batch),
        said_(said),
        seen_(lengths.size()),
        asked_(lengths.size()) {}

  /// Only these sequences were asked for. Before the first row.
  void ask_only(std::span<const int64_t> ids) {
    asked_ = ids.size();
    chosen_.assign(lengths_.size(), false);
    for (const int64_t id : ids) chosen_[static_cast<size_t>(id)] = true;
  }

  /// The next row has so many entries.
  [[nodiscard]] bool row(uint64_t entries) {
    entries_ += entries;
    if (said_ && entries_ > said_->entries) {
      return broken(EpochRule::kCounts,
                    "the rows hold more than the " + std::to_string(said_->entries) + " sequences that were announced");
    }
    const uint64_t number = rows_++;
    if (entries != 0 && padding_rows_ == 0) return true;
    if (entries != 0) {
      return broken(EpochRule::kPadding, "row " + std::to_string(number - 1) + " has no sequences but row " +
                                             std::to_string(number) +
                                             " has some; rows without sequences must come last");
    }
    if (++padding_rows_ < rows_per_batch_) return true;
    return broken(EpochRule::kPadding, "row " + std::to_string(number) +
                                           " and the rows before it have no sequences; rows without "
                                           "sequences may only fill up the last batch of " +
                                           std::to_string(rows_per_batch_));
  }

  /// One of its entries: tokens [first, first + count) of sequence `id`.
  [[nodiscard]] bool entry(int64_t id, int64_t first, int64_t count) {
    if (count != lengths_[static_cast<size_t>(id)]) {
      partial_.push_back({id, static_cast<int32_t>(first), static_cast<int32_t>(count)});
      return true;
    }
    ++sequences_;
    return mark(id, "a row");
  }

  /// There is no other row. O(n log n) in the pieces.
  [[nodiscard]] bool end() {
    if (said_ && entries_ != said_->entries) {
      return broken(EpochRule::kCounts, "the rows hold " + std::to_string(entries_) + " sequences, " +
                                            std::to_string(said_->entries) + " were announced");
    }
    if (!end_pieces()) return false;
    if (said_ && (sequences_ != said_->sequences || truncated_.size() != said_->truncated)) {
      return broken(EpochRule::kCounts, "the rows hold " + std::to_string(sequences_) + " sequences, " +
                                            std::to_string(truncated_.size()) + " of them truncated; " +
                                            std::to_string(said_->sequences) + " and " +
                                            std::to_string(said_->truncated) + " were announced");
    }
    if (!said_ && sequences_ != asked_) {
      return broken(EpochRule::kCounts, "its row stream ends after " + std::to_string(sequences_) + " of " +
                                            std::to_string(asked_) + " sequences");
    }
    // Each sequence is marked where its first piece is, so that one that is also whole somewhere is found.
    for (const PartialEntry& entry : std::exchange(partial_, {})) {
      if (entry.first == 0 && !mark(entry.id, "a row")) return false;
    }
    if (padding_rows_ == 0 || rows_ % static_cast<uint64_t>(rows_per_batch_) == 0) return true;
    return broken(EpochRule::kPadding,
                  "the last " + std::to_string(padding_rows_) + " of " + std::to_string(rows_) +
                      " rows have no sequences; rows without sequences may only fill up the last batch of " +
                      std::to_string(rows_per_batch_));
  }

  /// A sequence that is left out, after end().
  [[nodiscard]] bool dropped(int64_t id) { return mark(id, "the list of dropped sequences"); }

  [[nodiscard]] EpochRule rule() const { return rule_; }
  [[nodiscard]] const std::string& fault() const { return fault_; }
  /// After end().
  [[nodiscard]] uint64_t rows() const { return rows_; }
  [[nodiscard]] int64_t padding_rows() const { return padding_rows_; }
  [[nodiscard]] uint64_t sequences() const { return sequences_; }
  [[nodiscard]] const std::vector<Truncated>& truncated() const { return truncated_; }  ///< ascending by id
  [[nodiscard]] int64_t tokens_cut() const { return tokens_cut_; }

 private:
  bool broken(EpochRule rule, std::string fault) {
    rule_ = rule;
    fault_ = std::move(fault);
    return false;
  }

  bool mark(int64_t id, const char* where) {
    const auto at = static_cast<size_t>(id);
    if (static_cast<uint64_t>(id) >= seen_.size()) {
      return broken(EpochRule::kOnce, "sequence id " + std::to_string(id) + " in " + where + "; ids are 0 to " +
                                          std::to_string(seen_.size() - 1));
    }
    if (!chosen_.empty() && !chosen_[at]) {
      return broken(EpochRule::kOnce, "sequence " + std::to_string(id) + " in " + where + " was not asked for");
    }
    if (seen_[at]) return broken(EpochRule::kOnce, "sequence " + std::to_string(id) + " is used or dropped twice");
    seen_[at] = true;
    return true;
  }

  /// Pieces of a sequence begin at its first token and leave no gap.
  bool end_pieces() {
    std::sort(partial_.begin(), partial_.end(), [](const PartialEntry& a, const PartialEntry& b) {
      return std::pair(a.id, a.first) < std::pair(b.id, b.first);
    });
    int64_t end = 0;
    for (size_t i = 0; i < partial_.size(); ++i) {
      const PartialEntry& one = partial_[i];
      if (one.first != end) {
        return broken(EpochRule::kPieces, "a piece of sequence " + std::to_string(one.id) + " begins at token " +
                                              std::to_string(one.first) + ", after " + std::to_string(end) +
                                              " tokens in pieces");
      }
      end += one.count;
      if (i + 1 < partial_.size() && partial_[i + 1].id == one.id) continue;
      ++sequences_;
      const int64_t cut = lengths_[static_cast<size_t>(one.id)] - end;
      if (cut != 0) truncated_.push_back({one.id, end});
      tokens_cut_ += cut;
      end = 0;
    }
    return true;
  }

  std::span<const int32_t> lengths_;
  int64_t rows_per_batch_;
  std::optional<EpochCounts> said_;
  std::vector<bool> seen_;
  std::vector<bool> chosen_;  // empty: all
  uint64_t asked_;
  std::vector<PartialEntry> partial_;
  std::vector<Truncated> truncated_;
  uint64_t rows_ = 0;
  int64_t padding_rows_ = 0;
  uint64_t entries_ = 0;
  uint64_t sequences_ = 0;
  int64_t tokens_cut_ = 0;
  EpochRule rule_ = EpochRule::kCounts;
  std::string fault_;
};

}  // namespace pliant::sdk
