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
      : sampler_(sampler),
        inputs_(inputs),
        rows_(rows),
        rules_(inputs.dataset.lengths.view(), inputs.rows_per_batch, rows.announced()) {}

  Result<EpochFacts> run() {
    if (auto done = see_rows(); !done) return failed(std::move(done));
    if (auto done = see_dropped(); !done) return failed(std::move(done));
    EpochSummary& summary = facts_.summary;
    summary.rows = static_cast<int64_t>(rules_.rows());
    summary.padding_rows = rules_.padding_rows();
    summary.sequences = static_cast<int64_t>(rules_.sequences());
    summary.truncated = std::ssize(rules_.truncated());
    summary.tokens_cut = rules_.tokens_cut();
    for (const sdk::Truncated& one : rules_.truncated()) facts_.truncated.add(one.id, one.kept);
    const int64_t rows = inputs_.rows_per_batch;
    summary.batches = summary.rows / rows + (summary.rows % rows == 0 ? 0 : 1);
    facts_.digest = digest_.value();
    if (summary.rows == 0) return nothing_left();
    return std::move(facts_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> broken() const { return broke(sampler_, inputs_.epoch, rules_.fault()); }

  Result<> see_rows() {
    constexpr uint64_t kPortion = 4096;
    RowBlock block;
    while (true) {
      if (auto got = rows_.read(rules_.rows(), kPortion, block); !got) return got;
      if (block.rows() == 0) break;
      if (!add(block)) return broken();
    }
    if (!rules_.end()) return broken();
    return {};
  }

  /// False when the rules are broken.
  bool add(const RowBlock& block) {
    EpochSummary& summary = facts_.summary;
    const Lengths& lengths = inputs_.dataset.lengths;
    const bool all_whole = block.first_tokens.empty();
    const bool all_loss = inputs_.dataset.loss_tokens.empty();
    for (size_t row = 0; row < block.rows(); ++row) {
      int64_t tokens = 0;
      const uint64_t entries = block.offsets[row + 1] - block.offsets[row];
      digest_.add(entries);
      if (!rules_.row(entries)) return false;
      for (uint64_t i = block.offsets[row]; i < block.offsets[row + 1]; ++i) {
        const int64_t id = block.ids[i];
        const int64_t length = lengths[static_cast<size_t>(id)];
        const int64_t first = all_whole ? 0 : block.first_tokens[i];
        const int64_t count = all_whole ? length : block.token_counts[i];
        digest_.add(static_cast<uint64_t>(id));
        tokens += count;
        if (!all_loss) summary.loss_tokens += loss_tokens_of(inputs_.dataset, id, first, count);
        if (count != length) digest_.add(static_cast<uint64_t>(first));
        if (!rules_.entry(id, first, count)) return false;
      }
      summary.tokens += tokens;
      summary.longest_row = std::max(summary.longest_row, tokens);
      if (all_loss) summary.loss_tokens += tokens;
    }
    return true;
  }

  Result<> see_dropped() {
    auto dropped = rows_.dropped();
    if (!dropped) return failed(std::move(dropped));
    for (const auto& [word, members] : *dropped) {
      for (const int64_t id : members) {
        if (!rules_.dropped(id)) return broken();
      }
      facts_.summary.dropped[word] = static_cast<int64_t>(members.size());
    }
    facts_.dropped = std::move(*dropped);
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> nothing_left() const {
    std::string counts;
    for (const auto& [word, count] : facts_.summary.dropped) {
      counts += fmt::format("{}{}: {}", counts.empty() ? "" : ", ", word, count);
    }
    return failed(Status::kFailedPrecondition,
                  fmt::format("{} leaves nothing to train on in epoch {}: it drops all {} sequences ({})",
                              sampler_.name, inputs_.epoch, inputs_.dataset.lengths.size(), counts),
                  Origin::kInput);
  }

  const Sampler& sampler_;
  const EpochInputs& inputs_;
  RowSource& rows_;
  sdk::EpochRules rules_;
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
