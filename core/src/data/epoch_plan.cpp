// Looking at every row of an epoch once, and trusting nothing that the sampler says.
#include "data/epoch_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "data/digest.hpp"

namespace pliant::data {

namespace {

/// A digest that costs a multiplication a value.
class QuickDigest {
 public:
  void add(uint64_t value) { state_ = (state_ + value) * 0x9e3779b97f4a7c15U + 0x7f4a7c15U; }
  [[nodiscard]] uint64_t value() const { return mix64(state_); }

 private:
  uint64_t state_ = 0;
};

/// One epoch being looked at.
class Inspection {
 public:
  Inspection(const Sampler& sampler, const EpochInputs& inputs, RowSource& rows)
      : sampler_(sampler), inputs_(inputs), rows_(rows), seen_(inputs.dataset.lengths.size()) {}

  Result<EpochFacts> run() {
    if (auto done = see_rows(); !done) return failed(std::move(done));
    if (auto done = see_pieces(); !done) return failed(std::move(done));
    if (auto done = see_dropped(); !done) return failed(std::move(done));
    EpochSummary& summary = facts_.summary;
    const int64_t rows = inputs_.rows_per_batch;
    summary.batches = summary.rows / rows + (summary.rows % rows == 0 ? 0 : 1);
    facts_.digest = digest_.value();
    if (summary.padding_rows > 0 && summary.rows % rows != 0) {
      return broken(fmt::format(
          "the last {} of {} rows have no sequences; rows without sequences may only fill up the last batch of {}",
          summary.padding_rows, summary.rows, rows));
    }
    if (summary.rows == 0) return nothing_left();
    return std::move(facts_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> broken(const std::string& how) const {
    return broke(sampler_, inputs_.epoch, how);
  }

  Result<> see_rows() {
    constexpr uint64_t kPortion = 4096;
    RowBlock block;
    while (true) {
      const auto first = static_cast<uint64_t>(facts_.summary.rows);
      if (auto got = rows_.read(first, kPortion, block); !got) return got;
      if (block.rows() == 0) break;
      entries_ += block.ids.size();
      const Announced& said = rows_.announced();
      if (said.counts_known && entries_ > said.entries) {
        return broken(fmt::format("the rows hold more than the {} sequences that were announced", said.entries));
      }
      if (auto added = add(block); !added) return added;
    }
    const Announced& said = rows_.announced();
    if (said.counts_known && entries_ != said.entries) {
      return broken(fmt::format("the rows hold {} sequences, {} were announced", entries_, said.entries));
    }
    return {};
  }

  Result<> add(const RowBlock& block) {
    EpochSummary& summary = facts_.summary;
    const Lengths& lengths = inputs_.dataset.lengths;
    const bool all_whole = block.first_tokens.empty();
    const bool all_loss = inputs_.dataset.loss_tokens.empty();
    for (size_t row = 0; row < block.rows(); ++row) {
      int64_t tokens = 0;
      digest_.add(block.offsets[row + 1] - block.offsets[row]);
      if (auto placed = place(block, row); !placed) return placed;
      for (uint64_t i = block.offsets[row]; i < block.offsets[row + 1]; ++i) {
        const int64_t id = block.ids[i];
        const int64_t length = lengths[static_cast<size_t>(id)];
        const int64_t first = all_whole ? 0 : block.first_tokens[i];
        const int64_t count = all_whole ? length : block.token_counts[i];
        digest_.add(static_cast<uint64_t>(id));
        tokens += count;
        if (!all_loss) summary.loss_tokens += loss_tokens_of(inputs_.dataset, id, first, count);
        if (count != length) {
          digest_.add(static_cast<uint64_t>(first));
          partial_.push_back({id, static_cast<int32_t>(first), static_cast<int32_t>(count)});
          continue;
        }
        ++summary.sequences;
        if (auto marked = mark(id, "a row"); !marked) return marked;
      }
      summary.tokens += tokens;
      summary.longest_row = std::max(summary.longest_row, tokens);
      if (all_loss) summary.loss_tokens += tokens;
    }
    summary.rows += static_cast<int64_t>(block.rows());
    return {};
  }

  /// Rows without sequences are the last ones, and fewer than a batch has.
  Result<> place(const RowBlock& block, size_t row) {
    int64_t& padding = facts_.summary.padding_rows;
    const auto number = static_cast<uint64_t>(facts_.summary.rows) + row;
    if (block.offsets[row + 1] != block.offsets[row]) {
      if (padding == 0) return {};
      return broken(fmt::format("row {} has no sequences but row {} has some; rows without sequences must come last",
                                number - 1, number));
    }
    if (++padding < inputs_.rows_per_batch) return {};
    return broken(fmt::format(
        "row {} and the rows before it have no sequences; rows without sequences may only fill up the last batch of {}",
        number, inputs_.rows_per_batch));
  }

  Result<> see_pieces() {
    EpochSummary& summary = facts_.summary;
    auto counts = check_pieces(partial_, inputs_.dataset.lengths);
    if (!counts) return broken(counts.error().message());
    const size_t truncated = counts->truncated.ids().size();
    summary.sequences += static_cast<int64_t>(counts->sequences);
    summary.truncated = static_cast<int64_t>(truncated);
    summary.tokens_cut = counts->tokens_cut;
    facts_.truncated = std::move(counts->truncated);
    const Announced& said = rows_.announced();
    const auto sequences = static_cast<uint64_t>(summary.sequences);
    if (said.counts_known && (sequences != said.sequences || truncated != said.truncated)) {
      return broken(fmt::format("the rows hold {} sequences, {} of them truncated; {} and {} were announced", sequences,
                                truncated, said.sequences, said.truncated));
    }
    if (!said.counts_known && sequences != seen_.size()) {
      return broken(fmt::format("its row stream ends after {} of {} sequences", sequences, seen_.size()));
    }
    // Each sequence is marked where its first piece is, so that one that is also whole somewhere is found.
    for (const PartialEntry& entry : std::exchange(partial_, {})) {
      if (entry.first != 0) continue;
      if (auto marked = mark(entry.id, "a row"); !marked) return marked;
    }
    return {};
  }

  Result<> see_dropped() {
    auto dropped = rows_.dropped();
    if (!dropped) return failed(std::move(dropped));
    for (const auto& [word, members] : *dropped) {
      for (const int64_t id : members) {
        if (auto marked = mark(id, "the list of dropped sequences"); !marked) return marked;
      }
      facts_.summary.dropped[word] = static_cast<int64_t>(members.size());
    }
    facts_.dropped = std::move(*dropped);
    return {};
  }

  Result<> mark(int64_t id, const char* where) {
    if (static_cast<uint64_t>(id) >= seen_.size()) {
      return broken(fmt::format("sequence id {} in {}; ids are 0 to {}", id, where, seen_.size() - 1));
    }
    if (seen_[static_cast<size_t>(id)]) return broken(fmt::format("sequence {} is used or dropped twice", id));
    seen_[static_cast<size_t>(id)] = true;
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> nothing_left() const {
    std::string counts;
    for (const auto& [word, count] : facts_.summary.dropped) {
      counts += fmt::format("{}{}: {}", counts.empty() ? "" : ", ", word, count);
    }
    return failed(Status::kFailedPrecondition,
                  fmt::format("{} leaves nothing to train on in epoch {}: it drops all {} sequences ({})",
                              sampler_.name, inputs_.epoch, seen_.size(), counts),
                  ExitCode::kUsage);
  }

  const Sampler& sampler_;
  const EpochInputs& inputs_;
  RowSource& rows_;
  std::vector<bool> seen_;
  std::vector<PartialEntry> partial_;
  uint64_t entries_ = 0;
  QuickDigest digest_;
  EpochFacts facts_;
};

}  // namespace

Batch batch_of(RowBlock block, const Dataset& dataset, const Truncations& truncated, int64_t epoch, int64_t index) {
  Batch batch;
  batch.epoch = epoch;
  batch.index = index;
  bool all_whole = true;
  for (size_t i = 0; all_whole && i < block.first_tokens.size(); ++i) {
    all_whole = block.token_counts[i] == dataset.lengths[static_cast<size_t>(block.ids[i])];
  }
  if (!all_whole) {
    batch.pieces.reserve(block.ids.size());
    for (size_t i = 0; i < block.ids.size(); ++i) {
      const int64_t id = block.ids[i];
      const int64_t used = truncated.used_of(id, dataset.lengths[static_cast<size_t>(id)]);
      const int64_t end = block.first_tokens[i] + block.token_counts[i];
      batch.pieces.push_back({block.first_tokens[i], block.token_counts[i], end == used});
    }
  }
  const auto rows = static_cast<int64_t>(block.rows());
  batch.offsets = std::move(block.offsets);
  batch.ids = std::move(block.ids);
  const EntrySums sums = sum_entries(entries_of(batch, {0, rows}), dataset);
  batch.size = {rows, sums.sequences, sums.tokens, sums.loss_tokens, 0};
  for (int64_t row = rows; row > 0 && batch.row(row - 1).empty(); --row) ++batch.size.padding_rows;
  batch.longest_entry = sums.longest;
  batch.digest = sums.digest;
  return batch;
}

Result<EpochPlan> EpochPlan::make(const Sampler& sampler, EpochInputs inputs) {
  EpochPlan plan;
  plan.sampler_ = &sampler;
  plan.inputs_ = std::make_unique<const EpochInputs>(std::move(inputs));
  auto rows = open_rows(sampler, *plan.inputs_);
  if (!rows) return failed(std::move(rows));
  plan.rows_ = std::move(*rows);
  auto facts = Inspection(sampler, *plan.inputs_, *plan.rows_).run();
  if (!facts) return failed(std::move(facts));
  plan.facts_ = std::move(*facts);
  return plan;
}

Result<Batch> EpochPlan::cut(int64_t index, uint64_t first, uint64_t count) {
  RowBlock block;
  if (auto got = rows_->read(first, count, block); !got) return failed(std::move(got));
  if (block.rows() != count) {
    return broke(*sampler_, epoch(), fmt::format("rows {} to {} are no longer in memory", first, first + count - 1));
  }
  return batch_of(std::move(block), inputs_->dataset, facts_.truncated, epoch(), index);
}

}  // namespace pliant::data
