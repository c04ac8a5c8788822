// Sharing out the rows of batches as padded micro-batches.
#include "pliant/micro_batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/result.hpp"

namespace pliant {

namespace {

int64_t rows_of(const Batch& batch) {
  return batch.offsets.empty() ? 0 : static_cast<int64_t>(batch.offsets.size()) - 1;
}

void require_at_least_1(int64_t value, const char* what) {
  if (value >= 1) return;
  throw Error(Status::kInvalidArgument,
              fmt::format("a {} of {} makes no micro-batches; it must be at least 1", what, value));
}

int64_t rounded_up(int64_t length, int64_t multiple) {
  const int64_t over = length % multiple;
  if (over == 0) return length;
  if (length > std::numeric_limits<int64_t>::max() - (multiple - over)) {
    throw Error(Status::kOutOfRange,
                fmt::format("{} tokens rounded up to a multiple of {} do not fit 63 bits", length, multiple));
  }
  return length + (multiple - over);
}

int64_t entry_length(const Batch& batch, size_t entry, const Dataset& dataset) {
  const int64_t id = batch.ids[entry];
  if (id < 0 || static_cast<uint64_t>(id) >= dataset.lengths.size()) {
    throw Error(Status::kOutOfRange, fmt::format("batch {} has sequence {}, but the data set has {} sequences, counted "
                                                 "from 0; give the data set that the batch was made from",
                                                 batch.index, id, dataset.lengths.size()));
  }
  return batch.pieces.empty() ? dataset.lengths[static_cast<size_t>(id)] : batch.pieces[entry].count;
}

/// Calls `line(length)` for each line of row `row`.
template <class Each>
void lines_of_row(const Batch& batch, int64_t row, const Dataset& dataset, Line line, Each each) {
  int64_t tokens = 0;
  for (uint64_t i = batch.offsets[static_cast<size_t>(row)]; i < batch.offsets[static_cast<size_t>(row) + 1]; ++i) {
    const int64_t length = entry_length(batch, i, dataset);
    tokens += length;
    if (line == Line::kSequence) each(length);
  }
  if (line == Line::kRow) each(tokens);
}

int64_t longest_line(const Batch& batch, const Dataset& dataset, Line line) {
  if (line == Line::kSequence) return batch.longest_entry;
  int64_t longest = 0;
  for (int64_t row = 0; row < rows_of(batch); ++row) {
    lines_of_row(batch, row, dataset, line, [&](int64_t length) { longest = std::max(longest, length); });
  }
  return longest;
}

/// A micro-batch that grows row by row. Lines are padded to their batch's longest as they come, to the micro-batch's at
/// the end.
class Assembly {
 public:
  Assembly(const Dataset& dataset, const Padding& padding) : dataset_(dataset), padding_(padding) {}

  /// `shown_as`: the position of the row in `rows`. `longest`: of its batch; used by PadTo::kBatch.
  void add(const Batch& batch, int64_t row, int64_t shown_as, int64_t longest) {
    made_.rows.push_back(shown_as);
    const auto first = static_cast<std::ptrdiff_t>(batch.offsets[static_cast<size_t>(row)]);
    const auto past = static_cast<std::ptrdiff_t>(batch.offsets[static_cast<size_t>(row) + 1]);
    take_pieces(batch, first, past);
    made_.ids.insert(made_.ids.end(), batch.ids.begin() + first, batch.ids.begin() + past);
    lines_of_row(batch, row, dataset_, padding_.line, [&](int64_t length) {
      made_.tokens += length;
      longest_ = std::max(longest_, length);
      if (padding_.to == PadTo::kBatch && length > longest) {
        throw Error(
            Status::kInvalidArgument,
            fmt::format("batch {} has a line of {} tokens, but its longest_entry is {}", batch.index, length, longest));
      }
      made_.lengths.push_back(rounded_up(padding_.to == PadTo::kBatch ? longest : length, padding_.multiple));
    });
  }

  [[nodiscard]] int64_t rows() const { return static_cast<int64_t>(made_.rows.size()); }

  MicroBatch finish() {
    if (padding_.to == PadTo::kMicroBatch) {
      std::fill(made_.lengths.begin(), made_.lengths.end(), rounded_up(longest_, padding_.multiple));
    }
    longest_ = 0;
    return std::exchange(made_, {});
  }

 private:
  /// Batches with and without pieces may meet in one micro-batch: whole sequences are then pieces too.
  void take_pieces(const Batch& batch, std::ptrdiff_t first, std::ptrdiff_t past) {
    if (batch.pieces.empty() && made_.pieces.empty()) return;
    while (made_.pieces.size() < made_.ids.size()) {
      const auto id = static_cast<size_t>(made_.ids[made_.pieces.size()]);
      made_.pieces.push_back({0, dataset_.lengths[id], true});
    }
    for (std::ptrdiff_t i = first; i < past; ++i) {
      const auto entry = static_cast<size_t>(i);
      made_.pieces.push_back(batch.pieces.empty() ? Piece{0, entry_length(batch, entry, dataset_), true}
                                                  : batch.pieces[entry]);
    }
  }

