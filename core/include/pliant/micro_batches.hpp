// Micro-batches as a loader hands them out: which rows a rank computes at once, and the length that each line of the
// tensor is padded to. For programs that share out the rows of a batch themselves, and for pipelines, which want all
// micro-batches of a batch in one shape.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pliant/batches.hpp"
#include "pliant/plan.hpp"

namespace pliant {

/// What one line of the tensor of a micro-batch holds.
enum class Line {
  kSequence,  ///< one entry of a row: packs are taken apart
  kRow,       ///< a whole row, its entries one after the other
};

/// What lines are padded to.
enum class PadTo {
  kNothing,     ///< every line keeps its own length
  kMicroBatch,  ///< the longest line of the micro-batch
  kBatch,       ///< the longest line of the global batch that the line belongs to: the same on every rank
};

struct Padding {
  Line line = Line::kSequence;
  PadTo to = PadTo::kMicroBatch;
  int64_t multiple = 1;  ///< padded lengths are rounded up to a multiple of this; also those of PadTo::kNothing
};

/// Which rows a rank gets.
enum class RowMap {
  kContiguous,   ///< share_of(): ranges in rank order, as sessions share them out
  kInterleaved,  ///< rank, rank + world size, ...: as DeepSpeed deals out its micro-batches
};

/// How rows are shared out, cut and padded.
struct Layout {
  int64_t world_size = 1;
  int64_t micro_batch = 1;  ///< rows computed at once; the last micro-batch of a rank may have fewer
  int64_t granule = 1;      ///< of kContiguous
  RowMap rows = RowMap::kContiguous;
  Padding padding;
  /// Refuse rows of which some rank would get more than another.
  bool even = false;
  /// All ranks get equally many micro-batches, and all of these have the same number of lines, padded to one length:
  /// filled up with empty lines and empty micro-batches. Takes the place of padding.to.
  bool one_shape = false;
};

/// Lines that are computed at once.
struct MicroBatch {
  std::vector<int64_t> rows;     ///< their positions, ascending
  std::vector<int64_t> ids;      ///< the sequences, row by row
  std::vector<Piece> pieces;     ///< of each of `ids`; empty = all sequences are whole
  std::vector<int64_t> lengths;  ///< of each line after padding: one for each of `ids`, or of `rows`, then empty lines
  int64_t empty_lines = 0;  ///< at the end of `lengths`: lines of padding only, which must have no part in the loss
  int64_t tokens = 0;       ///< in the lines before padding
  bool operator==(const MicroBatch&) const = default;
};

/// `rows` of `batch`, such as those of Step::micro_batches(), as one micro-batch. Throws as below. O(entries of `rows`;
/// of the batch for PadTo::kBatch with Line::kRow).
MicroBatch pad_rows(const Batch& batch, RowRange rows, const Dataset& dataset, const Padding& padding);

/// The micro-batches of `rank`, in order. No row is left out and none is used twice; the micro-batches of all ranks
/// hold each row once. Throws kInvalidArgument for numbers below 1 and a rank outside the world, kOutOfRange for an id
/// that `dataset` has not and for lengths past 63 bits, and under `even` kIncompatibleWorldSize (kInput). O(entries).
std::vector<MicroBatch> padded_micro_batches(const Batch& batch, const Dataset& dataset, const Layout& layout,
                                             int64_t rank);

/// The same for batches that follow each other, such as those of an epoch, taken as one list of rows: rows are counted
/// through, and a micro-batch may hold rows of two batches where a rank's rows of a batch are no multiple of
/// layout.micro_batch. one_shape is one shape for all of them.
std::vector<MicroBatch> padded_micro_batches(std::span<const Batch> batches, const Dataset& dataset,
                                             const Layout& layout, int64_t rank);

}  // namespace pliant
