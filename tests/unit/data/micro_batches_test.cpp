// Rows shared out as padded micro-batches: who gets what, how long it is, and what is refused.
#include "pliant/micro_batches.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <type_traits>

using namespace pliant;

namespace {

/// Sequence i has lengths[i] tokens.
Dataset dataset_of(const std::vector<std::decay_t<decltype(Dataset().lengths[0])>>& lengths) {
  Dataset dataset;
  dataset.lengths = lengths;
  return dataset;
}

/// A batch with these rows of whole sequences.
Batch batch_of(const std::vector<std::vector<int64_t>>& rows, const Dataset& dataset) {
  Batch batch;
  batch.offsets = {0};
  for (const auto& row : rows) {
    batch.ids.insert(batch.ids.end(), row.begin(), row.end());
    batch.offsets.push_back(batch.ids.size());
  }
  for (const int64_t id : batch.ids) {
    batch.longest_entry = std::max<int64_t>(batch.longest_entry, dataset.lengths[static_cast<size_t>(id)]);
  }
  return batch;
}

const Dataset& six() {
  static const Dataset dataset = dataset_of({3, 9, 4, 6, 2, 8});
  return dataset;
}

Layout interleaved(int64_t world_size, int64_t micro_batch, PadTo to) {
  Layout layout;
  layout.world_size = world_size;
  layout.micro_batch = micro_batch;
  layout.rows = RowMap::kInterleaved;
  layout.padding.to = to;
  return layout;
}

using Rows = std::vector<int64_t>;

/// The status of the Error that `call` throws.
template <class Call>
Status refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK_FALSE(error.message().empty());
    return error.status();
  }
  return Status::kOk;
}

}  // namespace

TEST_CASE("interleaved rows go round the ranks, each line padded to the longest of its micro-batch") {
  const Batch batch = batch_of({{0}, {1}, {2, 4}, {3}, {5}, {0}}, six());
  const auto rank1 = padded_micro_batches(batch, six(), interleaved(2, 2, PadTo::kMicroBatch), 1);
  REQUIRE(rank1.size() == 2);
  CHECK(rank1[0].rows == Rows{1, 3});
  CHECK(rank1[0].ids == Rows{1, 3});
  CHECK(rank1[0].lengths == Rows{9, 9});
  CHECK(rank1[0].tokens == 15);
  CHECK(rank1[1].rows == Rows{5});
  CHECK(rank1[1].lengths == Rows{3});
}

TEST_CASE("padding to the batch gives one length on every rank and nothing else changes") {
  const Batch batch = batch_of({{0}, {1}, {2, 4}, {3}}, six());
  for (int64_t rank = 0; rank < 2; ++rank) {
    for (const auto& one : padded_micro_batches(batch, six(), interleaved(2, 1, PadTo::kBatch), rank)) {
      CHECK(one.lengths == Rows(one.ids.size(), 9));
    }
  }
}

TEST_CASE("contiguous rows are those of share_of, cut into micro-batches") {
  const Batch batch = batch_of({{0}, {1}, {2}, {3}, {4}}, six());
  Layout layout;
  layout.world_size = 2;
  layout.micro_batch = 2;
  layout.granule = 2;
  layout.padding.to = PadTo::kNothing;
  const auto first = padded_micro_batches(batch, six(), layout, 0);
  const auto second = padded_micro_batches(batch, six(), layout, 1);
  REQUIRE(first.size() == 2);
  CHECK(first[1].ids == Rows{2, 3});
  CHECK(first[1].lengths == Rows{4, 6});
  REQUIRE(second.size() == 1);
  CHECK(second[0].ids == Rows{4});
}

TEST_CASE("packs as lines hold the sum of their sequences, rounded up to the multiple") {
  const Batch batch = batch_of({{0, 1}, {2}, {3, 4, 5}}, six());
  Layout layout = interleaved(1, 3, PadTo::kMicroBatch);
  layout.padding.line = Line::kRow;
  layout.padding.multiple = 8;
  const auto all = padded_micro_batches(batch, six(), layout, 0);
  REQUIRE(all.size() == 1);
  CHECK(all[0].lengths == Rows{16, 16, 16});
  CHECK(all[0].ids == Rows{0, 1, 2, 3, 4, 5});
  layout.padding.to = PadTo::kNothing;
  CHECK(padded_micro_batches(batch, six(), layout, 0)[0].lengths == Rows{16, 8, 16});
  layout.padding.to = PadTo::kBatch;
  layout.micro_batch = 1;
  CHECK(padded_micro_batches(batch, six(), layout, 0)[1].lengths == Rows{16});
}

TEST_CASE("pieces count with their own tokens, and whole sequences beside them become pieces") {
  Batch cut = batch_of({{1}, {1, 0}}, six());
  cut.pieces = {{0, 5, false}, {5, 4, true}, {0, 3, true}};
  cut.longest_entry = 5;
  const std::vector<Batch> batches{batch_of({{3}}, six()), cut};
  const auto all = padded_micro_batches(batches, six(), interleaved(1, 3, PadTo::kMicroBatch), 0);
  REQUIRE(all.size() == 1);
  CHECK(all[0].ids == Rows{3, 1, 1, 0});
  CHECK(all[0].pieces == std::vector<Piece>{{0, 6, true}, {0, 5, false}, {5, 4, true}, {0, 3, true}});
  CHECK(all[0].lengths == Rows{6, 6, 6, 6});
  CHECK(all[0].tokens == 18);
}

