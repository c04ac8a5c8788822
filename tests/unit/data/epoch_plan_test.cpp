// The core's checks of a sampler's answers, with samplers that break their contract one way each.
#include "data/epoch_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

using namespace pliant;

namespace {

/// A sampler that answers what it is told to, and counts itself right unless told otherwise.
struct Scripted {
  std::vector<uint64_t> offsets{0, 2, 3};
  std::vector<int64_t> ids{4, 0, 1};
  std::vector<int64_t> dropped{2, 3};
  std::vector<int32_t> reasons{0, 1};
  std::vector<Piece> pieces;  ///< of `ids`
  std::function<void(pliant_epoch&)> announce = [](pliant_epoch&) {};
  int32_t begin_status = PLIANT_OK;
  bool throws = false;
  pliant_epoch_request seen{};

  static Scripted& of(void* self) { return *static_cast<Scripted*>(self); }
  static int32_t begin_epoch(void* self, const pliant_epoch_request* request, pliant_epoch* epoch, pliant_error*) {
    Scripted& s = of(self);
    if (s.throws) throw std::runtime_error("boom");
    s.seen = *request;
    epoch->row_count = s.offsets.size() - 1;
    epoch->sequence_count = s.ids.size();
    epoch->dropped_count = s.dropped.size();
    s.announce(*epoch);
    return s.begin_status;
  }
  static int32_t rows(void* self, uint64_t first, uint64_t count, uint64_t* offsets, int64_t* ids, uint64_t capacity,
                      pliant_error*) {
    Scripted& s = of(self);
    const uint64_t begin = first == 0 ? 0 : s.offsets[first];
    for (size_t i = 0; i <= std::min<size_t>(count, s.offsets.size() - 1 - first); ++i) {
      offsets[i] = s.offsets[first + i] - begin;
    }
    std::copy_n(s.ids.begin() + static_cast<std::ptrdiff_t>(begin), std::min<size_t>(capacity, s.ids.size() - begin),
                ids);
    return PLIANT_OK;
  }
  static int32_t drops(void* self, uint64_t, uint64_t count, int64_t* ids, int32_t* reasons, pliant_error*) {
    Scripted& s = of(self);
    std::copy_n(s.dropped.begin(), std::min<size_t>(count, s.dropped.size()), ids);
    std::copy_n(s.reasons.begin(), std::min<size_t>(count, s.reasons.size()), reasons);
    return PLIANT_OK;
  }
  static int32_t pieces_of(void* self, uint64_t first, uint64_t, int64_t* firsts, int64_t* counts, uint64_t capacity,
                           pliant_error*) {
    Scripted& s = of(self);
    const uint64_t begin = s.offsets[first];
    for (size_t i = 0; i < std::min<size_t>(capacity, s.pieces.size() - begin); ++i) {
      firsts[i] = s.pieces[begin + i].first;
      counts[i] = s.pieces[begin + i].count;
    }
    return PLIANT_OK;
  }
  static const char* drop_reason(void*, int32_t reason) {
    return reason == 0 ? "too_long" : reason == 1 ? "tail" : nullptr;
  }

  pliant_batch_sampler slots{sizeof(pliant_batch_sampler), 0, &begin_epoch, &rows, &drops, &drop_reason, &pieces_of};

  Result<data::EpochPlan> plan(const Dataset& dataset) {
    sampler.slots = &slots;
    sampler.self = this;
    sampler.refusal = [](int32_t status, const pliant_error&) { return Error(static_cast<Status>(status), "refused"); };
    return data::EpochPlan::make(sampler, {9, 6, 2, dataset});
  }
  static data::Sampler named() {
    data::Sampler sampler;
    sampler.name = "sampler 'scripted'";
    return sampler;
  }
  data::Sampler sampler = named();
};

Dataset five() {
  return {{10, 20, 30, 40, 50}, {9, 19, 29, 39, 49}};
}

/// The error of `sampler`, which must be a broken contract.
std::string broken(Scripted& sampler) {
  auto plan = sampler.plan(five());
  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().status() == Status::kInternal);
  CHECK(plan.error().origin() == Origin::kPlugin);
  CHECK(plan.error().message().rfind("sampler 'scripted' violates its contract in epoch 6: ", 0) == 0);
  return plan.error().message();
}

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

