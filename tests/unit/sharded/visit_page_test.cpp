// VisitPage: who differs is named, and who is behind is not.
#include "sharded/visit_page.hpp"

#include "sharded/visit_differences.hpp"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "says.hpp"
#include "scratch_folder.hpp"

namespace pliant::sharded {
namespace {

using Kind = Visited::Kind;

ModelTables model() {
  ModelTables made;
  ParameterSpec weights;
  weights.name = "up.weights";
  weights.shape = {4};
  weights.initialise = [](std::span<float>) {};
  const ParameterId one{made.add(std::move(weights))};
  made.add(ModuleSpec{.name = "model", .parent = std::nullopt, .own = {}, .external = {}});
  made.add(ModuleSpec{.name = "attn.qkv", .parent = ModuleId{0}, .own = {}, .external = {}});
  made.add(ModuleSpec{.name = "mlp.up", .parent = ModuleId{0}, .own = {one}, .external = {}});
  made.close();
  return made;
}

/// Ranks of generation 3, each with a page and a reader of it.
struct Ranks {
  test::ScratchFolder folder;
  ModelTables tables = model();
  std::vector<VisitPage> pages;
  std::vector<VisitReader> readers;
  explicit Ranks(size_t count) {
    for (size_t rank = 0; rank < count; ++rank) {
      const auto file = folder / std::to_string(rank);
      auto page = VisitPage::create(file, tables);
      REQUIRE(page.has_value());
      pages.push_back(std::move(*page));
      auto reader = VisitReader::open(file);
      REQUIRE(reader.has_value());
      readers.push_back(std::move(*reader));
      pages.back().begin_group(3);
    }
  }
  void all(Kind kind, uint32_t what = 0) {
    for (VisitPage& page : pages) page.add(kind, what);
  }
  [[nodiscard]] std::vector<const VisitReader*> seen() const {
    std::vector<const VisitReader*> made;
    for (const VisitReader& one : readers) made.push_back(&one);
    return made;
  }
  [[nodiscard]] std::optional<std::string> differ(bool all_done = false, int64_t generation = 3) const {
    return how_visits_differ(seen(), generation, all_done);
  }
  [[nodiscard]] std::vector<VisitCount> counts() const {
    std::vector<VisitCount> made;
    for (const VisitPage& page : pages) made.push_back(page.so_far());
    return made;
  }
};

}  // namespace

TEST_CASE("a rank that enters another module is named, with what the others did at that visit") {
  Ranks ranks(4);
  ranks.all(Kind::kPass);
  for (int i = 0; i < 8; ++i) ranks.all(Kind::kForward, 1);
  CHECK_FALSE(ranks.differ().has_value());
  for (size_t rank = 0; rank < 4; ++rank)
    ranks.pages[rank].add(rank == 2 ? Kind::kBackward : Kind::kForward, rank == 2 ? 2 : 1);
  const std::string expected =
      "rank 2 entered mlp.up (backward) as visit 8, ranks 0, 1, 3 entered attn.qkv (forward) as visit 8";
  CHECK(ranks.differ().value_or("") == expected);
  for (int i = 0; i < 40; ++i) ranks.all(Kind::kForward, 2);  // the first difference counts
  CHECK(ranks.differ().value_or("") == expected);
  CHECK_FALSE(ranks.differ(false, 4).has_value());
}

TEST_CASE("a page that somebody has made shorter says nothing, and ends nobody who reads it") {
  Ranks ranks(2);
  ranks.all(Kind::kPass);
  ranks.pages[0].add(Kind::kForward, 1);
  ranks.pages[1].add(Kind::kForward, 2);
  REQUIRE(ranks.differ().has_value());
  for (const uintmax_t bytes : {uintmax_t{100}, uintmax_t{50}, uintmax_t{0}}) {
    CAPTURE(bytes);
    std::filesystem::resize_file(ranks.folder / "1", bytes);
    const std::optional<std::string> differ = ranks.differ();
    if (bytes == 100) continue;  // its count is there, and maybe its first visits
    CHECK_FALSE(differ.has_value());
    CHECK_FALSE(ranks.readers[1].at(0).has_value());
  }
  CHECK_FALSE(VisitReader::open(ranks.folder / "1").has_value());
  std::filesystem::resize_file(ranks.folder / "1", 100000);  // for the rank that writes it
}

TEST_CASE("a rank that is behind differs only where all are done") {
  Ranks ranks(3);
  ranks.all(Kind::kPass);
  ranks.all(Kind::kForward, 1);
  ranks.pages[0].add(Kind::kForward, 2);
  ranks.pages[1].add(Kind::kForward, 2);
  CHECK_FALSE(ranks.differ().has_value());
  CHECK(ranks.differ(true).value_or("") ==
        "rank 2 made no more visits, ranks 0, 1 entered mlp.up (forward) as visit 1");
  ranks.pages[2].add(Kind::kForward, 2);
  CHECK_FALSE(ranks.differ(true).has_value());
}

TEST_CASE("passes, evaluations and what is moved by hand are told apart") {
  for (const auto& [other, words] :
       {std::pair{Kind::kEvaluation, "began an evaluation"}, std::pair{Kind::kByHand, "moved up.weights by hand"},
        std::pair{Kind::kRelease, "released up.weights by hand"}, std::pair{Kind::kWrite, "wrote up.weights"},
        std::pair{Kind::kEndPass, "ended its pass after 0 visits"},
        std::pair{Kind::kCommit, "reached Step::commit after 0 visits"},
        std::pair{Kind::kEndStep, "ended the step after 0 visits"},
        std::pair{Kind::kModel, "began a pass with modules changed by set_parameters (digest 00000000)"},
        std::pair{Kind::kLeaveForward, "left model (forward) after 0 visits"}}) {
    Ranks ranks(2);
    ranks.pages[0].add(Kind::kPass, 0);
    ranks.pages[1].add(other, 0);
    const std::string said = ranks.differ(true).value_or("");
    CAPTURE(said);
    CHECK(says(said, words));
    CHECK(says(said, "began pass 1 of the step"));
  }
}

TEST_CASE("passes over several micro-batches differ from those over one, and so do the micro-batches that are begun") {
  Ranks ranks(2);
  ranks.pages[0].add(Kind::kPass, 2);
  ranks.pages[1].add(Kind::kPass, 0);
  CHECK(ranks.differ().value_or("") ==
        "rank 0 began pass 1 of the step, over 3 micro-batches, rank 1 began pass 1 of the step");
  Ranks others(2);
  others.all(Kind::kPass, 2);
  others.all(Kind::kBackward, 2);
  others.all(Kind::kMicroBatch, 0);
  others.pages[0].add(Kind::kMicroBatch, 1);
  others.pages[1].add(Kind::kForward, 1);
  CHECK(says(others.differ().value_or(""), "rank 0 began micro-batch 1 of its pass after 1 visits"));
}

TEST_CASE("visits are numbered anew in each step, and the first difference is found however long ago the ring allows") {
  Ranks ranks(4);
  for (uint64_t i = 0; i < VisitPage::kRing * 3 / 2; ++i) ranks.all(Kind::kForward, 1);
  for (VisitPage& page : ranks.pages) page.begin_step();
  ranks.all(Kind::kPass);
  ranks.all(Kind::kForward, 1);
  for (size_t rank = 0; rank < 4; ++rank) ranks.pages[rank].add(Kind::kForward, rank == 2 ? 2 : 1);
  for (uint64_t i = 0; i < VisitPage::kRing - 8; ++i) ranks.all(Kind::kForward, 1);
  CHECK(ranks.differ().value_or("") ==
        "rank 2 entered mlp.up (forward) as visit 1, ranks 0, 1, 3 entered attn.qkv (forward) as visit 1");
  // Further back than that it is not what they did that tells them apart: the same, by now.
  ranks.all(Kind::kForward, 1);
  for (uint64_t i = 0; i < VisitPage::kRing; ++i) ranks.all(Kind::kForward, 1);
  for (const bool all_done : {false, true}) {
    CHECK(ranks.differ(all_done).value_or("") ==
          "rank 2 and ranks 0, 1, 3 visited different modules before visit 65532, which is no longer recorded");
  }
}

TEST_CASE(
    "a rank that is a ring ahead of the others is told from them where all are done, and the others are compared") {
  Ranks ranks(3);
  ranks.all(Kind::kPass);
  for (uint64_t i = 0; i < VisitPage::kRing + 9; ++i) ranks.pages[1].add(Kind::kForward, 1);
  CHECK_FALSE(ranks.differ().has_value());
  CHECK(ranks.differ(true).value_or("") == "rank 1 made more visits than are recorded, ranks 0, 2 made no more visits");
  ranks.pages[0].add(Kind::kForward, 1);
  ranks.pages[2].add(Kind::kForward, 2);
  const std::string differ = ranks.differ().value_or("");
  CHECK(says(differ, "rank 0 entered attn.qkv (forward) as visit 0"));
  CHECK(says(differ, "rank 2 entered mlp.up (forward) as visit 0"));
}

TEST_CASE("ranks that have no page, or that of another generation, are left out, and the others are named") {
  Ranks ranks(4);
  ranks.all(Kind::kPass);
  for (size_t rank = 0; rank < 4; ++rank) ranks.pages[rank].add(Kind::kForward, rank == 2 ? 2 : 1);
  std::vector<const VisitReader*> seen = ranks.seen();
  seen[0] = nullptr;  // its process is dead
  CHECK(how_visits_differ(seen, 3, false).value_or("") ==
        "rank 2 entered mlp.up (forward) as visit 0, ranks 1, 3 entered attn.qkv (forward) as visit 0");
  ranks.pages[3].begin_group(4);
  CHECK(how_visits_differ(seen, 3, true).value_or("") ==
        "rank 1 entered attn.qkv (forward) as visit 0, rank 2 entered mlp.up (forward) as visit 0");
  seen[2] = nullptr;
  CHECK_FALSE(how_visits_differ(seen, 3, true).has_value());
  CHECK_FALSE(how_visits_differ({nullptr, nullptr}, 3, true).has_value());
}

TEST_CASE("ranks that have parted are named while others are behind, and these are said to be") {
  Ranks ranks(4);
  ranks.all(Kind::kPass);
  ranks.pages[0].add(Kind::kForward, 1);
  ranks.pages[3].add(Kind::kForward, 2);
  ranks.pages[3].add(Kind::kForward, 1);
  CHECK(ranks.differ().value_or("") ==
        "rank 0 entered attn.qkv (forward) as visit 0, rank 3 entered mlp.up (forward) as visit 0, ranks 1, 2 had made "
        "fewer visits");
  ranks.pages[1].add(Kind::kForward, 1);
  ranks.pages[2].add(Kind::kForward, 1);
  CHECK(ranks.differ().value_or("") ==
        "rank 3 entered mlp.up (forward) as visit 0, ranks 0, 1, 2 entered attn.qkv (forward) as visit 0");
}

TEST_CASE("modules that are left in another order differ, but not those that a rank left last: an exception may have") {
  Ranks parted(3);
  parted.all(Kind::kBackward, 0);
  parted.all(Kind::kBackward, 1);
  for (const uint32_t module : {1U, 0U}) {
    parted.pages[0].add(Kind::kLeaveBackward, module);
    parted.pages[1].add(Kind::kLeaveBackward, module);
    parted.pages[2].add(Kind::kLeaveBackward, 1 - module);
  }
  CHECK_FALSE(parted.differ().has_value());
  parted.pages[2].add(Kind::kEndPass, 0);
  CHECK_FALSE(parted.differ().has_value());  // the others may have thrown
  parted.pages[0].add(Kind::kEndPass, 0);
  CHECK(says(parted.differ().value_or(""), "rank 2 left model (backward) after 2 visits"));
}

TEST_CASE("what is given up with the modules that a rank left last differs only where all are done") {
  Ranks ranks(3);
  ranks.all(Kind::kBackward, 0);
  ranks.all(Kind::kBackward, 1);
  for (const uint32_t module : {1U, 0U}) {
    ranks.pages[0].add(Kind::kLeaveBackward, module);
    ranks.pages[1].add(Kind::kLeaveBackward, module);
    ranks.pages[2].add(Kind::kLeaveBackward, 1 - module);
  }
  CHECK(ranks.differ(true).value_or("") ==
        "rank 2 left model (backward) after 2 visits, ranks 0, 1 left attn.qkv (backward) after 2 visits");
  ranks.pages[2].end_group();
  CHECK_FALSE(ranks.differ().has_value());
  CHECK(ranks.differ(true).has_value());  // it is behind
  ranks.pages[2].add(Kind::kForward, 2);  // nobody's business
  CHECK_FALSE(ranks.differ().has_value());
}

TEST_CASE(
    "what one rank releases by hand differs once it goes on, but not where it did so last: an exception may have") {
  Ranks ranks(2);
  ranks.all(Kind::kByHand, 0);
  ranks.pages[1].add(Kind::kRelease, 0);
  CHECK_FALSE(ranks.differ().has_value());
  ranks.pages[0].add(Kind::kPass, 0);
  CHECK_FALSE(ranks.differ().has_value());
  const VisitCount released = ranks.pages[1].so_far();
  ranks.pages[1].add(Kind::kPass, 0);
  CHECK(ranks.differ().value_or("") == "rank 0 began pass 1 of the step, rank 1 released up.weights by hand");
  Ranks thrown(2);
  thrown.all(Kind::kByHand, 0);
  thrown.pages[1].add(Kind::kRelease, 0);
  CHECK(thrown.pages[1].so_far() == released);
  thrown.pages[1].end_group();
  CHECK(thrown.pages[1].so_far() == thrown.pages[0].so_far());
}

TEST_CASE("ranks without pages are told apart by what they have counted") {
  Ranks ranks(4);
  ranks.all(Kind::kPass);
  VisitPage without;
  without.add(Kind::kForward, 1);  // before a group it counts nothing
  without.begin_group(3);
  without.add(Kind::kPass, 0);
  CHECK_FALSE(without.is_shown());
  CHECK(without.so_far() == ranks.pages.front().so_far());
  CHECK_FALSE(how_visits_differ(ranks.counts()).has_value());
  CHECK_FALSE(how_visits_differ(std::vector<VisitCount>{}).has_value());
  for (size_t rank = 0; rank < 4; ++rank) ranks.pages[rank].add(Kind::kForward, rank == 2 ? 2 : 1);
  CHECK(how_visits_differ(ranks.counts()).value_or("") == "rank 2 and ranks 0, 1, 3 visited different modules");
}

TEST_CASE("a page is made anew beside one of that name that a process still writes") {
  Ranks ranks(1);
  ranks.all(Kind::kForward, 1);
  auto other = VisitPage::create(ranks.folder / "0", ranks.tables);
  REQUIRE(other.has_value());
  ranks.all(Kind::kForward, 2);
  CHECK(ranks.readers.front().count() == 2);
  const auto reader = VisitReader::open(ranks.folder / "0");
  REQUIRE(reader.has_value());
  CHECK(reader->count() == 0);
}

TEST_CASE("what is no page is refused, and a page is what its file had when it was opened") {
  const test::ScratchFolder folder;
  CHECK(VisitReader::open(folder / "none").error().status() == Status::kNotFound);
  test::write_all(folder / "short", "pliant");
  CHECK(VisitReader::open(folder / "short").error().status() == Status::kDataLoss);
  test::write_all(folder / "other", std::string(1 << 16, 'x'));
  CHECK(VisitReader::open(folder / "other").error().status() == Status::kDataLoss);
  CHECK(VisitPage::create(folder / "no" / "page", model()).error().status() == Status::kNotFound);
}

}  // namespace pliant::sharded
