// Each epoch against the rules of pliant/sdk/sampler_rules.hpp, which hosts use, too.
#include <regex>

#include "testkit/sampler/checks.hpp"
#include "testkit/sampler/sampler.hpp"

namespace pliant::testkit {

namespace {

constexpr int32_t kRowsLimitS = 60;

std::string of_options(uint64_t index) {
  return index == 0 ? ": " : ", under the options drawn as number " + std::to_string(index) + ": ";
}

template <Part kPart>
void rows_held(const Subject& subject) {
  for_each_epoch(subject, [](Sampler&, const EpochAsked& asked, const Epoch& epoch, uint64_t index) {
    if (epoch.broken == kPart) fail("of " + asked.text() + of_options(index) + epoch.fault);
  });
}

void drop_reasons(const Subject& subject) {
  rows_held<Part::kDrops>(subject);
  const OpenedPlugin plugin(subject.file);
  Sampler sampler(plugin, subject, 0);
  const std::regex form("[a-z][a-z0-9_]*");
  constexpr int32_t kMost = 1000;
  int32_t reason = 0;
  for (; reason < kMost; ++reason) {
    const char* const word = sampler.table().drop_reason(sampler.self(), reason);
    if (word == nullptr) break;
    expect(std::regex_match(word, form),
           "reason " + std::to_string(reason) + " is '" + word + "'; a reason is a " + "word of a-z, 0-9 and _");
  }
  expect(reason < kMost, "its list of reasons has no end: NULL follows the last one");
}

/// Dropped sequences in two portions.
void portions_of_dropped(const Subject& subject) {
  for_each_sound_epoch(subject, [](Sampler& sampler, const EpochAsked& asked, const Epoch& epoch, uint64_t) {
    const uint64_t half = epoch.counts.dropped / 2;
    if (half == 0) return;
    const uint64_t rest = epoch.counts.dropped - half;
    std::vector<int64_t> ids(rest, -1);
    std::vector<int32_t> reasons(rest, -1);
    const Reply answer = sampler.ask([&](pliant_error* error) {
      return sampler.table().dropped(sampler.self(), half, rest, ids.data(), reasons.data(), error);
    });
    expect(answer.ok(), "dropped returned " + answer.text());
    expect(std::equal(ids.begin(), ids.end(), epoch.dropped.begin() + static_cast<std::ptrdiff_t>(half)) &&
               std::equal(reasons.begin(), reasons.end(), epoch.reasons.begin() + static_cast<std::ptrdiff_t>(half)),
           "of " + asked.text() + ": other sequences are dropped when read in portions");
  });
}

}  // namespace

std::vector<Check> row_checks() {
  return {
      {"rows.counts", "an epoch has the rows, sequences, entries and drops that begin_epoch announces",
       rows_held<Part::kCounts>, kRowsLimitS},
      {"rows.form", "offsets rise from 0, ids are in the data set, pieces within their sequences",
       rows_held<Part::kForm>, kRowsLimitS},
      {"rows.once", "every sequence is in one row, or dropped", rows_held<Part::kOnce>, kRowsLimitS},
      {"rows.pieces", "the pieces of a sequence begin at its first token and leave no gap", rows_held<Part::kPieces>,
       kRowsLimitS},
      {"rows.padding", "only the last batch is filled up with rows without sequences", rows_held<Part::kPadding>,
       kRowsLimitS},
      {"drops.reasons", "every dropped sequence has a reason with a name in snake_case", drop_reasons, kRowsLimitS},
      {"drops.portions", "dropped sequences are the same when read in portions", portions_of_dropped, kRowsLimitS},
  };
}

}  // namespace pliant::testkit
