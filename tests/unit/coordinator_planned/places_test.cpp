// Places in an arena for pieces of which it is known when each comes and goes.
#include "places.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

using namespace pliant::coordinator::planned;

namespace {

constexpr uint64_t kTop = 24;
constexpr size_t kMoments = 40;

/// Cuts a part of the arena over a part of the time into pieces without a gap, each where it lies.
template <class Draw>
void cut(const Draw& draw, const Piece& whole, std::vector<Piece>& pieces) {
  const bool across = draw() % 2 == 0;
  const uint64_t length = across ? whole.bytes : whole.end - whole.begin;
  if (length < 2 || (pieces.size() > 2 && draw() % 3 == 0)) {
    pieces.push_back(whole);
    return;
  }
  const uint64_t at = 1 + draw() % (length - 1);
  Piece one = whole;
  Piece other = whole;
  if (across) {
    one.bytes = at;
    other.bytes -= at;
    other.place += at;
  } else {
    one.end = other.begin = whole.begin + at;
  }
  cut(draw, one, pieces);
  cut(draw, other, pieces);
}

/// None lies where another one does, or above the top.
void check_places(const std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    REQUIRE(pieces[i].place + pieces[i].bytes <= kTop);
    for (size_t k = 0; k < i; ++k) {
      const bool at_once = pieces[i].begin < pieces[k].end && pieces[k].begin < pieces[i].end;
      const bool apart =
          pieces[i].place >= pieces[k].place + pieces[k].bytes || pieces[k].place >= pieces[i].place + pieces[i].bytes;
      REQUIRE((!at_once || apart));
    }
  }
}

}  // namespace

TEST_CASE("pieces that leave no gap at any moment mostly find places again, whoever of them has its place already") {
  std::mt19937 drawn(5);
  const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
  int found = 0;
  constexpr int kRounds = 1000;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Piece> pieces;
    cut(draw, {.bytes = kTop, .begin = 0, .end = kMoments, .place = 0}, pieces);
    std::shuffle(pieces.begin(), pieces.end(), drawn);
    const std::vector<Piece> lay = pieces;
    const bool keeps_first = round % 2 == 0;  // what is there at the begin
    for (Piece& one : pieces) {
      if (!keeps_first || one.begin > 0) one.place = PLIANT_ANY_PLACE;
    }
    const std::vector<Piece> before = pieces;
    std::vector<Piece> again = pieces;
    uint64_t looked_at = 0;
    const bool has_places = find_places(pieces, kTop, looked_at);
    CHECK(looked_at > 0);
    CHECK(find_places(again, kTop, looked_at) == has_places);
    for (size_t i = 0; i < pieces.size(); ++i) {
      CHECK(again[i].place == pieces[i].place);
      if (!has_places) CHECK(pieces[i].place == before[i].place);
      if (before[i].place != PLIANT_ANY_PLACE) CHECK(pieces[i].place == lay[i].place);
    }
    if (has_places) check_places(pieces);
    found += has_places ? 1 : 0;
  }
  MESSAGE(found, " of ", kRounds, " sets");
  CHECK(found > kRounds * 7 / 10);
}

TEST_CASE("a piece lies where it wishes where that is free, and what comes first lies lowest") {
  std::vector<Piece> pieces{{.bytes = 8, .begin = 0, .end = 4},
                            {.bytes = 2, .begin = 1, .end = 9, .wish = 10},
                            {.bytes = 3, .begin = 2, .end = 6, .is_first = true},
                            {.bytes = 4, .begin = 6, .end = 9, .wish = 11}};
  uint64_t looked_at = 0;
  REQUIRE(find_places(pieces, kTop, looked_at));
  check_places(pieces);
  CHECK(pieces[2].place == 0);
  CHECK(pieces[3].place == 11);  // the larger one
  CHECK(pieces[1].place != 10);
}

TEST_CASE("more than there is room for at a moment finds no places") {
  std::vector<Piece> pieces{{.bytes = 16, .begin = 0, .end = 5}, {.bytes = 9, .begin = 4, .end = 6}};
  uint64_t looked_at = 0;
  CHECK_FALSE(find_places(pieces, kTop, looked_at));
  CHECK(find_places(pieces, kTop + 1, looked_at));
}

TEST_CASE("what looking for places costs grows as their number does") {
  const auto looks = [](size_t count) {
    std::mt19937 drawn(9);
    const auto draw = [&drawn] { return static_cast<uint32_t>(drawn()); };
    std::vector<Piece> pieces;
    for (size_t i = 0; i < count; ++i) {
      const size_t length = draw() % 50 == 0 ? count : 1 + draw() % 20;  // some stay for the whole time
      pieces.push_back({.bytes = 1 + draw() % 9, .begin = i, .end = i + length});
    }
    uint64_t looked_at = 0;
    static_cast<void>(find_places(pieces, 60, looked_at));
    return looked_at;
  };
  CHECK(looks(20'000) <= 12 * looks(2'000));
}