  const Dataset& dataset_;
  Padding padding_;
  MicroBatch made_;
  int64_t longest_ = 0;
};

/// The rows of a list of batches and how they are shared out.
class Shares {
 public:
  Shares(std::span<const Batch> batches, const Dataset& dataset, const Layout& layout)
      : batches_(batches), dataset_(dataset), layout_(layout) {
    for (const Batch& batch : batches) {
      rows_ += rows_of(batch);
      const bool whole = batch.pieces.empty() || batch.pieces.size() == batch.ids.size();
      if (!whole || (!batch.offsets.empty() && batch.offsets.back() != batch.ids.size())) {
        throw Error(
            Status::kInvalidArgument,
            fmt::format("batch {} was not made by a sampler: its rows, ids and pieces do not match", batch.index));
      }
    }
  }

  /// Rows of `rank`: first, first + stride, ...
  struct Share {
    int64_t first = 0;
    int64_t count = 0;
    int64_t stride = 1;
  };
  [[nodiscard]] Share of(int64_t rank) const {
    if (layout_.rows == RowMap::kContiguous) {
      const RowRange range = share_of(rows_, layout_.granule, layout_.world_size, rank);
      return {range.first, range.count, 1};
    }
    const int64_t count = rank >= rows_ ? 0 : (rows_ - rank - 1) / layout_.world_size + 1;
    return {rank, count, layout_.world_size};
  }

  void require_even() const {
    if (!layout_.even || of(0).count == of(layout_.world_size - 1).count) return;
    throw Error(
        Status::kIncompatibleWorldSize,
        fmt::format("{} rows cannot be divided evenly among {} ranks: rank 0 gets {}, rank {} gets {}; use a world "
                    "size that divides them, one_shape, which fills up with empty lines, or uneven shares",
                    rows_, layout_.world_size, of(0).count, layout_.world_size - 1, of(layout_.world_size - 1).count),
        Origin::kInput);
  }

  [[nodiscard]] std::vector<MicroBatch> micro_batches(int64_t rank, const Padding& padding) const {
    std::vector<MicroBatch> made;
    Assembly assembly(dataset_, padding);
    const Share share = of(rank);
    size_t at = 0;
    int64_t before = 0;  // rows of the batches before batches_[at]
    int64_t longest = -1;
    for (int64_t i = 0; i < share.count; ++i) {
      const int64_t row = share.first + i * share.stride;
      for (; row - before >= rows_of(batches_[at]); ++at, longest = -1) before += rows_of(batches_[at]);
      if (longest < 0) longest = padding.to == PadTo::kBatch ? longest_line(batches_[at], dataset_, padding.line) : 0;
      assembly.add(batches_[at], row - before, row, longest);
      if (assembly.rows() == layout_.micro_batch) made.push_back(assembly.finish());
    }
    if (assembly.rows() > 0) made.push_back(assembly.finish());
    return made;
  }

  /// The micro-batches of `rank` filled up to the shape that fits those of all ranks.
  [[nodiscard]] std::vector<MicroBatch> in_one_shape(int64_t rank) const {
    Padding plain = layout_.padding;
    plain.to = PadTo::kNothing;
    std::vector<MicroBatch> made = micro_batches(rank, plain);
    size_t number = made.size();
    size_t lines = 0;
    int64_t longest = 0;
    for (int64_t other = 0; other < layout_.world_size && of(other).count > 0; ++other) {
      const std::vector<MicroBatch> theirs = micro_batches(other, plain);
      number = std::max(number, theirs.size());
      for (const MicroBatch& one : theirs) {
        lines = std::max(lines, one.lengths.size());
        for (const int64_t length : one.lengths) longest = std::max(longest, length);
      }
    }
    made.resize(number);
    for (MicroBatch& one : made) {
      one.empty_lines = static_cast<int64_t>(lines - one.lengths.size());
      one.lengths.assign(lines, longest);
    }
    return made;
  }

 private:
  std::span<const Batch> batches_;
  const Dataset& dataset_;
  const Layout& layout_;
  int64_t rows_ = 0;
};

}  // namespace

MicroBatch pad_rows(const Batch& batch, RowRange rows, const Dataset& dataset, const Padding& padding) {
  require_at_least_1(padding.multiple, "multiple");
  if (rows.first < 0 || rows.count < 0 || rows.first > rows_of(batch) - rows.count) {
    throw Error(Status::kOutOfRange,
                fmt::format("{} rows from row {} of batch {} on: the batch has {} rows, counted from 0", rows.count,
                            rows.first, batch.index, rows_of(batch)));
  }
  const int64_t longest = padding.to == PadTo::kBatch ? longest_line(batch, dataset, padding.line) : 0;
  Assembly assembly(dataset, padding);
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) assembly.add(batch, row, row, longest);
  return assembly.finish();
}

std::vector<MicroBatch> padded_micro_batches(std::span<const Batch> batches, const Dataset& dataset,
                                             const Layout& layout, int64_t rank) {
  require_at_least_1(layout.world_size, "world size");
  require_at_least_1(layout.micro_batch, "micro-batch");
  require_at_least_1(layout.granule, "granule");
  require_at_least_1(layout.padding.multiple, "multiple");
  if (rank < 0 || rank >= layout.world_size) {
    throw Error(Status::kInvalidArgument,
                fmt::format("rank {} of {} ranks: ranks are counted from 0", rank, layout.world_size));
  }
  const Shares shares(batches, dataset, layout);
  if (layout.one_shape) return shares.in_one_shape(rank);
  shares.require_even();
  return shares.micro_batches(rank, layout.padding);
}

std::vector<MicroBatch> padded_micro_batches(const Batch& batch, const Dataset& dataset, const Layout& layout,
                                             int64_t rank) {
  return padded_micro_batches(std::span(&batch, 1), dataset, layout, rank);
}

}  // namespace pliant