TEST_CASE("a sound answer becomes a plan with sums and drops by reason") {
  Scripted sampler;
  auto plan = sampler.plan(five());
  REQUIRE(plan.has_value());
  CHECK(plan->summary().rows == 2);
  CHECK(plan->summary().batches == 1);
  CHECK(plan->summary().sequences == 3);
  CHECK(plan->summary().tokens == 80);
  CHECK(plan->summary().loss_tokens == 77);
  CHECK(plan->summary().longest_row == 60);
  CHECK(plan->summary().dropped == std::map<std::string, int64_t>{{"tail", 1}, {"too_long", 1}});
  CHECK(plan->facts().dropped == std::map<std::string, std::vector<int64_t>>{{"tail", {3}}, {"too_long", {2}}});
}

TEST_CASE("the sampler is asked for all sequences with seed, epoch and batch") {
  Scripted sampler;
  const Dataset asked = five();
  (void)sampler.plan(asked);
  CHECK(sampler.seen.lengths == asked.lengths.data());
  CHECK(sampler.seen.loss_tokens == asked.loss_tokens.data());
  CHECK(sampler.seen.struct_size == sizeof(pliant_epoch_request));
  CHECK(sampler.seen.seed == 9);
  CHECK(sampler.seen.epoch == 6);
  CHECK(sampler.seen.rows_per_batch == 2);
  CHECK(sampler.seen.sequence_count == 5);
  CHECK(sampler.seen.ids == nullptr);
  (void)sampler.plan({{10, 20, 30, 40, 50}, {}});
  CHECK(sampler.seen.loss_tokens == nullptr);
}

TEST_CASE("a cut batch has its own offsets, sizes and digest") {
  Scripted sampler;
  auto plan = sampler.plan(five());
  const Batch batch = plan->cut(1, 1, 1).value();
  CHECK(batch.offsets == std::vector<uint64_t>{0, 1});
  CHECK(batch.ids == std::vector<int64_t>{1});
  CHECK(batch.size == BatchSize{1, 1, 20, 19});
  CHECK(batch.longest_entry == 20);
  CHECK(batch.digest == sample_digest(6, batch.ids));
  CHECK(batch.index == 1);
  CHECK(batch.epoch == 6);
}

TEST_CASE("rows without sequences fill up the last batch, and are refused elsewhere") {
  Scripted filled;
  filled.offsets = {0, 1, 2, 3, 3};
  auto plan = filled.plan(five());
  REQUIRE(plan.has_value());
  CHECK(plan->summary().rows == 4);
  CHECK(plan->summary().padding_rows == 1);
  CHECK(plan->summary().batches == 2);
  CHECK(plan->summary().mean_batch().rows == 1);
  const Batch last = plan->cut(1, 2, 2).value();
  CHECK(last.row(1).empty());
  CHECK(last.size == BatchSize{2, 1, 20, 19, 1});
  Scripted first;
  first.offsets = {0, 0, 3};
  CHECK(ends_with(broken(first), "row 0 has no sequences but row 1 has some; rows without sequences must come last"));
  Scripted short_batch;
  short_batch.offsets = {0, 3, 3, 3};
  CHECK(ends_with(broken(short_batch), "rows without sequences may only fill up the last batch of 2"));
  Scripted over;
  over.offsets = {0, 2, 3, 3};
  CHECK(
      ends_with(broken(over),
                "the last 1 of 3 rows have no sequences; rows without sequences may only fill up the last batch of 2"));
}

