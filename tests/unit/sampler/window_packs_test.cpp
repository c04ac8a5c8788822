// Packs over windows: against loops over sequences, for every index; how full they get, and what meets in them.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>

#include "../plugins/sampler/common/window_packs.hpp"
#include "packing_oracle.hpp"

namespace window_packs_test {

using namespace pliant;
using namespace pliant::test;

namespace {

/// Rows of sequence numbers where each sequence is a window of its own, by looking at every open pack.
Packs streamed_by_loop(const std::vector<int32_t>& sizes, const sampler::WindowRule& rule) {
  struct Open {
    std::vector<int64_t> items;
    int64_t room;
    size_t opened_at;
    bool leaves = false;
  };
  std::deque<Open> open;  // the one that was touched last is the last
  Packs rows;
  const auto fuller = [](const Open& a, const Open& b) { return a.room < b.room; };
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t before = rows.size();
    auto best = open.end();
    for (auto at = open.begin(); at != open.end(); ++at) {
      if (at->room >= sizes[i] && (best == open.end() || at->room <= best->room)) best = at;
    }
    Open pack{{}, rule.budget, before};
    if (best != open.end()) {
      pack = *best;
      open.erase(best);
    }
    pack.items.push_back(static_cast<int64_t>(i));
    pack.room -= sizes[i];
    const bool is_done = pack.room == 0 || pack.items.size() == rule.most_in_pack;
    size_t leaving_count = 0;
    const auto due = [&](const Open& one) {
      return rows.size() + leaving_count - one.opened_at + 1 + rule.open_packs > rule.max_wait;
    };
    const auto oldest = [&] {
      auto found = open.end();
      for (auto at = open.begin(); at != open.end(); ++at) {
        if (!at->leaves && (found == open.end() || at->opened_at < found->opened_at)) found = at;
      }
      return found;
    };
    if (!is_done) open.push_back(pack);
    // Those that leave together leave in the order in which they were touched.
    const auto leave = [&](auto at) {
      at->leaves = true;
      ++leaving_count;
    };
    leaving_count = is_done ? 1 : 0;
    // Of packs that are equally full the one that was touched last.
    if (open.size() > rule.open_packs) leave(std::prev(std::min_element(open.rbegin(), open.rend(), fuller).base()));
    for (auto at = oldest(); at != open.end() && due(*at); at = oldest()) leave(at);
    for (auto at = open.begin(); at != open.end();) {
      if (at->leaves) rows.push_back(at->items);
      at = at->leaves ? open.erase(at) : std::next(at);
    }
    if (is_done) rows.push_back(pack.items);
  }
  std::stable_sort(open.begin(), open.end(), [](const Open& a, const Open& b) { return a.opened_at < b.opened_at; });
  for (const Open& pack : open) rows.push_back(pack.items);
  return rows;
}

/// Rooms that best-fit-decreasing over windows leaves in its rows, sequence by sequence.
std::vector<int64_t> rooms_by_loop(const std::vector<int32_t>& sizes, const sampler::WindowRule& rule) {
  std::vector<int64_t> left;
  std::vector<int64_t> open;
  for (size_t begin = 0; begin < sizes.size(); begin += rule.window) {
    std::vector<int32_t> window(
        sizes.begin() + static_cast<std::ptrdiff_t>(begin),
        sizes.begin() + static_cast<std::ptrdiff_t>(std::min(begin + rule.window, sizes.size())));
    std::sort(window.begin(), window.end(), std::greater<>());
    for (const int64_t size : window) {
      auto best = open.end();
      for (auto at = open.begin(); at != open.end(); ++at) {
        if (*at >= size && (best == open.end() || *at < *best)) best = at;
      }
      if (best == open.end()) best = open.insert(open.end(), rule.budget);
      *best -= size;
    }
    std::sort(open.begin(), open.end());
    const size_t full = static_cast<size_t>(std::count(open.begin(), open.end(), 0));
    const auto leaves = static_cast<std::ptrdiff_t>(
        std::max<size_t>(full, open.size() - std::min<size_t>(open.size(), rule.open_packs)));
    left.insert(left.end(), open.begin(), open.begin() + leaves);
    open.erase(open.begin(), open.begin() + leaves);
  }
  left.insert(left.end(), open.begin(), open.end());
  std::sort(left.begin(), left.end());
  return left;
}

template <class Index, class Id>
Packs streamed(const std::vector<int32_t>& sizes, const sampler::WindowRule& rule) {
  sampler::ListedRows<Id> rows;
  rows.restart(5);  // memory of an epoch before
  sampler::pack_windows<Index>(sizes, rule, rows);
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

std::vector<int32_t> random_sizes(size_t most, int64_t least, int64_t largest) {
  const auto n = *rc::gen::inRange<size_t>(0, most);
  return *rc::gen::container<std::vector<int32_t>>(
      n, rc::gen::inRange<int32_t>(static_cast<int32_t>(least), static_cast<int32_t>(largest) + 1));
}

int64_t room_in(const std::vector<int64_t>& row, const std::vector<int32_t>& sizes, int64_t budget) {
  for (const int64_t id : row) budget -= sizes[static_cast<size_t>(id)];
  return budget;
}

std::vector<int32_t> lognormal(size_t count, double median, int32_t most) {
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal;
  std::vector<int32_t> sizes(count);
  for (int32_t& size : sizes) {
    size = static_cast<int32_t>(std::clamp(std::ceil(median * std::exp(normal(random))), 1.0, double{1} * most));
  }
  return sizes;
}

double spread_of(const std::vector<double>& values) {
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("a window of one takes the fullest pack that has room, and among equals the one that was touched last") {
  for (const int64_t highest : {20, 200, 5000, 60000}) {
    CHECK(rc::check([=] {
      sampler::WindowRule rule;
      rule.budget = *rc::gen::inRange<int64_t>(1, highest);
      rule.most_in_pack = *rc::gen::inRange<int>(0, 2) == 0 ? 0 : *rc::gen::inRange<uint64_t>(1, 40);
      rule.open_packs = *rc::gen::inRange<uint64_t>(1, 12);
      rule.max_wait = 2 * rule.open_packs + *rc::gen::inRange<uint64_t>(0, 80);
      const auto sizes = random_sizes(400, 1, *rc::gen::inRange<int64_t>(1, rule.budget + 1));
      const Packs expected = streamed_by_loop(sizes, rule);
      RC_ASSERT((streamed<sampler::BitmapIndex, uint32_t>(sizes, rule)) == expected);
      RC_ASSERT((streamed<sampler::MapIndex, uint64_t>(sizes, rule)) == expected);
    }));
  }
}

TEST_CASE("long sequences leave the rooms that best-fit-decreasing over windows leaves sequence by sequence") {
  CHECK(rc::check([] {
    sampler::WindowRule rule;
    rule.budget = *rc::gen::inRange<int64_t>(4, 300);
    rule.open_packs = *rc::gen::inRange<uint64_t>(1, 12);
    rule.max_wait = ~uint64_t{0};
    rule.window = *rc::gen::inRange<uint64_t>(1, 60);
    const auto sizes = random_sizes(400, rule.budget / 4 + 1, rule.budget);
    std::vector<int64_t> rooms;
    for (const auto& row : streamed<sampler::BitmapIndex, uint32_t>(sizes, rule)) {
      rooms.push_back(room_in(row, sizes, rule.budget));
    }
    std::sort(rooms.begin(), rooms.end());
    RC_ASSERT(rooms == rooms_by_loop(sizes, rule));
  }));
}

TEST_CASE("every sequence is in one pack, no pack is too full, and both indexes give the same rows") {
  CHECK(rc::check([] {
    sampler::WindowRule rule;
    rule.budget = *rc::gen::inRange<int64_t>(1, 2000);
    rule.most_in_pack = *rc::gen::inRange<int>(0, 2) == 0 ? 0 : *rc::gen::inRange<uint64_t>(1, 40);
    rule.open_packs = *rc::gen::inRange<uint64_t>(1, 12);
    rule.max_wait = 2 * rule.open_packs + *rc::gen::inRange<uint64_t>(0, 300);
    rule.window = *rc::gen::inRange<uint64_t>(1, 200);
    const auto sizes = random_sizes(600, 1, std::max<int64_t>(1, rule.budget / *rc::gen::inRange(1, 60)));
    const Packs rows = streamed<sampler::BitmapIndex, uint32_t>(sizes, rule);
    RC_ASSERT((streamed<sampler::MapIndex, uint64_t>(sizes, rule)) == rows);
    std::vector<int64_t> ids;
    for (const auto& row : rows) {
      RC_ASSERT(!row.empty());
      RC_ASSERT(rule.most_in_pack == 0 || row.size() <= rule.most_in_pack);
      RC_ASSERT(room_in(row, sizes, rule.budget) >= 0);
      ids.insert(ids.end(), row.begin(), row.end());
    }
    std::sort(ids.begin(), ids.end());
    std::vector<int64_t> all(sizes.size());
    std::iota(all.begin(), all.end(), int64_t{0});
    RC_ASSERT(ids == all);
  }));
}

TEST_CASE("no more packs stay open than may, whatever the windows bring") {
  sampler::WindowRule rule{100, 0, 7, 1000, 50};
  sampler::WindowPacks<sampler::BitmapIndex, uint32_t> packs(rule);
  std::mt19937 random(3);
  for (int window = 0; window < 50; ++window) {
    std::vector<int32_t> sizes(rule.together());
    for (int32_t& size : sizes) size = 1 + static_cast<int32_t>(random() % 100);
    packs.pack(
        sizes, [](uint32_t at) { return at; }, [](auto, auto) {});
    CHECK(packs.open().size() <= rule.open_packs);
  }
}

TEST_CASE("packs have no limit on their sequences, nor on the wait") {
  sampler::WindowRule rule{50000, 0, 3, ~uint64_t{0}, 700};
  std::vector<int32_t> sizes(100000, 1);
  for (size_t i = 0; i < sizes.size(); i += 100) sizes[i] = 777;
  const Packs rows = streamed<sampler::BitmapIndex, uint32_t>(sizes, rule);
  CHECK(streamed<sampler::MapIndex, uint32_t>(sizes, rule) == rows);
  const int64_t tokens = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  CHECK(static_cast<int64_t>(rows.size()) == (tokens + rule.budget - 1) / rule.budget);
}

TEST_CASE("packs get full, and sequences of all lengths meet in them") {
  for (const int64_t budget : {512, 2048, 8192}) {
    CAPTURE(budget);
    const auto sizes = lognormal(200000, 60, static_cast<int32_t>(budget));
    const sampler::WindowRule rule{budget, 0, 256, 65536, 16384};
    const Packs rows = streamed<sampler::BitmapIndex, uint32_t>(sizes, rule);
    const double tokens = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    CHECK(tokens / (static_cast<double>(rows.size()) * static_cast<double>(budget)) > 0.995);
    // In how many sequences batches of 12 rows differ: by chance alone, or by twice as much at most.
    std::vector<double> counts;
    for (size_t row = 0; row + 12 <= rows.size(); row += 12) {
      counts.push_back(0);
      for (size_t i = row; i < row + 12; ++i) counts.back() += static_cast<double>(rows[i].size());
    }
    std::vector<double> drawn;
    std::mt19937_64 random(5);
    size_t at = 0;
    for (size_t batch = 0; batch < counts.size(); ++batch) {
      drawn.push_back(0);
      for (double left = 12 * static_cast<double>(budget); left > 0; ++at) {
        left -= sizes[random() % sizes.size()];
        drawn.back() += 1;
      }
    }
    CHECK(spread_of(counts) < 2.5 * spread_of(drawn));
  }
}

}  // namespace window_packs_test
