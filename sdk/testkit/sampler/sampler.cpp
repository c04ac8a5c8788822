// Asks a sampler for epochs and reads them.
#include "testkit/sampler/sampler.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pliant::testkit {

uint64_t EpochAsked::tokens() const {
  if (!ids) return std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
  uint64_t sum = 0;
  for (const int64_t id : *ids) sum += static_cast<uint64_t>(lengths[static_cast<size_t>(id)]);
  return sum;
}

std::string EpochAsked::text() const {
  return std::to_string(sequences()) + (ids ? " chosen" : "") + " sequences in batches of " +
         std::to_string(rows_per_batch) + ", epoch " + std::to_string(epoch) + " of seed " + std::to_string(seed);
}

Rows Rows::part(uint64_t first, uint64_t count) const {
  Rows made;
  const auto begin = static_cast<std::ptrdiff_t>(offsets[first]);
  const auto end = static_cast<std::ptrdiff_t>(offsets[first + count]);
  for (uint64_t i = 1; i <= count; ++i) made.offsets.push_back(offsets[first + i] - offsets[first]);
  made.ids.assign(ids.begin() + begin, ids.begin() + end);
  made.firsts.assign(firsts.begin() + begin, firsts.begin() + end);
  made.counts.assign(counts.begin() + begin, counts.begin() + end);
  return made;
}

void Rows::append(const Rows& more) {
  const uint64_t base = offsets.back();
  for (uint64_t i = 1; i < more.offsets.size(); ++i) offsets.push_back(base + more.offsets[i]);
  ids.insert(ids.end(), more.ids.begin(), more.ids.end());
  firsts.insert(firsts.end(), more.firsts.begin(), more.firsts.end());
  counts.insert(counts.end(), more.counts.begin(), more.counts.end());
}

pliant_epoch_request request_of(const EpochAsked& asked) {
  pliant_epoch_request made{};
  made.struct_size = sizeof(made);
  made.seed = asked.seed;
  made.epoch = asked.epoch;
  made.rows_per_batch = asked.rows_per_batch;
  made.sequence_count = asked.lengths.size();
  made.lengths = asked.lengths.data();
  made.loss_tokens = asked.loss_tokens.empty() ? nullptr : asked.loss_tokens.data();
  if (asked.row_offsets.empty()) return made;
  made.given_rows = asked.row_offsets.size() - 1;
  made.row_offsets = asked.row_offsets.data();
  made.row_ids = asked.row_ids.data();
  return made;
}

Reply Sampler::begin(const EpochAsked& asked, Room<pliant_epoch>& made) {
  Room<pliant_epoch_request> request;
  request.given = request_of(asked);
  std::vector<int64_t> ids = asked.ids.value_or(std::vector<int64_t>());
  ids.push_back(-1);
  if (asked.ids) {
    request.given.ids = ids.data();
    request.given.id_count = ids.size() - 1;
  }
  Reply answer =
      ask([&](pliant_error* error) { return table().begin_epoch(self(), &request.given, &made.given, error); });
  // What a sampler that kept the pointer would read now are no ids.
  std::fill(ids.begin(), ids.end(), -1);
  return answer;
}

Reply Sampler::offsets(uint64_t first, uint64_t count, Rows& rows) {
  rows.offsets.assign(count + 1, UINT64_MAX);
  return ask(
      [&](pliant_error* error) { return table().rows(self(), first, count, rows.offsets.data(), nullptr, 0, error); });
}

Reply Sampler::rows(uint64_t first, uint64_t count, uint64_t capacity, Rows& rows, std::string& spilled) {
  Row<uint64_t> offsets(count + 1, UINT64_MAX);
  Row<int64_t> ids(capacity, -1);
  Reply answer = ask([&](pliant_error* error) {
    return table().rows(self(), first, count, offsets.data(), ids.data(), capacity, error);
  });
  if (offsets.is_spilled() || ids.is_spilled()) spilled = "rows wrote past the given arrays";
  rows.offsets = offsets.taken();
  rows.ids = ids.taken();
  return answer;
}

Reply Sampler::pieces(uint64_t first, uint64_t count, uint64_t capacity, Rows& rows, std::string& spilled) {
  Row<int64_t> firsts(capacity, -1);
  Row<int64_t> counts(capacity, -1);
  Reply answer = ask([&](pliant_error* error) {
    return table().pieces(self(), first, count, firsts.data(), counts.data(), capacity, error);
  });
  if (firsts.is_spilled() || counts.is_spilled()) spilled = "pieces wrote past the given arrays";
  rows.firsts = firsts.taken();
  rows.counts = counts.taken();
  return answer;
}

void Sampler::read_rows(const EpochAsked& asked, Epoch& epoch) {
  const auto broken = [&epoch](std::string fault) {
    epoch.broken = Part::kForm;
    epoch.fault = std::move(fault);
  };
  const auto must = [&](const char* slot, const Reply& answer) {
    if (!answer.fault.empty()) epoch.refusal = answer.fault;
    if (!answer.ok()) broken(std::string(slot) + " returned " + answer.text());
    return answer.ok();
  };
  Rows& rows = epoch.rows;
  if (epoch.counts.rows == 0) return;
  if (!must("rows", offsets(0, epoch.counts.rows, rows))) return;
  std::string fault = sdk::offsets_fault(rows.offsets, 0, epoch.counts.entries);
  if (!fault.empty()) return broken(fault);
  const std::vector<uint64_t> alone = rows.offsets;
  const uint64_t entries = alone.back();
  if (!must("rows", this->rows(0, epoch.counts.rows, entries, rows, epoch.spilled))) return;
  if (rows.offsets != alone) return broken("the offsets of the same rows differ between calls");
  const bool in_pieces = epoch.counts.in_pieces();
  if (in_pieces && !must("pieces", pieces(0, epoch.counts.rows, entries, rows, epoch.spilled))) return;
  fault = sdk::entries_fault(rows.ids, rows.firsts, rows.counts, asked.lengths);
  if (!fault.empty()) return broken(fault);
  if (in_pieces) return;
  rows.firsts.assign(entries, 0);
  for (const int64_t id : rows.ids) rows.counts.push_back(asked.lengths[static_cast<size_t>(id)]);
}

