// The record of a job without an agent, and audits, for C.
#include <istream>
#include <iterator>
#include <ostream>

#include "handles.hpp"
#include "pliant/audit.hpp"
#include "pliant/job_record.hpp"
#include "structs.hpp"

struct pliant_record_t : pliant::capi::SerialHandle<pliant::capi::Tag::kRecord> {
  static constexpr const char* kName = "record";
  explicit pliant_record_t(pliant::JobRecord made) : record(std::move(made)), directory(record.directory().string()) {}

  pliant::JobRecord record;
  const std::string directory;
  std::string restored;  // lent until the next call
  std::string restored_lr;
};

namespace {

using RecordTurn = pliant::capi::Turn<pliant_record_t>;

}  // namespace

int32_t pliant_record_begin(const pliant_config_t* config, const pliant_plan_t* plan, pliant_batches_t* batches,
                            pliant_record_t** record, pliant_error_t* error) {
  return pliant::capi::hand_out(record, error, [&] {
    const pliant::Config& known = pliant::capi::given(config).config;
    const pliant::Plan& planned = pliant::capi::given(plan).plan;
    const pliant::capi::Turn of(batches);
    return std::make_unique<pliant_record_t>(pliant::JobRecord::begin(known, planned, of->batches));
  });
}

int32_t pliant_record_open(const char* directory, const pliant_config_t* config, const pliant_plan_t* plan,
                           pliant_batches_t* batches, pliant_record_t** record, pliant_error_t* error) {
  return pliant::capi::hand_out(record, error, [&] {
    pliant::capi::require(directory, "directory");
    const pliant::Config& known = pliant::capi::given(config).config;
    const pliant::Plan& planned = pliant::capi::given(plan).plan;
    const pliant::capi::Turn of(batches);
    return std::make_unique<pliant_record_t>(pliant::JobRecord::open(directory, known, planned, of->batches));
  });
}

int32_t pliant_record_free(pliant_record_t* record) {
  return pliant::capi::free_serial(record);
}

int32_t pliant_record_look(pliant_record_t* record, pliant_record_facts_t* facts, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    pliant_record_facts_t made{};
    made.steps = known->record.steps();
    made.directory = known->directory.c_str();
    pliant::capi::write(facts, made, "facts");
  });
}

int32_t pliant_record_start_generation(pliant_record_t* record, int64_t world_size, const char* reason,
                                       pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    pliant::capi::require(reason, "reason");
    known->record.start_generation(world_size, reason);
  });
}

int32_t pliant_record_commit(pliant_record_t* record, const pliant_batch_t* batch,
                             const pliant_assignment_t* assignment, double loss, double learning_rate,
                             pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    known->record.commit(pliant::capi::given(batch).batch, pliant::capi::given(assignment).assignment, loss,
                         learning_rate);
  });
}

int32_t pliant_record_keep_snapshot(pliant_record_t* record, const void* state, uint64_t bytes, const char* lr_state,
                                    uint64_t lr_bytes, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    const auto kept = pliant::capi::given_array(static_cast<const char*>(state), bytes, "state");
    const auto rate = pliant::capi::given_array(lr_state, lr_bytes, "lr_state");
    known->record.keep_snapshot({rate.begin(), rate.end()}, [kept](std::ostream& out) {
      out.write(kept.data(), static_cast<std::streamsize>(kept.size()));
    });
  });
}

int32_t pliant_record_restore(pliant_record_t* record, pliant_restored_t* restored, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    pliant::capi::check_size(restored, "restored");
    known->restored.clear();
    const pliant::Restored from = known->record.restore([&](std::istream& in) {
      known->restored.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    });
    known->restored_lr = from.lr_state;
    pliant_restored_t made{};
    if (from.step > 0) {
      made.step = from.step;
      made.state = known->restored.data();
      made.bytes = known->restored.size();
      made.lr_state = known->restored_lr.data();
      made.lr_bytes = known->restored_lr.size();
    }
    pliant::capi::write(restored, made, "restored");
  });
}

int32_t pliant_audit_run(const char* directory, pliant_audit_t* audit, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    pliant::capi::require(directory, "directory");
    pliant::capi::check_size(audit, "audit");
    const pliant::RunAudit found = pliant::audit_run(directory);
    pliant_audit_t made{};
    made.is_whole = found.is_whole() ? 1 : 0;
    made.steps = found.steps;
    made.samples_expected = found.samples_expected;
    made.samples_used_once = found.samples_used_once;
    made.samples_repeated = found.samples_repeated;
    made.samples_missing = found.samples_missing;
    made.differences = found.differences_found;
    pliant::capi::write(audit, made, "audit");
  });
}