TEST_CASE("a micro-batch over two batches pads each line to its own batch") {
  const std::vector<Batch> batches{batch_of({{0}}, six()), batch_of({{1}}, six()), batch_of({{2}}, six())};
  const auto all = padded_micro_batches(batches, six(), interleaved(1, 2, PadTo::kBatch), 0);
  REQUIRE(all.size() == 2);
  CHECK(all[0].rows == Rows{0, 1});
  CHECK(all[0].lengths == Rows{3, 9});
  CHECK(all[1].rows == Rows{2});
}

TEST_CASE("one shape gives every rank equally many micro-batches of equal lines and length") {
  const Batch batch = batch_of({{0, 1, 2}, {3}, {4}}, six());
  for (const RowMap map : {RowMap::kContiguous, RowMap::kInterleaved}) {
    Layout layout = interleaved(4, 1, PadTo::kNothing);
    layout.rows = map;
    layout.one_shape = true;
    layout.padding.multiple = 4;
    int64_t lines_with_sequences = 0;
    for (int64_t rank = 0; rank < 4; ++rank) {
      const auto mine = padded_micro_batches(batch, six(), layout, rank);
      REQUIRE(mine.size() == 1);
      CHECK(mine[0].lengths == Rows(3, 12));
      CHECK(mine[0].empty_lines == 3 - static_cast<int64_t>(mine[0].ids.size()));
      lines_with_sequences += static_cast<int64_t>(mine[0].ids.size());
    }
    CHECK(lines_with_sequences == 5);
  }
}

TEST_CASE("an even share that is not to be had is refused with the numbers") {
  const Batch batch = batch_of({{0}, {1}, {2}, {3}, {4}}, six());
  Layout layout = interleaved(3, 1, PadTo::kBatch);
  layout.even = true;
  for (int64_t rank = 0; rank < 3; ++rank) {
    CHECK(refusal([&] { (void)padded_micro_batches(batch, six(), layout, rank); }) == Status::kIncompatibleWorldSize);
  }
  try {
    (void)padded_micro_batches(batch, six(), layout, 0);
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    CHECK(error.message().find("5 rows cannot be divided evenly among 3 ranks") == 0);
  }
  layout.world_size = 5;
  CHECK(padded_micro_batches(batch, six(), layout, 4).size() == 1);
  layout.rows = RowMap::kContiguous;
  layout.granule = 2;
  CHECK(refusal([&] { (void)padded_micro_batches(batch, six(), layout, 0); }) == Status::kIncompatibleWorldSize);
}

TEST_CASE("a rank without rows gets no micro-batch") {
  const Batch batch = batch_of({{0}, {1}}, six());
  CHECK(padded_micro_batches(batch, six(), interleaved(3, 1, PadTo::kBatch), 2).empty());
  CHECK(padded_micro_batches(Batch{}, six(), interleaved(1, 1, PadTo::kBatch), 0).empty());
  CHECK(padded_micro_batches(std::span<const Batch>(), six(), interleaved(1, 1, PadTo::kBatch), 0).empty());
  Layout one_shape = interleaved(2, 1, PadTo::kBatch);
  one_shape.one_shape = true;
  CHECK(padded_micro_batches(Batch{}, six(), one_shape, 1).empty());
}

TEST_CASE("the rows of a session's micro-batch are padded as they are") {
  const Batch batch = batch_of({{0}, {1}, {2, 4}, {3}}, six());
  const MicroBatch made = pad_rows(batch, {2, 2}, six(), {Line::kSequence, PadTo::kMicroBatch, 1});
  CHECK(made.rows == Rows{2, 3});
  CHECK(made.ids == Rows{2, 4, 3});
  CHECK(made.lengths == Rows{6, 6, 6});
  CHECK(pad_rows(batch, {4, 0}, six(), {}).rows.empty());
  CHECK(refusal([&] { (void)pad_rows(batch, {3, 2}, six(), {}); }) == Status::kOutOfRange);
  CHECK(refusal([&] { (void)pad_rows(batch, {-1, 2}, six(), {}); }) == Status::kOutOfRange);
  CHECK(refusal([&] {
          (void)pad_rows(batch, {1, std::numeric_limits<int64_t>::max()}, six(), {});
        }) == Status::kOutOfRange);
}

TEST_CASE("numbers that lay nothing out and batches of another data set are refused") {
  const Batch batch = batch_of({{0}, {1}}, six());
  const auto with = [&](auto change, int64_t rank = 0) {
    Layout layout;
    change(layout);
    return refusal([&] { (void)padded_micro_batches(batch, six(), layout, rank); });
  };
  CHECK(with([](Layout& l) { l.world_size = 0; }) == Status::kInvalidArgument);
  CHECK(with([](Layout& l) { l.micro_batch = 0; }) == Status::kInvalidArgument);
  CHECK(with([](Layout& l) { l.granule = -1; }) == Status::kInvalidArgument);
  CHECK(with([](Layout& l) { l.padding.multiple = 0; }) == Status::kInvalidArgument);
  CHECK(with([](Layout& l) { l.padding.multiple = std::numeric_limits<int64_t>::max(); }) == Status::kOk);
  CHECK(with([](Layout&) {}, 1) == Status::kInvalidArgument);
  CHECK(with([](Layout&) {}, -1) == Status::kInvalidArgument);
  const Dataset one = dataset_of({5});
  CHECK(refusal([&] { (void)padded_micro_batches(batch, one, {}, 0); }) == Status::kOutOfRange);
  Batch forged = batch;
  forged.longest_entry = 1;
  Layout to_batch;
  to_batch.padding.to = PadTo::kBatch;
  CHECK(refusal([&] { (void)padded_micro_batches(forged, six(), to_batch, 0); }) == Status::kInvalidArgument);
  forged.offsets.back() = 7;
  CHECK(refusal([&] { (void)padded_micro_batches(forged, six(), {}, 0); }) == Status::kInvalidArgument);
}
