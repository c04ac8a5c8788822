// What an epoch may depend on, and how it is read.
#include <utility>

#include "testkit/sampler/checks.hpp"
#include "testkit/sampler/sampler.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kEpochsLimitS = 60;

std::string epochs_differ(const Epoch& one, const Epoch& other) {
  if (one.told.status != other.told.status) return one.told.text() + "; then " + other.told.text();
  if (one.rows.offsets != other.rows.offsets) return "other rows";
  if (one.rows != other.rows) return "other sequences in the rows, or another order";
  return one.dropped == other.dropped && one.reasons == other.reasons ? "" : "other drops";
}

/// In another instance, from another thread, after other epochs.
void same_epochs(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < kSamplers; ++index) {
    Sampler sampler(plugin, subject, index);
    Sampler other(plugin, subject, index);
    if (!sampler.is_made() || !other.is_made()) continue;
    std::vector<std::pair<EpochAsked, Epoch>> first;
    for (uint64_t number = 0; number < kEpochs; ++number) {
      EpochAsked asked = drawn_epoch(subject.seed, index * kEpochs + number);
      Epoch epoch = sampler.epoch(asked);
      first.emplace_back(std::move(asked), std::move(epoch));
    }
    for (auto at = first.rbegin(); at != first.rend(); ++at) {
      const auto& [asked, epoch] = *at;
      const auto held = [&, &what = asked, &before = epoch](const Epoch& again, const char* when) {
        const std::string differs = epochs_differ(before, again);
        expect(differs.empty(), what.text() + " get another plan " + when + ": " + differs);
      };
      held(sampler.epoch(asked), "after other epochs");
      held(other.epoch(asked), "by another instance");
      on_another_thread([&, &what = asked] { held(sampler.epoch(what), "from another thread"); });
    }
  }
}

void row_portions(const Subject& subject) {
  for_each_sound_epoch(subject, [&](Sampler& sampler, const EpochAsked& asked, const Epoch& epoch, uint64_t) {
    if (epoch.rows.size() == 0) return;
    Draws draws(subject.seed, (epoch.rows.size() << 20U) + 8);
    for (int look = 0; look < 6; ++look) {
      const uint64_t first = draws.below(epoch.rows.size());
      const uint64_t count = 1 + draws.below(epoch.rows.size() - first);
      const Rows wanted = epoch.rows.part(first, count);
      Rows got;
      std::string spilled;
      const std::string where =
          std::to_string(count) + " rows from row " + std::to_string(first) + " on of " + asked.text() + ": ";
      const Reply alone = sampler.offsets(first, count, got);
      expect(alone.ok() && got.offsets == wanted.offsets, where + "the offsets alone differ " + alone.message);
      const Reply whole = sampler.rows(first, count, wanted.ids.size(), got, spilled);
      expect(whole.ok() && got.offsets == wanted.offsets && got.ids == wanted.ids,
             where + "they differ from those of the whole epoch " + whole.message);
      if (!epoch.counts.in_pieces()) continue;
      const Reply pieces = sampler.pieces(first, count, wanted.ids.size(), got, spilled);
      expect(pieces.ok() && got.firsts == wanted.firsts && got.counts == wanted.counts,
             where + "their pieces differ from those of the whole epoch " + pieces.message);
    }
  });
}

void expect_out_of_range(const Reply& answer, const std::string& what) {
  expect(answer.status == PLIANT_OUT_OF_RANGE,
         what + " returned " + (answer.ok() ? std::string("PLIANT_OK") : answer.text()) + ", not PLIANT_OUT_OF_RANGE");
}

void room_for_rows(const Subject& subject) {
  for_each_epoch(subject, [](Sampler& sampler, const EpochAsked& asked, const Epoch& epoch, uint64_t) {
    expect(epoch.spilled.empty(), epoch.spilled);
    if (!epoch.is_sound()) return;
    const uint64_t all = epoch.rows.size();
    const uint64_t entries = epoch.rows.ids.size();
    Rows got;
    std::string spilled;
    for (const auto& [first, count] : {std::pair<uint64_t, uint64_t>{all, 1}, {0, all + 1}, {UINT64_MAX, 1}}) {
      expect_out_of_range(
          sampler.rows(first, count, entries + 8, got, spilled),
          std::to_string(count) + " rows from row " + std::to_string(first) + " on of " + std::to_string(all));
      expect(spilled.empty(), spilled);
    }
    if (entries == 0) return;
    expect_out_of_range(sampler.rows(0, all, entries - 1, got, spilled), "rows with arrays one entry too short");
    expect(spilled.empty(), spilled);
    if (epoch.counts.in_pieces()) {
      expect_out_of_range(sampler.pieces(0, all, entries - 1, got, spilled), "pieces with arrays one entry too short");
    }
    expect(spilled.empty(), spilled);
    const Reply again = sampler.rows(0, all, entries, got, spilled);
    expect(again.ok() && got.ids == epoch.rows.ids,
           "after a refusal the rows of " + asked.text() + " differ " + again.message);
  });
}