TEST_CASE("offsets that fall, run over or start elsewhere are refused") {
  Scripted falling;
  falling.offsets = {0, 2, 1};
  CHECK(broken(falling).find("row 1 ends at 1 but begins at 2") != std::string::npos);
  Scripted over;
  over.offsets = {0, 2, 9};
  CHECK(broken(over).find("there are 3 sequences") != std::string::npos);
  Scripted late;
  late.offsets = {1, 2, 3};
  CHECK(ends_with(broken(late), "the first offset is 1, not 0"));
  Scripted less;
  less.offsets = {0, 1, 2};
  CHECK(ends_with(broken(less), "the rows hold 2 sequences, 3 were announced"));
}

TEST_CASE("offsets and ids that the sampler did not write are refused") {
  Scripted sampler;
  sampler.slots.rows = [](void*, uint64_t, uint64_t, uint64_t*, int64_t*, uint64_t, pliant_error*) -> int32_t {
    return PLIANT_OK;
  };
  CHECK(broken(sampler).find("the first offset is 18446744073709551615") != std::string::npos);
}

TEST_CASE("ids out of range and ids given twice are refused") {
  Scripted high;
  high.ids = {4, 0, 5};
  CHECK(ends_with(broken(high), "sequence id 5 in a row; ids are 0 to 4"));
  Scripted negative;
  negative.ids = {4, -1, 1};
  CHECK(ends_with(broken(negative), "sequence id -1 in a row; ids are 0 to 4"));
  Scripted twice;
  twice.ids = {4, 0, 4};
  CHECK(ends_with(broken(twice), "sequence 4 is used or dropped twice"));
  Scripted both;
  both.dropped = {2, 0};
  CHECK(ends_with(broken(both), "sequence 0 is used or dropped twice"));
  Scripted dropped;
  dropped.dropped = {2, 7};
  CHECK(ends_with(broken(dropped), "sequence id 7 in the list of dropped sequences; ids are 0 to 4"));
}

TEST_CASE("counts that do not add up to the data set are refused before anything is allocated") {
  Scripted lost;
  lost.announce = [](pliant_epoch& epoch) { epoch.dropped_count = 1; };
  CHECK(ends_with(broken(lost), "3 sequences in rows and 1 dropped; 5 were requested"));
  Scripted endless;
  endless.announce = [](pliant_epoch& epoch) { epoch.sequence_count = ~uint64_t{0}; };
  (void)broken(endless);
  Scripted wrapped;
  wrapped.announce = [](pliant_epoch& epoch) {
    epoch.sequence_count = 6;
    epoch.dropped_count = ~uint64_t{0};
  };
  (void)broken(wrapped);
  Scripted rows;
  rows.announce = [](pliant_epoch& epoch) { epoch.row_count = 5; };
  CHECK(ends_with(broken(rows), "5 rows of 3 sequences: rows without sequences may only fill up the last batch"));
}

TEST_CASE("a drop reason without a name is refused") {
  for (const int32_t reason : {2, -1}) {
    Scripted sampler;
    sampler.reasons = {0, reason};
    CHECK(broken(sampler).find("is dropped for the unknown reason " + std::to_string(reason)) != std::string::npos);
  }
}

TEST_CASE("a sampler that throws, in whichever slot, is named") {
  Scripted throwing;
  throwing.throws = true;
  CHECK(ends_with(broken(throwing), "begin_epoch threw across the border: boom"));
  Scripted late;
  late.slots.drop_reason = [](void*, int32_t) -> const char* { throw 7; };
  CHECK(ends_with(broken(late), "drop_reason threw across the border: an exception other than std::exception"));
}

TEST_CASE("a refusal comes through as it is") {
  Scripted sampler;
  sampler.begin_status = PLIANT_FAILED_PRECONDITION;
  CHECK(sampler.plan(five()).error().status() == Status::kFailedPrecondition);
}

TEST_CASE("an epoch without rows is the user's error and counts the reasons") {
  Scripted sampler;
  sampler.offsets = {0};
  sampler.ids.clear();
  sampler.dropped = {0, 1, 2, 3, 4};
  sampler.reasons = {0, 0, 1, 0, 0};
  auto plan = sampler.plan(five());
  REQUIRE_FALSE(plan.has_value());
  CHECK(plan.error().origin() == Origin::kInput);
  CHECK(plan.error().message() ==
        "sampler 'scripted' leaves nothing to train on in epoch 6: it drops all 5 sequences (tail: 1, too_long: 4)");
}

