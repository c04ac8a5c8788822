// One batch for C, as flat arrays.
#include "handles.hpp"
#include "structs.hpp"

pliant_batch_t::pliant_batch_t(std::shared_ptr<const pliant::Batch> made, std::shared_ptr<const pliant::Dataset> of)
    : batch(std::move(made)), dataset(std::move(of)) {
  for (const pliant::Piece& piece : batch->pieces) {
    first_tokens.push_back(piece.first);
    token_counts.push_back(piece.count);
    is_last.push_back(piece.last ? 1 : 0);
  }
}

namespace pliant::capi {

BatchSize size_of(const pliant_batch_size_t* size, const char* name) {
  const pliant_batch_size_t known = read(size, name);
  const bool is_possible = known.padding_rows >= 0 && known.rows >= known.padding_rows && known.sequences >= 0 &&
                           known.tokens >= 0 && known.loss_tokens >= 0;
  if (!is_possible) throw wrong(std::string(name) + " has a count below 0, or more rows of padding than rows");
  return {known.rows, known.sequences, known.tokens, known.loss_tokens, known.padding_rows};
}

pliant_batch_size_t from_size(const BatchSize& size) {
  pliant_batch_size_t made{};
  made.rows = size.rows;
  made.sequences = size.sequences;
  made.tokens = size.tokens;
  made.loss_tokens = size.loss_tokens;
  made.padding_rows = size.padding_rows;
  return made;
}

}  // namespace pliant::capi

int32_t pliant_batch_look(const pliant_batch_t* batch, pliant_batch_view_t* view, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const pliant_batch_t& known = pliant::capi::given(batch);
    const bool all_whole = known.batch->pieces.empty();
    pliant_batch_view_t made{};
    made.epoch = known.batch->epoch;
    made.index = known.batch->index;
    made.rows = known.batch->size.rows;
    made.padding_rows = known.batch->size.padding_rows;
    made.sequences = known.batch->size.sequences;
    made.tokens = known.batch->size.tokens;
    made.loss_tokens = known.batch->size.loss_tokens;
    made.longest_entry = known.batch->longest_entry;
    made.digest = known.batch->digest;
    made.entry_count = known.batch->ids.size();
    made.offsets = known.batch->offsets.data();
    made.ids = known.batch->ids.data();
    made.first_tokens = all_whole ? nullptr : known.first_tokens.data();
    made.token_counts = all_whole ? nullptr : known.token_counts.data();
    made.is_last = all_whole ? nullptr : known.is_last.data();
    pliant::capi::write(view, made, "view");
  });
}

int32_t pliant_batch_size(const pliant_batch_t* batch, pliant_batch_size_t* size, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::capi::write(size, pliant::capi::from_size(pliant::capi::given(batch).batch->size), "size");
  });
}

int32_t pliant_batch_free(pliant_batch_t* batch) {
  return pliant::capi::answer(nullptr, [&] {
    if (batch == nullptr) return;
    if (pliant::capi::given(batch).is_lent) {
      throw pliant::Error(pliant::Status::kFailedPrecondition, "this batch is the session's, which frees it");
    }
    delete batch;
  });
}
