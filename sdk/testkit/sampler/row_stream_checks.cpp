// Rows one after the other, and going on in the middle of an epoch.
#include "testkit/sampler/checks.hpp"
#include "testkit/sampler/sampler.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kStreamsLimitS = 60;

/// A sampler whose rows come one after the other.
class RowsInTurn {
 public:
  RowsInTurn(Sampler& sampler, const pliant_row_stream& table) : sampler_(sampler), table_(table) {}

  [[nodiscard]] Reply open(const EpochAsked& asked) {
    const pliant_epoch_request request = request_of(asked);
    return sampler_.ask([&](pliant_error* error) { return table_.open(sampler_.self(), &request, error); });
  }
  [[nodiscard]] Reply next(uint64_t most, uint64_t capacity, Rows& rows) {
    Row<uint64_t> offsets(most + 1, UINT64_MAX);
    Row<int64_t> ids(capacity, -1);
    Row<int64_t> firsts(capacity, -1);
    Row<int64_t> counts(capacity, -1);
    uint64_t got = UINT64_MAX;
    const Reply answer = sampler_.ask([&](pliant_error* error) {
      return table_.next(sampler_.self(), most, capacity, &got, offsets.data(), ids.data(), firsts.data(),
                         counts.data(), error);
    });
    expect(!offsets.is_spilled() && !ids.is_spilled() && !firsts.is_spilled() && !counts.is_spilled(),
           "next wrote past the given arrays");
    rows = Rows();
    if (!answer.ok()) return answer;
    expect(got <= most, "next gave " + std::to_string(got) + " rows; " + std::to_string(most) + " were requested");
    rows.offsets = offsets.taken();
    rows.offsets.resize(got + 1);
    const std::string fault = sdk::offsets_fault(rows.offsets, 0, capacity);
    expect(fault.empty(), "of next, " + fault);
    const uint64_t entries = rows.offsets.back();
    for (const auto& [from, to] : {std::pair(&ids, &rows.ids), {&firsts, &rows.firsts}, {&counts, &rows.counts}}) {
      *to = from->taken();
      to->resize(entries);
    }
    return answer;
  }
  /// Up to `most` rows, in portions that are drawn; fails the check where a call does.
  [[nodiscard]] Rows read(uint64_t most, uint64_t capacity, Draws& draws) {
    Rows all;
    while (all.size() < most) {
      Rows rows;
      const Reply answer = next(std::min(most - all.size(), 1 + draws.below(9)), capacity, rows);
      expect(answer.ok(), "next returned " + answer.text());
      if (rows.size() == 0) break;
      all.append(rows);
    }
    return all;
  }

 private:
  Sampler& sampler_;
  pliant_row_stream table_;
};

/// Does `look(asked, epoch, stream, draws, index)` for epochs that can be streamed, with a second sampler's stream.
template <class Look>
void for_each_stream(const Subject& subject, const Look& look) {
  bool has_streamed = false;
  for_each_sound_epoch(subject, [&](Sampler& sampler, const EpochAsked& asked, const Epoch& epoch, uint64_t index) {
    if (!sampler.extension<pliant_row_stream>(PLIANT_ROW_STREAM)) skip("it has no " PLIANT_ROW_STREAM);
    Sampler streaming(sampler.plugin(), subject, index);
    const auto table = streaming.extension<pliant_row_stream>(PLIANT_ROW_STREAM);
    expect(streaming.is_made() && table.has_value(), "a second instance cannot stream");
    RowsInTurn stream(streaming, *table);
    const Reply opened = stream.open(asked);
    if (opened.status == PLIANT_UNIMPLEMENTED) return;
    expect(opened.ok(), "of " + asked.text() + ", which begin_epoch plans, open returned " + opened.text());
    has_streamed = true;
    Draws draws(subject.seed, (index << 20U) + 10);
    look(asked, epoch, streaming, stream, draws, index);
  });
  if (!has_streamed) warn("it streams no epoch under any drawn set of options");
}

void same_stream(const Subject& subject) {
  for_each_stream(
      subject, [](const EpochAsked& asked, const Epoch& epoch, Sampler&, RowsInTurn& stream, Draws& draws, uint64_t) {
        const uint64_t entries = epoch.rows.ids.size();
        const Rows rows = stream.read(UINT64_MAX, entries, draws);
        expect(rows == epoch.rows, "of " + asked.text() + ": the streamed rows are not the planned rows");
        Rows more;
        expect(stream.next(3, entries, more).ok() && more.size() == 0, "there are rows after the last one");
      });
}

void resumed_stream(const Subject& subject) {
  for_each_stream(subject, [&](const EpochAsked& asked, const Epoch& epoch, Sampler& sampler, RowsInTurn& stream,
                               Draws& draws, uint64_t index) {
    const uint64_t entries = epoch.rows.ids.size();
    const uint64_t before = draws.below(epoch.rows.size() + 1);
    static_cast<void>(stream.read(before, entries, draws));
    expect(sampler.has_state(), "it streams but has no state: save and load are NULL");
    const std::string state = sampler.saved();
    Sampler other(sampler.plugin(), subject, index);
    other.load(state);
    RowsInTurn goes_on(other, *other.extension<pliant_row_stream>(PLIANT_ROW_STREAM));
    const std::string where = "of " + asked.text() + ", after " + std::to_string(before) + " of " +
                              std::to_string(epoch.rows.size()) + " rows: ";
    if (before > 0 && before < epoch.rows.size()) {
      EpochAsked another = asked;
      another.epoch += 1;
      const Reply refused = goes_on.open(another);
      expect(refused.status == PLIANT_FAILED_PRECONDITION,
             where + "with the loaded state open of another epoch returned " +
                 (refused.ok() ? std::string("PLIANT_OK") : refused.text()) + ", not PLIANT_FAILED_PRECONDITION");
    }
    const Reply opened = goes_on.open(asked);
    expect(opened.ok(), where + "with the loaded state open returned " + opened.text());
    const Rows rest = goes_on.read(UINT64_MAX, entries, draws);
    expect(rest == epoch.rows.part(before, epoch.rows.size() - before),
           where + "with the loaded state the stream does not continue with the next row");
  });
}

void room_for_stream(const Subject& subject) {
  for_each_stream(
      subject, [](const EpochAsked& asked, const Epoch& epoch, Sampler&, RowsInTurn& stream, Draws&, uint64_t) {
        for (uint64_t row = 0; row < epoch.rows.size(); ++row) {
          const Rows wanted = epoch.rows.part(row, 1);
          Rows got;
          if (wanted.ids.empty()) return;  // only rows that fill up the batch are left
          const Reply answer = stream.next(1, wanted.ids.size() - 1, got);
          expect(answer.status == PLIANT_OUT_OF_RANGE,
                 "of " + asked.text() + ": next with arrays too short for the row returned " +
                     (answer.ok() ? std::string("PLIANT_OK") : answer.text()) + ", not PLIANT_OUT_OF_RANGE");
          expect(stream.next(1, wanted.ids.size(), got).ok() && got == wanted,
                 "of " + asked.text() + ": a row that was too large for the arrays is not the next row afterwards");
        }
      });
}

}  // namespace

std::vector<Check> row_stream_checks() {
  return {
      {"stream.same", "streamed rows are the planned rows", same_stream, kStreamsLimitS},
      {"stream.resumed", "a stream with loaded state continues with the next row, in the same epoch only",
       resumed_stream, kStreamsLimitS},
      {"stream.room", "a row larger than the arrays is refused as PLIANT_OUT_OF_RANGE and stays the next row",
       room_for_stream, kStreamsLimitS},
  };
}

}  // namespace pliant::testkit