TEST_CASE("pieces that make up their sequences count each sequence once, where its last piece is") {
  Scripted sampler;
  sampler.offsets = {0, 2, 4};
  sampler.ids = {4, 0, 4, 1};
  sampler.pieces = {{0, 30}, {0, 10}, {30, 20}, {0, 15}};
  sampler.announce = [](pliant_epoch& epoch) {
    epoch.entry_count = 4;
    epoch.sequence_count = 3;
    epoch.truncated_count = 1;
  };
  auto plan = sampler.plan(five());
  REQUIRE(plan.has_value());
  CHECK(plan->summary().sequences == 3);
  CHECK(plan->summary().tokens == 75);
  CHECK(plan->summary().truncated == 1);
  CHECK(plan->summary().tokens_cut == 5);
  CHECK(plan->facts().truncated.ids() == std::vector<int64_t>{1});
  CHECK(plan->summary().longest_row == 40);
  const Batch first = plan->cut(0, 0, 1).value();
  const Batch second = plan->cut(1, 1, 1).value();
  CHECK(first.size == BatchSize{1, 1, 40, 9 + 29});
  CHECK(second.size == BatchSize{1, 2, 35, 20 + 14});
  CHECK(first.pieces == std::vector<Piece>{{0, 30, false}, {0, 10, true}});
  CHECK(first.longest_entry == 30);
  CHECK(second.longest_entry == 20);
  CHECK(first.digest + second.digest == sample_digest(6, std::vector<int64_t>{0, 1, 4}));
  CHECK(first.digest != sample_digest(6, std::vector<int64_t>{0}));
}

TEST_CASE("pieces with a gap, that overlap, leave their sequence or were not announced so are a broken contract") {
  const auto with = [](std::vector<Piece> pieces, uint64_t sequences, uint64_t truncated) {
    Scripted sampler;
    sampler.offsets = {0, 2, 4};
    sampler.ids = {4, 0, 4, 1};
    sampler.pieces = std::move(pieces);
    sampler.announce = [=](pliant_epoch& epoch) {
      epoch.entry_count = 4;
      epoch.sequence_count = sequences;
      epoch.truncated_count = truncated;
    };
    return broken(sampler);
  };
  CHECK(ends_with(with({{0, 30}, {0, 10}, {31, 19}, {0, 20}}, 3, 0),
                  "a piece of sequence 4 begins at token 31, after 30 tokens in pieces"));
  CHECK(ends_with(with({{0, 30}, {0, 10}, {29, 21}, {0, 20}}, 3, 0),
                  "a piece of sequence 4 begins at token 29, after 30 tokens in pieces"));
  CHECK(ends_with(with({{0, 30}, {0, 10}, {30, 21}, {0, 20}}, 3, 0),
                  "a piece of sequence 4 begins at token 30 and has 21 tokens; the sequence has 50"));
  CHECK(ends_with(with({{0, 30}, {0, 10}, {30, 0}, {0, 20}}, 3, 0),
                  "a piece of sequence 4 begins at token 30 and has 0 tokens; the sequence has 50"));
  CHECK(ends_with(with({{0, 30}, {0, 10}, {30, 20}, {0, 19}}, 3, 0),
                  "the rows hold 3 sequences, 1 of them truncated; 3 and 0 were announced"));
  CHECK(ends_with(with({{0, 30}, {0, 10}, {INT64_MAX, 20}, {0, 20}}, 3, 0),
                  "begins at token 9223372036854775807 and has 20 tokens; the sequence has 50"));
  CHECK(ends_with(with({{0, 50}, {0, 10}, {0, 30}, {0, 20}}, 3, 1),
                  "the rows hold 4 sequences, 1 of them truncated; 3 and 1 were announced"));
}
