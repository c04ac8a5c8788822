// VisitPage: who differs is named, and who is behind is not.
#include "sharded/visit_page.hpp"

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
  [[nodiscard]] std::optional<std::string> differ(bool all_done = false, int64_t generation = 3) const {
    std::vector<const VisitReader*> seen;
    for (const VisitReader& one : readers) seen.push_back(&one);
    return how_visits_differ(seen, generation, all_done);
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
        "rank 2 visited nothing more, ranks 0, 1 entered mlp.up (forward) as visit 1");
  ranks.pages[2].add(Kind::kForward, 2);
  CHECK_FALSE(ranks.differ(true).has_value());
}

TEST_CASE("passes, evaluations and what is moved by hand are told apart") {
  for (const auto& [other, words] :
       {std::pair{Kind::kEvaluation, "began an evaluation"}, std::pair{Kind::kByHand, "moved up.weights by hand"},
        std::pair{Kind::kEndPass, "ended its pass after visit 0"}}) {
    Ranks ranks(2);
    ranks.pages[0].add(Kind::kPass, 0);
    ranks.pages[1].add(other, 0);
    const std::string said = ranks.differ().value_or("");
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
  CHECK(says(others.differ().value_or(""), "rank 0 began micro-batch 1 of its pass after visit 1"));
}

TEST_CASE("visits are numbered anew in each step, and the first difference is found however long ago the ring allows") {
  Ranks ranks(2);
  for (int i = 0; i < 3000; ++i) ranks.all(Kind::kForward, 1);
  for (VisitPage& page : ranks.pages) page.begin_step();
  ranks.all(Kind::kPass);
  ranks.all(Kind::kForward, 1);
  ranks.pages[0].add(Kind::kForward, 1);
  ranks.pages[1].add(Kind::kForward, 2);
  for (uint64_t i = 0; i < VisitPage::kRing - 8; ++i) ranks.all(Kind::kForward, 1);
  CHECK(says(ranks.differ().value_or(""), "as visit 1"));
  for (uint64_t i = 0; i < VisitPage::kRing; ++i) ranks.all(Kind::kForward, 1);
  CHECK(ranks.differ().has_value());  // that they differ is still seen
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
