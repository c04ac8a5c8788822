// The sampler `broken`: a row for each sequence, or for each piece of 40 tokens of a longer one, with the fault that
// its option names. TEST ONLY.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "pliant/sdk/packing.hpp"
#include "pliant/sdk/row_stream.hpp"

namespace {

namespace sdk = pliant::sdk;

constexpr int64_t kRoom = 40;        // tokens of a row
constexpr int64_t kDropped = 150;    // longer sequences are
constexpr int64_t kRefused = 10000;  // longer ones are no data
constexpr uint64_t kCalm = 10;       // epochs before the fault `remembers` shows

struct Broken {
  std::string fault = "none";

  static void options(sdk::Options<Broken>& table) {
    table.add("fault", &Broken::fault, "What is wrong: none, or a fault's name.");
  }
  void start(const sdk::Host& /*host*/) { main_thread = std::this_thread::get_id(); }
  static std::vector<const char*> reasons() { return {"too_long"}; }
  [[nodiscard]] bool is(const char* name) const { return fault == name; }
  /// Another one is planned well, whatever the fault: the kit asks for it to see how instances get on.
  [[nodiscard]] static bool is_judged(uint64_t sequences, int64_t rows_per_batch) {
    return sequences != 200 || rows_per_batch != 8;
  }

  sdk::EpochRows plan_epoch(const sdk::EpochRequest& request) {
    sdk::EpochRows rows = planned(request);
    judged = is_judged(request.lengths.size(), request.rows_per_batch);
    ++epochs;
    if (judged && !request.has_ids && rows.row_count() > 1) break_it(request, rows);
    return rows;
  }

  [[nodiscard]] sdk::PackingReport packing_report(const sdk::PackedEpoch& epoch) const {
    sdk::PackingReport made;
    made.budget = kRoom;
    uint64_t full = 0;
    epoch.for_each_row([&](std::span<const int64_t> ids, std::span<const int64_t> tokens) {
      full += ids.empty() ? 0 : 1;
      for (const int64_t one : tokens) made.used += static_cast<uint64_t>(one);
    });
    made.least_rows = (made.used + kRoom - 1) / kRoom;
    if (is("unit-unknown")) made.unit = 9;
    if (is("budget-small")) made.budget = kRoom - 1;
    if (is("used-more") && made.used % kRoom != 0) ++made.used;
    if (is("least-more")) made.least_rows = full + 1;
    return made;
  }

