// Rows without sequences that fill up the last batch of an epoch.
#include "padding_rows.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace pliant::sampler {

namespace {

/// The rows of another source and, behind them, empty ones.
class RowsWithPadding : public sdk::RowSource {
 public:
  RowsWithPadding(std::shared_ptr<sdk::RowSource> rows, uint64_t padding)
      : rows_(std::move(rows)), count_(rows_->row_count()), padding_(padding) {}

  [[nodiscard]] uint64_t row_count() const override { return count_ + padding_; }
  [[nodiscard]] uint64_t entry_count() const override { return rows_->entry_count(); }
  void write(uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids) override {
    const uint64_t own = std::min(count, count_ - std::min(first, count_));
    offsets[0] = 0;
    if (own > 0) rows_->write(first, own, offsets, ids);
    std::fill(offsets + own + 1, offsets + count + 1, offsets[own]);
  }
  [[nodiscard]] bool in_pieces() const override { return rows_->in_pieces(); }
  void write_pieces(uint64_t first, uint64_t count, int64_t* first_tokens, int64_t* token_counts) override {
    const uint64_t own = std::min(count, count_ - std::min(first, count_));
    if (own > 0) rows_->write_pieces(first, own, first_tokens, token_counts);
  }

 private:
  std::shared_ptr<sdk::RowSource> rows_;
  uint64_t count_;
  uint64_t padding_;
};

}  // namespace

void pad_last_batch(uint64_t batch, sdk::EpochRows& rows) {
  const uint64_t over = rows.row_count() % batch;
  if (over == 0) return;
  if (rows.source) {
    rows.source = std::make_shared<RowsWithPadding>(std::move(rows.source), batch - over);
  } else {
    rows.offsets.insert(rows.offsets.end(), batch - over, rows.offsets.back());
  }
}

}  // namespace pliant::sampler