/// Some sequences in an order of their own; the list is gone after the call.
void chosen_sequences(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  for (uint64_t index = 0; index < kSamplers; ++index) {
    Sampler sampler(plugin, subject, index);
    for (uint64_t number = 0; sampler.is_made() && number < kEpochs; ++number) {
      EpochAsked asked = drawn_epoch(subject.seed, index * kEpochs + number);
      if (!sampler.epoch(asked).is_sound()) continue;
      Draws draws(subject.seed, ((index * kEpochs + number) << 20U) + 9);
      std::vector<int64_t> ids;
      for (size_t id = 0; id < asked.lengths.size(); ++id) {
        if (id == 0 || !draws.one_in(3)) ids.insert(ids.begin() + draws.between(0, std::ssize(ids)), int64_t(id));
      }
      asked.ids = std::move(ids);
      const Epoch epoch = sampler.epoch(asked);
      if (!epoch.told.ok()) continue;
      expect(epoch.broken == Part::kNone, "of " + asked.text() + ": " + epoch.fault);
    }
  }
}

void epoch_fields(const Subject& subject) {
  for_each_request(subject, [](Sampler& sampler, const EpochAsked& asked, uint64_t) {
    Room<pliant_epoch> zeros;
    Room<pliant_epoch> again;
    Room<pliant_epoch> garbage(kGuard);
    for (Room<pliant_epoch>* const room : {&zeros, &again, &garbage}) {
      if (!sampler.begin(asked, *room).ok()) return;
    }
    const auto numbers = [](const pliant_epoch& one) {
      return std::array<uint64_t, 5>{one.row_count, one.sequence_count, one.dropped_count, one.entry_count,
                                     one.truncated_count};
    };
    if (numbers(zeros.given) != numbers(again.given)) return;  // another check's
    expect(numbers(zeros.given) == numbers(garbage.given),
           "begin_epoch does not write every field: they differ where the memory was not zero before");
  });
}

/// One sequence is longer than most budgets.
void failed_epoch(const Subject& subject) {
  const OpenedPlugin plugin(subject.file);
  bool has_refused = false;
  for (uint64_t index = 0; index < kSamplers; ++index) {
    Sampler sampler(plugin, subject, index);
    for (uint64_t number = 0; sampler.is_made() && number < kEpochs; ++number) {
      const EpochAsked asked = drawn_epoch(subject.seed, index * kEpochs + number);
      const Epoch before = sampler.epoch(asked);
      if (!before.is_sound() || before.rows.size() == 0) continue;
      EpochAsked wrong = asked;
      wrong.lengths[wrong.lengths.size() / 2] = 100000;
      Room<pliant_epoch> made;
      if (sampler.begin(wrong, made).ok()) continue;
      has_refused = true;
      Rows got;
      expect(!sampler.offsets(0, 1, got).ok(), "there are rows after a failed begin_epoch");
      const std::string differs = epochs_differ(before, sampler.epoch(asked));
      expect(differs.empty(), "after a failed begin_epoch " + asked.text() + " get another plan: " + differs);
    }
  }
  if (!has_refused) skip("it refused no epoch");
}

void sampler_refusals(const Subject& subject) {
  for_each_request(subject, [](Sampler& sampler, const EpochAsked& asked, uint64_t) {
    const Epoch epoch = sampler.epoch(asked);
    expect(epoch.refusal.empty(), epoch.refusal);
    Rows got;
    std::string spilled;
    for (int i = 0; i < 2; ++i) {  // one of them as an older host
      const Reply past = sampler.rows(epoch.counts.rows, 1, 8, got, spilled);
      expect(past.fault.empty(), past.fault);
    }
    EpochAsked wrong = asked;
    wrong.lengths[0] = 100000;
    for (int i = 0; i < 2; ++i) {
      Room<pliant_epoch> made;
      const Reply told = sampler.begin(wrong, made);
      expect(told.fault.empty(), told.fault);
    }
  });
}

}  // namespace

std::vector<Check> epoch_checks() {
  return {
      {"epoch.same", "the same request gets the same rows: in any instance, from any thread, after any other request",
       same_epochs, kEpochsLimitS},
      {"epoch.portions", "rows are the same when read in portions, in any order", row_portions, kEpochsLimitS},
      {"epoch.chosen", "a request that lists sequences gets rows of these only", chosen_sequences, kEpochsLimitS},
      {"epoch.room",
       "rows past the last one, and arrays that are too short, are out of range; nothing is written past "
       "them",
       room_for_rows, kEpochsLimitS},
      {"epoch.fields", "begin_epoch writes every field", epoch_fields, kEpochsLimitS},
      {"epoch.failed", "after a failed begin_epoch there is no epoch, and the next begin_epoch works", failed_epoch,
       kEpochsLimitS},
      {"epoch.refusals", "a refusal has a message and names no unknown option", sampler_refusals, kEpochsLimitS},
  };
}

}  // namespace pliant::testkit