  // Rows one after the other.
  void open_rows(const sdk::EpochRequest& request) {
    if (position > 0 && request.epoch != epoch_of_position && !is("state-of-any")) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "the loaded state is of another epoch");
    }
    sdk::EpochRows rows = planned(request);
    if (!rows.dropped_ids.empty()) throw sdk::Failure(PLIANT_UNIMPLEMENTED, "dropped sequences need the whole epoch");
    next_row = std::exchange(position, 0);
    epoch_of_position = request.epoch;
    streamed = std::move(rows);
  }
  const std::vector<sdk::Entry>* peek_row() {
    uint64_t row = next_row;
    const uint64_t all = streamed.row_count();
    if (is("row-again") && row == all && all > 0) row = all - 1;
    if (row >= all) return nullptr;
    entries.clear();
    for (uint64_t i = streamed.offsets[row]; i < streamed.offsets[row + 1]; ++i) {
      entries.push_back({streamed.ids[i], streamed.pieces[i]});
    }
    return &entries;
  }
  void take_row() { ++next_row; }
  void save(const sdk::Writer& out) const {
    const uint64_t row = streamed.row_count() > 0 ? next_row : position;
    out.value(is("position-early") && row > 0 ? row - 1 : row);
    out.value(epoch_of_position);
  }
  void load(const sdk::Reader& in) {
    const auto row = in.value<uint64_t>();
    const auto epoch = in.value<int64_t>();
    in.expect_end();
    position = row;
    epoch_of_position = epoch;
    streamed = sdk::EpochRows();
  }
  const void* extension(const char* id) const;

 private:
  [[nodiscard]] sdk::EpochRows planned(const sdk::EpochRequest& request) const {
    sdk::EpochRows rows;
    for (const int32_t length : request.lengths) {
      if (length > kRefused) {
        throw sdk::Failure(PLIANT_INVALID_ARGUMENT, is("without-words") ? "" : "a sequence has too many tokens");
      }
    }
    const auto use = [&](int64_t id) {
      const int64_t length = request.lengths[static_cast<size_t>(id)];
      if (length > kDropped) return rows.drop(id, 0);
      ++rows.sequence_count;
      for (int64_t first = 0; first < length; first += kRoom) {
        rows.ids.push_back(id);
        rows.pieces.push_back({first, std::min(kRoom, length - first)});
        rows.end_row();
      }
    };
    if (request.has_ids && !is("chosen-ignored")) {
      for (const int64_t id : request.ids) use(id);
    } else {
      for (size_t id = 0; id < request.lengths.size(); ++id) use(static_cast<int64_t>(id));
    }
    const auto batch = static_cast<uint64_t>(request.rows_per_batch);
    while (rows.row_count() % batch != 0) rows.end_row();
    return rows;
  }

  void break_it(const sdk::EpochRequest& request, sdk::EpochRows& rows) {
    const auto whole = [&](size_t i) {
      return rows.pieces[i].count == request.lengths[static_cast<size_t>(rows.ids[i])];
    };
    if (is("id-unknown")) rows.ids[0] = static_cast<int64_t>(request.lengths.size());
    const bool in_pieces = rows.ids.size() != rows.sequence_count;  // else nobody asks for them
    if (is("piece-outside") && in_pieces) rows.pieces.back().count += 100;
    if (is("twice") && rows.ids.size() > 1 && whole(0) && whole(1)) {
      rows.ids[1] = rows.ids[0];
      rows.pieces[1] = rows.pieces[0];
    }
    if (is("piece-gap") && in_pieces && rows.pieces[0].count > 1) rows.pieces[0] = {1, rows.pieces[0].count - 1};
    const bool has_padding = rows.offsets[rows.row_count() - 1] == rows.offsets.back();
    if (is("padding-early") && has_padding) {
      rows.offsets.insert(rows.offsets.begin(), 0);
      rows.offsets.pop_back();
    }
    if (is("reason-nameless")) std::fill(rows.dropped_reasons.begin(), rows.dropped_reasons.end(), 5);
    const bool turns =
        (is("remembers") && epochs > kCalm) || (is("of-a-thread") && std::this_thread::get_id() != main_thread);
    if (turns && !has_padding) {  // rows of one entry each
      std::reverse(rows.ids.begin(), rows.ids.end());
      std::reverse(rows.pieces.begin(), rows.pieces.end());
    }
  }

 public:
  bool judged = false;  ///< the current epoch

 private:
  std::thread::id main_thread;
  uint64_t epochs = 0;
  uint64_t position = 0;  ///< row to go on with that was loaded
  int64_t epoch_of_position = 0;
  sdk::EpochRows streamed;
  uint64_t next_row = 0;
  std::vector<sdk::Entry> entries;
};

using Adapter = sdk::detail::SamplerAdapter<Broken>;

Broken& broken(void* self) {
  return static_cast<Adapter::Instance*>(self)->plugin;
}

const pliant_batch_sampler& sdk_slots() {
  return *static_cast<const pliant_batch_sampler*>(Adapter::vtable());
}

// What the SDK's slots keep an author from.

