// Padded micro-batches for C, as flat arrays over all of them.
#include "pliant/micro_batches.hpp"

#include "handles.hpp"
#include "structs.hpp"

struct pliant_micro_batches_t : pliant::capi::Handle<pliant::capi::Tag::kMicroBatches> {
  static constexpr const char* kName = "micro-batches";
  pliant_micro_batches_t(const std::vector<pliant::MicroBatch>& all, const pliant::Dataset& dataset) {
    const bool all_whole = std::all_of(all.begin(), all.end(), [](const auto& one) { return one.pieces.empty(); });
    for (const pliant::MicroBatch& one : all) {
      rows.insert(rows.end(), one.rows.begin(), one.rows.end());
      ids.insert(ids.end(), one.ids.begin(), one.ids.end());
      lengths.insert(lengths.end(), one.lengths.begin(), one.lengths.end());
      row_offsets.push_back(rows.size());
      entry_offsets.push_back(ids.size());
      line_offsets.push_back(lengths.size());
      empty_lines.push_back(one.empty_lines);
      tokens.push_back(one.tokens);
      if (!all_whole) add_pieces(one, dataset);
    }
  }

  void add_pieces(const pliant::MicroBatch& one, const pliant::Dataset& dataset) {
    for (size_t entry = 0; entry < one.ids.size(); ++entry) {
      const auto whole = dataset.lengths[static_cast<size_t>(one.ids[entry])];
      const pliant::Piece piece = one.pieces.empty() ? pliant::Piece{0, whole, true} : one.pieces[entry];
      first_tokens.push_back(piece.first);
      token_counts.push_back(piece.count);
      is_last.push_back(piece.last ? 1 : 0);
    }
  }

  std::vector<uint64_t> row_offsets{0}, entry_offsets{0}, line_offsets{0};
  std::vector<int64_t> rows, ids, lengths, empty_lines, tokens;
  std::vector<int64_t> first_tokens, token_counts;  // as the next empty where all sequences are whole
  std::vector<uint8_t> is_last;
};

namespace {

constexpr uint32_t kLayoutFlags = PLIANT_LAYOUT_INTERLEAVED | PLIANT_LAYOUT_EVEN | PLIANT_LAYOUT_ONE_SHAPE;

pliant::PadTo pad_to_of(int32_t number) {
  if (number == PLIANT_PAD_TO_NOTHING) return pliant::PadTo::kNothing;
  if (number == PLIANT_PAD_TO_MICRO_BATCH) return pliant::PadTo::kMicroBatch;
  if (number == PLIANT_PAD_TO_BATCH) return pliant::PadTo::kBatch;
  throw pliant::capi::wrong("layout.pad_to " + std::to_string(number) + " is none of PLIANT_PAD_TO_...");
}

pliant::Line line_of(int32_t number) {
  if (number == PLIANT_LINE_SEQUENCE) return pliant::Line::kSequence;
  if (number == PLIANT_LINE_ROW) return pliant::Line::kRow;
  throw pliant::capi::wrong("layout.line " + std::to_string(number) + " is none of PLIANT_LINE_...");
}

pliant::Layout layout_of(const pliant_layout_t* layout) {
  const pliant_layout_t known = pliant::capi::read_or_default(layout, "layout");
  pliant::capi::check_flags(known.flags, kLayoutFlags, "layout");
  pliant::Layout made;
  made.world_size = pliant::capi::at_least_one(known.world_size);
  made.micro_batch = pliant::capi::at_least_one(known.micro_batch);
  made.granule = pliant::capi::at_least_one(known.granule);
  made.padding = {line_of(known.line), pad_to_of(known.pad_to), pliant::capi::at_least_one(known.multiple)};
  if ((known.flags & PLIANT_LAYOUT_INTERLEAVED) != 0) made.rows = pliant::RowMap::kInterleaved;
  made.even = (known.flags & PLIANT_LAYOUT_EVEN) != 0;
  made.one_shape = (known.flags & PLIANT_LAYOUT_ONE_SHAPE) != 0;
  return made;
}

/// Of batches that follow each other; they are of one data set.
std::vector<pliant::MicroBatch> micro_batches_of(std::span<const pliant_batch_t* const> batches,
                                                 const pliant::Layout& layout, int64_t rank) {
  const pliant_batch_t& first = pliant::capi::given(batches.front());
  if (batches.size() == 1) return pliant::padded_micro_batches(*first.batch, *first.dataset, layout, rank);
  std::vector<pliant::Batch> copies;
  for (const pliant_batch_t* const batch : batches) {
    copies.push_back(*pliant::capi::given(batch).batch);
    if (batch->dataset != first.dataset) throw pliant::capi::wrong("the batches are not of one data set");
  }
  return pliant::padded_micro_batches(copies, *first.dataset, layout, rank);
}

}  // namespace

int32_t pliant_micro_batches_make(const pliant_batch_t* const* batches, uint64_t count, const pliant_layout_t* layout,
                                  int64_t rank, pliant_micro_batches_t** micro_batches, pliant_error_t* error) {
  return pliant::capi::hand_out(micro_batches, error, [&] {
    const auto all = pliant::capi::given_array(batches, count, "batches");
    if (all.empty()) throw pliant::capi::wrong("there are no batches to make micro-batches of");
    return std::make_unique<pliant_micro_batches_t>(micro_batches_of(all, layout_of(layout), rank),
                                                    *pliant::capi::given(all.front()).dataset);
  });
}

int32_t pliant_micro_batches_of_rows(const pliant_batch_t* batch, int64_t first, int64_t rows,
                                     const pliant_layout_t* layout, pliant_micro_batches_t** micro_batches,
                                     pliant_error_t* error) {
  return pliant::capi::hand_out(micro_batches, error, [&] {
    const pliant_batch_t& known = pliant::capi::given(batch);
    const pliant::Padding padding = layout_of(layout).padding;
    return std::make_unique<pliant_micro_batches_t>(
        std::vector{pliant::pad_rows(*known.batch, {first, rows}, *known.dataset, padding)}, *known.dataset);
  });
}

int32_t pliant_micro_batches_free(pliant_micro_batches_t* micro_batches) {
  return pliant::capi::free_any(micro_batches);
}

int32_t pliant_micro_batches_look(const pliant_micro_batches_t* micro_batches, pliant_micro_batches_view_t* view,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_micro_batches_t& known = pliant::capi::given(micro_batches);
    const bool all_whole = known.is_last.empty();
    pliant_micro_batches_view_t made{};
    made.count = known.tokens.size();
    made.row_offsets = known.row_offsets.data();
    made.rows = known.rows.data();
    made.entry_offsets = known.entry_offsets.data();
    made.ids = known.ids.data();
    made.first_tokens = all_whole ? nullptr : known.first_tokens.data();
    made.token_counts = all_whole ? nullptr : known.token_counts.data();
    made.is_last = all_whole ? nullptr : known.is_last.data();
    made.line_offsets = known.line_offsets.data();
    made.lengths = known.lengths.data();
    made.empty_lines = known.empty_lines.data();
    made.tokens = known.tokens.data();
    pliant::capi::write(view, made, "view");
  });
}
