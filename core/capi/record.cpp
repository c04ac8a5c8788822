// The record of a job without an agent, for C.
#include <exception>
#include <istream>
#include <iterator>
#include <ostream>

#include "handles.hpp"
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

/// Of a state that is shown in pieces.
constexpr size_t kMostOfPiece = size_t{1} << 20U;

/// What a callback of the program fails with within `work`, which says it in its own way: here it is the program's.
class OfCallback {
 public:
  template <class Callback>
  void call(const char* what, const Callback& callback) {
    try {
      pliant::capi::call_back(what, callback);
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }
  template <class Work>
  void keep_over(const Work& work) {
    try {
      work();
    } catch (...) {
      if (failure_) std::rethrow_exception(failure_);
      throw;
    }
  }

 private:
  std::exception_ptr failure_;
};

/// What a call on `known` says of what it went on from; the state is at `known`, or nowhere.
pliant_restored_t from_restored(const pliant::Restored& from, pliant_record_t& known, uint64_t bytes, bool is_held) {
  known.restored_lr = from.lr_state;
  pliant_restored_t made{};
  if (from.step == 0) return made;
  made.step = from.step;
  made.state = is_held ? known.restored.data() : nullptr;
  made.bytes = bytes;
  made.lr_state = known.restored_lr.data();
  made.lr_bytes = known.restored_lr.size();
  return made;
}

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
    const pliant::BatchPosition next = known->record.position();
    made.epoch = next.epoch;
    made.index = next.index;
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
    known->record.commit(*pliant::capi::given(batch).batch, pliant::capi::given(assignment).assignment, loss,
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
    pliant::capi::write(restored, from_restored(from, *known.operator->(), known->restored.size(), true), "restored");
  });
}

int32_t pliant_record_keep_pieces(pliant_record_t* record,
                                  int32_t (*next)(void* context, const void** piece, uint64_t* bytes), void* context,
                                  const char* lr_state, uint64_t lr_bytes, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    if (next == nullptr) throw pliant::capi::wrong("next is NULL");
    const auto rate = pliant::capi::given_array(lr_state, lr_bytes, "lr_state");
    OfCallback of;
    const auto write_pieces = [&](std::ostream& out) {
      for (;;) {
        const void* piece = nullptr;
        uint64_t bytes = 0;
        of.call("next of a state", [&] {
          const int32_t status = next(context, &piece, &bytes);
          return status == PLIANT_OK && bytes > 0 && piece == nullptr ? int32_t{PLIANT_INVALID_ARGUMENT} : status;
        });
        if (bytes == 0) return;
        out.write(static_cast<const char*>(piece), static_cast<std::streamsize>(bytes));
        if (!out) return;  // a full disk, which keep_snapshot names
      }
    };
    of.keep_over([&] { known->record.keep_snapshot({rate.begin(), rate.end()}, write_pieces); });
  });
}

int32_t pliant_record_restore_pieces(pliant_record_t* record,
                                     int32_t (*take)(void* context, const void* piece, uint64_t bytes), void* context,
                                     pliant_restored_t* restored, pliant_error_t* error) {
  return pliant::capi::answer(error, [&] {
    const RecordTurn known(record);
    if (take == nullptr) throw pliant::capi::wrong("take is NULL");
    pliant::capi::check_size(restored, "restored");
    known->restored.clear();
    uint64_t all = 0;
    OfCallback of;
    const auto read_pieces = [&](std::istream& in) {
      std::vector<char> piece(kMostOfPiece);
      while (in) {
        in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
        const auto bytes = static_cast<uint64_t>(in.gcount());
        if (bytes == 0) break;
        all += bytes;
        of.call("take of a state", [&] { return take(context, piece.data(), bytes); });
      }
    };
    pliant::Restored from;
    of.keep_over([&] { from = known->record.restore(read_pieces); });
    pliant::capi::write(restored, from_restored(from, *known.operator->(), all, false), "restored");
  });
}