int32_t begin_epoch(void* self, const pliant_epoch_request* request, pliant_epoch* epoch, pliant_error* error) {
  if (broken(self).is("epoch-kept")) {
    const auto* const end = request->lengths + request->sequence_count;
    if (std::any_of(request->lengths, end, [](int32_t length) { return length > kRefused; })) {
      return sdk::detail::set_error(error, PLIANT_INVALID_ARGUMENT, "a sequence has too many tokens");
    }
  }
  const pliant_epoch before = *epoch;
  const int32_t status = sdk_slots().begin_epoch(self, request, epoch, error);
  if (status != PLIANT_OK || !broken(self).judged) return status;
  if (broken(self).is("sequence-announced")) ++epoch->sequence_count;
  if (broken(self).is("row-announced")) ++epoch->entry_count;
  if (broken(self).is("field-forgotten")) epoch->truncated_count = before.truncated_count;
  return status;
}

int32_t rows(void* self, uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids, uint64_t capacity,
             pliant_error* error) {
  const Broken& one = broken(self);
  const bool is_wide = one.is("room-ignored") && one.judged && ids != nullptr;
  const int32_t status = sdk_slots().rows(self, first, count, offsets, ids, is_wide ? capacity + 1 : capacity, error);
  if (!one.judged) return status;
  if (status == PLIANT_OUT_OF_RANGE && one.is("range-ignored") && first > 0) {
    std::fill(offsets, offsets + count + 1, 0);
    error->message[0] = '\0';
    return PLIANT_OK;
  }
  if (status != PLIANT_OK) return status;
  if (one.is("offset-late")) ++offsets[0];
  if (one.is("portion-turned") && first > 0 && ids != nullptr) std::reverse(ids, ids + offsets[count]);
  return status;
}

int32_t dropped(void* self, uint64_t first, uint64_t count, int64_t* ids, int32_t* reasons, pliant_error* error) {
  const bool restarts = broken(self).is("drops-restart");
  return sdk_slots().dropped(self, restarts ? 0 : first, count, ids, reasons, error);
}

const char* drop_reason(void* self, int32_t reason) {
  const char* const word = sdk_slots().drop_reason(self, reason);
  if (broken(self).is("reasons-endless") && word == nullptr) return "other";
  return word != nullptr && broken(self).is("reason-spaced") ? "too long" : word;
}

int32_t next(void* self, uint64_t max_rows, uint64_t capacity, uint64_t* row_count, uint64_t* offsets, int64_t* ids,
             int64_t* first_tokens, int64_t* token_counts, pliant_error* error) {
  const int32_t status = sdk::row_stream_table<Broken>()->next(self, max_rows, capacity, row_count, offsets, ids,
                                                               first_tokens, token_counts, error);
  if (status == PLIANT_OUT_OF_RANGE && broken(self).is("row-skipped")) broken(self).take_row();
  return status;
}

int32_t report(void* self, pliant_packing_report* out, pliant_error* error) {
  const int32_t status = sdk::packing_table<Broken>()->report(self, out, error);
  if (status != PLIANT_FAILED_PRECONDITION || !broken(self).is("report-early")) return status;
  error->message[0] = '\0';
  return PLIANT_OK;
}

const void* Broken::extension(const char* id) const {
  static const pliant_row_stream kStream{sizeof(pliant_row_stream), 0, sdk::row_stream_table<Broken>()->open, &next};
  static const pliant_packing kPacking{sizeof(pliant_packing), 0, &report};
  if (std::strcmp(id, PLIANT_ROW_STREAM) == 0) return &kStream;
  return std::strcmp(id, PLIANT_PACKING) == 0 ? static_cast<const void*>(&kPacking) : nullptr;
}

}  // namespace

extern "C" PLIANT_PLUGIN_EXPORT const pliant_plugin* pliant_plugin_entry_v1(void) {
  static const pliant_batch_sampler kTable{
      sizeof(pliant_batch_sampler), 0, &begin_epoch, &rows, &dropped, &drop_reason, sdk_slots().pieces};
  return sdk::detail::record<Broken, Adapter::Instance>(PLIANT_KIND_BATCH_SAMPLER, &kTable, "broken", "0.0.1",
                                                        "Broken on purpose, to test the kit");
}