void Sampler::judge(const EpochAsked& asked, Epoch& epoch) {
  sdk::EpochRules rules(asked.lengths, asked.rows_per_batch, epoch.counts);
  if (asked.ids) rules.ask_only(*asked.ids);
  const Rows& rows = epoch.rows;
  bool holds = true;
  for (uint64_t row = 0; holds && row < rows.size(); ++row) {
    holds = rules.row(rows.offsets[row + 1] - rows.offsets[row]);
    for (uint64_t i = rows.offsets[row]; holds && i < rows.offsets[row + 1]; ++i) {
      holds = rules.entry(rows.ids[i], rows.firsts[i], rows.counts[i]);
    }
  }
  holds = holds && rules.end();
  for (size_t i = 0; holds && i < epoch.dropped.size(); ++i) holds = rules.dropped(epoch.dropped[i]);
  if (holds) return;
  constexpr std::array<Part, 4> kParts{Part::kCounts, Part::kPadding, Part::kPieces, Part::kOnce};
  epoch.broken = kParts[static_cast<size_t>(rules.rule())];
  epoch.fault = rules.fault();
}

void Sampler::read_dropped(Epoch& epoch) {
  const uint64_t count = epoch.counts.dropped;
  Row<int64_t> ids(count, -1);
  Row<int32_t> reasons(count, -1);
  const Reply answer =
      ask([&](pliant_error* error) { return table().dropped(self(), 0, count, ids.data(), reasons.data(), error); });
  if (ids.is_spilled() || reasons.is_spilled()) epoch.spilled = "dropped wrote past the given arrays";
  if (!answer.ok()) {
    epoch.broken = Part::kDrops;
    epoch.fault = "dropped returned " + answer.text();
  }
  epoch.dropped = ids.taken();
  epoch.reasons = reasons.taken();
  for (size_t i = 0; i < count && epoch.broken == Part::kNone; ++i) {
    const char* const word = epoch.reasons[i] < 0 ? nullptr : table().drop_reason(self(), epoch.reasons[i]);
    epoch.fault = sdk::drop_reason_fault(epoch.dropped[i], epoch.reasons[i], word);
    if (!epoch.fault.empty()) epoch.broken = Part::kDrops;
  }
}

Epoch Sampler::epoch(const EpochAsked& asked) {
  Epoch made;
  Room<pliant_epoch> answer;
  made.told = begin(asked, answer);
  made.refusal = made.told.fault;
  made.spilled = answer.spilled("begin_epoch");
  if (!made.told.ok()) return made;
  made.counts = sdk::counts_of(answer.given);
  made.fault = sdk::counts_fault(made.counts, asked.sequences(), asked.rows_per_batch, [&] { return asked.tokens(); });
  if (!made.fault.empty()) {
    made.broken = Part::kCounts;
    return made;
  }
  read_rows(asked, made);
  if (made.broken == Part::kNone && made.counts.dropped > 0) read_dropped(made);
  if (made.broken == Part::kNone) judge(asked, made);
  return made;
}

namespace {

/// Rows of all sequences in a drawn order; now and then of most of them.
void draw_rows(EpochAsked& asked, Draws draws) {
  std::vector<int64_t> ids(asked.lengths.size());
  std::iota(ids.begin(), ids.end(), int64_t{0});
  for (size_t i = ids.size(); i > 1; --i) std::swap(ids[i - 1], ids[draws.below(i)]);
  if (draws.one_in(3)) ids.resize(1 + draws.below(ids.size()));
  asked.row_offsets.assign(1, 0);
  while (asked.row_offsets.back() < ids.size()) {
    asked.row_offsets.push_back(std::min<uint64_t>(ids.size(), asked.row_offsets.back() + 1 + draws.below(5)));
  }
  asked.row_ids = std::move(ids);
}

}  // namespace

EpochAsked drawn_epoch(uint64_t seed, uint64_t index) {
  Draws draws(seed, (index << 20U) + 7);
  EpochAsked made;
  made.seed = draws.below(1000);
  made.epoch = draws.between(0, 3);
  made.rows_per_batch = draws.between(1, 9);
  const uint64_t count = index == 0 ? 1 : draws.one_in(4) ? 1 + draws.below(6) : 1 + draws.below(250);
  const int64_t longest = draws.one_in(4) ? 200 : draws.one_in(2) ? 60 : 9;
  for (uint64_t i = 0; i < count; ++i) made.lengths.push_back(static_cast<int32_t>(draws.between(1, longest)));
  if (draws.one_in(3)) {
    for (const int32_t length : made.lengths) {
      made.loss_tokens.push_back(static_cast<int32_t>(draws.between(0, length)));
    }
  }
  draw_rows(made, Draws(seed, (index << 20U) + 11));
  return made;
}

}  // namespace pliant::testkit
