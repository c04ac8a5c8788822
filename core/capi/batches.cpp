// The batches of a job for C.
#include "handles.hpp"
#include "structs.hpp"

namespace {

using BatchesTurn = pliant::capi::Turn<pliant_batches_t>;

pliant_epoch_summary_t from_summary(const pliant::EpochSummary& summary) {
  pliant_epoch_summary_t made{};
  made.rows = summary.rows;
  made.padding_rows = summary.padding_rows;
  made.batches = summary.batches;
  made.sequences = summary.sequences;
  made.tokens = summary.tokens;
  made.loss_tokens = summary.loss_tokens;
  made.longest_row = summary.longest_row;
  made.truncated = summary.truncated;
  made.tokens_cut = summary.tokens_cut;
  for (const auto& reason : summary.dropped) made.dropped += reason.second;
  const pliant::BatchSize mean = summary.mean_batch();
  made.mean_rows = mean.rows;
  made.mean_sequences = mean.sequences;
  made.mean_tokens = mean.tokens;
  made.mean_loss_tokens = mean.loss_tokens;
  return made;
}

}  // namespace

int32_t pliant_batches_make(const pliant_config_t* config, const pliant_plan_t* plan, const pliant_dataset_t* dataset,
                            pliant_batches_t** batches, pliant_error_t* error) {
  return pliant::capi::hand_out(batches, error, [&] {
    using pliant::capi::given;
    return std::make_unique<pliant_batches_t>(given(config).config, given(plan).plan, given(dataset).dataset);
  });
}

int32_t pliant_batches_open(const pliant_config_t* config, const pliant_plan_t* plan, const pliant_dataset_t* dataset,
                            const char* saved, uint64_t bytes, pliant_batches_t** batches, pliant_error_t* error) {
  return pliant::capi::hand_out(batches, error, [&] {
    using pliant::capi::given;
    const auto text = pliant::capi::given_array(saved, bytes, "saved");
    return std::make_unique<pliant_batches_t>(given(config).config, given(plan).plan, given(dataset).dataset,
                                              std::string_view(text.data(), text.size()));
  });
}

int32_t pliant_batches_free(pliant_batches_t* batches) {
  return pliant::capi::free_serial(batches);
}

int32_t pliant_batches_next(pliant_batches_t* batches, pliant_batch_t** batch, pliant_error_t* error) {
  return pliant::capi::hand_out(batch, error, [&]() -> std::unique_ptr<pliant_batch_t> {
    const BatchesTurn known(batches);
    std::optional<pliant::Batch> next = known->batches.next();
    return next ? known->lend(std::move(*next)) : nullptr;
  });  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the caller has it
}

int32_t pliant_batches_at_step(pliant_batches_t* batches, int64_t step, pliant_batch_t** batch, pliant_error_t* error) {
  return pliant::capi::hand_out(batch, error, [&] {
    const BatchesTurn known(batches);
    return known->lend(known->batches.at_step(step));
  });
}

int32_t pliant_batches_batch(pliant_batches_t* batches, int64_t epoch, int64_t index, pliant_batch_t** batch,
                             pliant_error_t* error) {
  return pliant::capi::hand_out(batch, error, [&] {
    const BatchesTurn known(batches);
    return known->lend(known->batches.batch(epoch, index));
  });
}

int32_t pliant_batches_rows(pliant_batches_t* batches, int64_t epoch, int64_t first, int64_t count,
                            pliant_batch_t** batch, pliant_error_t* error) {
  return pliant::capi::hand_out(batch, error, [&] {
    const BatchesTurn known(batches);
    return known->lend(known->batches.rows(epoch, first, count));
  });
}

int32_t pliant_batches_has_step(pliant_batches_t* batches, int64_t step, int32_t* has, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    pliant::capi::require(has, "has");
    *has = known->batches.has_step(step) ? 1 : 0;
  });
}

int32_t pliant_batches_seek(pliant_batches_t* batches, int64_t step, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    known->batches.seek(step);
  });
}

int32_t pliant_batches_epoch(pliant_batches_t* batches, int64_t epoch, pliant_epoch_summary_t* summary,
                             pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    pliant::capi::check_size(summary, "summary");
    pliant::capi::write(summary, from_summary(known->batches.epoch(epoch)), "summary");
  });
}

int32_t pliant_batches_dropped(pliant_batches_t* batches, int64_t epoch, int64_t* to, uint64_t room, uint64_t* count,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    const std::vector<int64_t> ids = known->batches.dropped(epoch);
    pliant::capi::fill_room(std::span(ids), to, room, count, "count");
  });
}

int32_t pliant_batches_truncated(pliant_batches_t* batches, int64_t epoch, int64_t* to, uint64_t room, uint64_t* count,
                                 pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    const std::vector<int64_t> ids = known->batches.truncated(epoch);
    pliant::capi::fill_room(std::span(ids), to, room, count, "count");
  });
}

int32_t pliant_batches_packing(pliant_batches_t* batches, int64_t epoch, pliant_packing_t* packing,
                               pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    pliant::capi::check_size(packing, "packing");
    const pliant::Packing found = known->batches.packing(epoch);
    pliant_packing_t made{};
    made.unit = known->units.insert(found.unit).first->c_str();
    made.budget = found.budget;
    made.used = found.used;
    made.least_rows = found.least_rows;
    made.efficiency = found.efficiency;
    pliant::capi::write(packing, made, "packing");
  });
}

int32_t pliant_batches_look(pliant_batches_t* batches, pliant_job_facts_t* facts, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    pliant_job_facts_t made{};
    made.next_step = known->batches.next_step();
    made.expected_steps = known->batches.expected_steps();
    made.fingerprint = known->batches.fingerprint();
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_batches_job_length(pliant_batches_t* batches, int64_t* steps, pliant_batch_size_t* all,
                                  pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    pliant::capi::require(steps, "steps");
    pliant::capi::check_size(all, "all");
    const pliant::JobLength length = known->batches.job_length();
    *steps = length.steps;
    pliant::capi::write(all, pliant::capi::from_size(length.size), "all");
  });
}

int32_t pliant_batches_save(pliant_batches_t* batches, char* to, uint64_t room, uint64_t* bytes,
                            pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    const std::string saved = known->batches.save();
    pliant::capi::fill_room(std::span<const char>(saved), to, room, bytes, "bytes");
  });
}

int32_t pliant_batches_load(pliant_batches_t* batches, const char* saved, uint64_t bytes, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const BatchesTurn known(batches);
    const auto text = pliant::capi::given_array(saved, bytes, "saved");
    known->batches.load({text.data(), text.size()});
  });
}
