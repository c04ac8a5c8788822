// Best fit over open packs against a loop over all of them, for every index, with packs of many sequences.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <deque>

#include "../plugins/sampler/kernel/open_packs.hpp"
#include "packing_oracle.hpp"

using namespace pliant;
using namespace pliant::test;

namespace {

/// Rows of sequence numbers, by looking at every open pack.
Packs streamed_by_loop(const std::vector<int32_t>& sizes, const sampler::OpenPacksRule& rule) {
  struct Open {
    std::vector<int64_t> items;
    int64_t room;
    size_t opened_at;
    size_t touched;
  };
  std::deque<Open> open;  // oldest first
  Packs rows;
  const auto emit = [&](size_t at) {
    rows.push_back(open[at].items);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
  };
  const auto fullest = [&](int64_t size) {
    size_t best = open.size();
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].room < size) continue;
      const auto key = [&](size_t at) { return std::pair(open[at].room, ~open[at].touched); };
      if (best == open.size() || key(i) < key(best)) best = i;
    }
    return best;
  };
  for (size_t i = 0; i < sizes.size(); ++i) {
    size_t at = fullest(sizes[i]);
    if (at == open.size()) {
      if (open.size() == rule.open_packs) emit(fullest(0));
      at = open.size();
      open.push_back({{}, rule.budget, rows.size(), 0});
    }
    open[at].items.push_back(static_cast<int64_t>(i));
    open[at].room -= sizes[i];
    open[at].touched = i + 1;
    if (open[at].room == 0 || open[at].items.size() == rule.most_in_pack) emit(at);
    while (!open.empty() && rows.size() - open.front().opened_at + rule.open_packs > rule.max_wait) emit(0);
  }
  while (!open.empty()) emit(0);
  return rows;
}

template <class Index, class Id>
Packs streamed(const std::vector<int32_t>& sizes, const sampler::OpenPacksRule& rule) {
  sampler::ListedRows<Id> rows;
  rows.restart(5);  // memory of an epoch before
  sampler::pack_streaming<Index>(sizes, rule, rows);
  std::vector<uint64_t> offsets(rows.row_count() + 1);
  std::vector<int64_t> ids(rows.entry_count());
  rows.threads = 2;
  rows.write(0, rows.row_count(), offsets.data(), ids.data());
  Packs packs;
  for (size_t row = 0; row + 1 < offsets.size(); ++row) {
    packs.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(offsets[row]),
                       ids.begin() + static_cast<std::ptrdiff_t>(offsets[row + 1]));
  }
  return packs;
}

}  // namespace

TEST_CASE("streaming takes the fullest pack that has room, and among equals the one that was touched last") {
  for (const int64_t highest : {20, 200, 5000, 60000}) {
    CHECK(rc::check([=] {
      sampler::OpenPacksRule rule;
      rule.budget = *rc::gen::inRange<int64_t>(1, highest);
      rule.most_in_pack = *rc::gen::inRange<int>(0, 2) == 0 ? 0 : *rc::gen::inRange<uint64_t>(1, 40);
      rule.open_packs = *rc::gen::inRange<uint64_t>(1, 12);
      rule.max_wait = 2 * rule.open_packs + *rc::gen::inRange<uint64_t>(0, 40);
      const auto largest = *rc::gen::inRange<int64_t>(1, rule.budget + 1);
      const auto n = *rc::gen::inRange<size_t>(0, 400);
      const auto sizes =
          *rc::gen::container<std::vector<int32_t>>(n, rc::gen::inRange<int32_t>(1, static_cast<int32_t>(largest) + 1));
      const Packs expected = streamed_by_loop(sizes, rule);
      RC_ASSERT((streamed<sampler::SmallIndex, uint32_t>(sizes, rule)) == expected);
      RC_ASSERT((streamed<sampler::BitmapIndex, uint32_t>(sizes, rule)) == expected);
      RC_ASSERT((streamed<sampler::MapIndex, uint64_t>(sizes, rule)) == expected);
    }));
  }
}

TEST_CASE("streaming has no limit on the sequences of a pack, nor on the wait") {
  sampler::OpenPacksRule rule;
  rule.budget = 50000;
  rule.open_packs = 3;
  rule.max_wait = ~uint64_t{0};
  std::vector<int32_t> sizes(100000, 1);
  for (size_t i = 0; i < sizes.size(); i += 100) sizes[i] = 777;
  const Packs expected = streamed_by_loop(sizes, rule);
  CHECK(streamed<sampler::SmallIndex, uint32_t>(sizes, rule) == expected);
  CHECK(streamed<sampler::MapIndex, uint32_t>(sizes, rule) == expected);
}
