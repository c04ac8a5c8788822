#include "sharded/visit_differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace pliant::sharded {
namespace {

std::string ranks_text(const std::vector<size_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// A rank whose page can be read.
struct RankOfPage {
  size_t number = 0;
  const VisitReader* page = nullptr;
  uint64_t count = 0;
};

/// Whether two that have come to `place` came there alike; nullopt: that is overwritten.
std::optional<bool> agree(const RankOfPage& one, const RankOfPage& other, uint64_t place) {
  const std::optional<Visited> here = one.page->at(place);
  const std::optional<Visited> there = other.page->at(place);
  if (!here || !there) return std::nullopt;
  return here->digest == there->digest;
}

/// The first place that can be seen where they differ; `one` is not ahead.
std::optional<uint64_t> first_difference(const RankOfPage& one, const RankOfPage& other) {
  if (one.count == 0 || agree(one, other, one.count - 1).value_or(true)) return std::nullopt;
  uint64_t low = other.count >= VisitPage::kRing ? other.count - VisitPage::kRing + 1 : 0;
  uint64_t high = one.count - 1;
  while (low < high) {  // digests that differ once differ from there on
    const uint64_t middle = low + (high - low) / 2;
    if (agree(one, other, middle).value_or(true)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return high;
}

/// Ranks that did the same.
struct Side {
  bool is_behind = false;
  std::vector<size_t> ranks{};
  std::string words{};
};

/// In the order in which they are told: who is alone first.
template <class Key>
std::vector<Side> in_order(const std::map<Key, Side>& by_key) {
  std::vector<Side> sides;
  for (const auto& entry : by_key) {
    sides.push_back(entry.second);
    std::sort(sides.back().ranks.begin(), sides.back().ranks.end());
  }
  std::sort(sides.begin(), sides.end(), [](const Side& a, const Side& b) {
    return std::tuple(a.is_behind, a.ranks.size(), a.ranks.front()) <
           std::tuple(b.is_behind, b.ranks.size(), b.ranks.front());
  });
  return sides;
}

/// Without what it gave back last of all: an exception on its way may have done that, and no other rank will.
uint64_t count_before_given_back(const VisitReader& page) {
  uint64_t count = page.count();
  for (uint64_t looked_at = 0; count > 0 && looked_at < VisitPage::kRing; ++looked_at, --count) {
    const std::optional<Visited> last = page.at(count - 1);
    if (!last || !gives_back(last->kind)) break;
  }
  return count;
}

std::string words_of_parted(const std::vector<Side>& sides) {
  std::string text;
  for (const Side& side : sides) text += fmt::format("{}{}", text.empty() ? "" : " and ", ranks_text(side.ranks));
  return text + " visited different modules";
}

/// What ranks did at a place where they differ.
std::string words_at(const std::vector<RankOfPage>& ranks, uint64_t place, bool all_done) {
  enum class Known { kDone, kOverwritten, kNotYet };
  std::map<std::pair<Known, uint64_t>, Side> by_digest;
  std::vector<RankOfPage> seen;
  std::set<uint64_t> digests;
  uint64_t number = 0;
  for (const RankOfPage& rank : ranks) {
    const bool is_there = rank.count > place;
    const std::optional<Visited> visit = is_there ? rank.page->at(place) : std::nullopt;
    const Known known = visit ? Known::kDone : is_there ? Known::kOverwritten : Known::kNotYet;
    Side& side = by_digest[{known, visit ? visit->digest : 0}];
    side.ranks.push_back(rank.number);
    if (visit) {
      seen.push_back(rank);
      digests.insert(visit->digest);
      number = std::max<uint64_t>(number, visit->number);
      side.words = rank.page->words(*visit);
    } else if (is_there) {
      side.words = "made more visits than are recorded";
    } else {
      side.words = all_done ? "made no more visits" : "had made fewer visits";
      side.is_behind = !all_done;
    }
  }
  std::vector<Side> sides = in_order(by_digest);
  const bool is_first =
      place == 0 || digests.size() < 2 || std::all_of(seen.begin(), seen.end(), [&](const RankOfPage& rank) {
        return agree(rank, seen.front(), place - 1).value_or(false);
      });
  if (!is_first) {
    std::erase_if(sides, [](const Side& side) { return side.is_behind; });
    return fmt::format("{} before visit {}, which is no longer recorded", words_of_parted(sides), number);
  }
  std::string text;
  for (const Side& side : sides) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", ranks_text(side.ranks), side.words);
  }
  return text;
}

}  // namespace

std::optional<std::string> how_visits_differ(const std::vector<const VisitReader*>& pages, int64_t generation,
                                             bool all_done) {
  std::vector<RankOfPage> ranks;
  for (size_t rank = 0; rank < pages.size(); ++rank) {
    const VisitReader* const page = pages[rank];
    if (page == nullptr || page->generation() != generation) continue;
    ranks.push_back({rank, page, all_done ? page->count() : count_before_given_back(*page)});
  }
  if (ranks.empty()) return std::nullopt;
  const auto is_less = [](const RankOfPage& a, const RankOfPage& b) { return a.count < b.count; };
  std::stable_sort(ranks.begin(), ranks.end(), is_less);
  // Neighbours by how far they have come: where all of these agree, all do.
  std::optional<uint64_t> first;
  for (size_t i = 0; i + 1 < ranks.size(); ++i) {
    const std::optional<uint64_t> found = first_difference(ranks[i], ranks[i + 1]);
    if (found) first = std::min(*found, first.value_or(*found));
  }
  const uint64_t least = ranks.front().count;
  if (all_done && least < ranks.back().count) first = std::min(least, first.value_or(least));
  if (!first) return std::nullopt;
  return words_at(ranks, *first, all_done);
}

std::optional<std::string> how_visits_differ(const std::vector<VisitCount>& by_rank) {
  std::map<VisitCount, Side> sides;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) sides[by_rank[rank]].ranks.push_back(rank);
  if (sides.size() < 2) return std::nullopt;
  return words_of_parted(in_order(sides));
}

}  // namespace pliant::sharded
