// The ledger's records, order and lineage.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <limits>

#include "elastic/ledger.hpp"
#include "elastic/ledger_line.hpp"
#include "ledger_samples.hpp"
#include "scratch_folder.hpp"

namespace pliant::elastic {
namespace {

using test::commit_of;
using test::filled_ledger;
using test::same;
using test::ScratchFolder;

TEST_CASE("a new ledger has an empty lineage and the job's fingerprint") {
  const ScratchFolder folder;
  REQUIRE(Ledger::create(folder / "ledger.jsonl", "run-1", "00ff").has_value());
  const auto lineage = Ledger::replay(folder / "ledger.jsonl");
  REQUIRE(lineage.has_value());
  CHECK(lineage->fingerprint == "00ff");
  CHECK(lineage->commits.empty());
  CHECK(lineage->generations.empty());
  CHECK(lineage->snapshots.empty());
}

TEST_CASE("a ledger keeps which steps were skipped, and where the job ended for a step that was not finite") {
  const ScratchFolder folder;
  {
    Ledger ledger = filled_ledger(folder / "ledger.jsonl", 1);
    CommitRecord skipped = commit_of(1);
    skipped.skipped = true;
    skipped.state = 0x00c0ffee00c0ffee;
    REQUIRE(ledger.append(skipped).has_value());
    REQUIRE(ledger.append(NotFiniteRecord{2, "row 3 on rank 1"}).has_value());
    REQUIRE(ledger.copy_to(folder / "copy").has_value());
  }
  for (const char* name : {"ledger.jsonl", "copy"}) {
    const auto lineage = Ledger::replay(folder / name);
    REQUIRE(lineage.has_value());
    REQUIRE(lineage->commits.size() == 2);
    CHECK_FALSE(lineage->commits[0].skipped);
    CHECK(lineage->commits[1].skipped);
    CHECK_FALSE(lineage->commits[0].state.has_value());
    CHECK(lineage->commits[1].state == 0x00c0ffee00c0ffee);
    CHECK(lineage->not_finite_step == 2);
  }
}

TEST_CASE("a ledger keeps metrics and evaluations, also in a copy, and those of states that are void are void") {
  const ScratchFolder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  {
    Ledger ledger = filled_ledger(folder / "ledger.jsonl", 1);
    CommitRecord measured = commit_of(1);
    measured.metrics = {{"accuracy", 0.1}, {"grad/norm", infinity}};
    REQUIRE(ledger.append(measured).has_value());
    REQUIRE(ledger.append(Evaluation{2, 3, 1, {{"valid", 0.3}, {"other", 1}}}).has_value());
    REQUIRE(ledger.append(Evaluation{1, 1, 0, {{"valid", 0.5}}}).has_value());
    REQUIRE(ledger.append(Evaluation{2, 2, 0, {{"valid", 0.25}}}).has_value());  // once more
    REQUIRE(ledger.append(commit_of(2)).has_value());
    REQUIRE(ledger.append(Evaluation{3, 1, 0, {{"valid", 9}}}).has_value());
    REQUIRE(ledger.append(RestartRecord{2}).has_value());
    CHECK_FALSE(ledger.append(Evaluation{3, 1, 0, {{"valid", 9}}}).has_value());
    REQUIRE(ledger.copy_to(folder / "copy").has_value());
  }
  for (const char* name : {"ledger.jsonl", "copy"}) {
    const auto lineage = Ledger::replay(folder / name);
    REQUIRE(lineage.has_value());
    CHECK(lineage->commits[0].metrics.empty());  // as in ledgers that had none
    CHECK(lineage->commits[1].metrics == std::map<std::string, double>{{"accuracy", 0.1}, {"grad/norm", infinity}});
    REQUIRE(lineage->evaluations.size() == 2);
    CHECK(lineage->evaluations[0].step == 1);
    CHECK(lineage->evaluations[0].values == std::map<std::string, double>{{"valid", 0.5}});
    CHECK(lineage->evaluations[1].ranks == 2);
    CHECK(lineage->evaluations[1].lost == 0);
    CHECK(lineage->evaluations[1].values == std::map<std::string, double>{{"other", 1}, {"valid", 0.25}});
  }
}

TEST_CASE("a ledger keeps where the program asked for the end, until a step is committed after it or it is void") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2);
  CHECK_FALSE(ledger.append(EndRecord{3, "good enough"}).has_value());
  REQUIRE(ledger.append(EndRecord{2, "good enough"}).has_value());
  REQUIRE(ledger.copy_to(folder / "copy").has_value());
  for (const char* name : {"ledger.jsonl", "copy"}) {
    const auto lineage = Ledger::replay(folder / name);
    REQUIRE(lineage.has_value());
    REQUIRE(lineage->end.has_value());
    CHECK(lineage->end->step == 2);
    CHECK(lineage->end->reason == "good enough");
  }
  SUBCASE("the run was resumed") {
    REQUIRE(ledger.append(commit_of(2)).has_value());
  }
  SUBCASE("the job went back") {
    REQUIRE(ledger.append(RestartRecord{1}).has_value());
  }
  CHECK_FALSE(ledger.lineage().end.has_value());
}

TEST_CASE("a ledger keeps by which config a step was made, also in a copy and where the job went back") {
  const ScratchFolder folder;
  {
    Ledger ledger = filled_ledger(folder / "ledger.jsonl", 3);
    REQUIRE(ledger.append(GenerationRecord{1, 2, 3, "resumed", "00aa"}).has_value());
    REQUIRE(ledger.append(commit_of(3)).has_value());
    REQUIRE(ledger.append(RestartRecord{2}).has_value());
    REQUIRE(ledger.append(GenerationRecord{2, 2, 2, "a loss", "00bb"}).has_value());
    REQUIRE(ledger.append(commit_of(2)).has_value());
    REQUIRE(ledger.append(GenerationRecord{3, 2, 3, "a loss", "00bb"}).has_value());
    REQUIRE(ledger.copy_to(folder / "copy").has_value());
  }
  for (const char* name : {"ledger.jsonl", "copy"}) {
    const auto lineage = Ledger::replay(folder / name);
    REQUIRE(lineage.has_value());
    REQUIRE(lineage->generations.size() == 4);
    CHECK(lineage->began_before == std::vector<size_t>{1, 1, 3});
    CHECK(lineage->generations[0].config.empty());
    CHECK(lineage->generations[2].config == "00bb");
  }
}

TEST_CASE("a snapshot that is not confirmed is so until a commit has the state that its ranks began with") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2);
  REQUIRE(ledger.append(SnapshotRecord{1, "a", {}}).has_value());
  REQUIRE(ledger.append(SnapshotRecord{2, "b", {}, true}).has_value());
  REQUIRE(ledger.append(commit_of(2)).has_value());  // nobody compared
  const auto is_unconfirmed = [&folder](const char* name) {
    const auto lineage = Ledger::replay(folder / name);
    REQUIRE(lineage.has_value());
    REQUIRE(lineage->snapshots.size() == 2);
    CHECK_FALSE(lineage->snapshots[0].unconfirmed);
    return lineage->snapshots[1].unconfirmed;
  };
  REQUIRE(ledger.copy_to(folder / "before").has_value());
  CHECK(is_unconfirmed("ledger.jsonl"));
  CHECK(is_unconfirmed("before"));
  CommitRecord compared = commit_of(3);
  compared.state = 7;
  REQUIRE(ledger.append(compared).has_value());
  REQUIRE(ledger.copy_to(folder / "after").has_value());
  CHECK_FALSE(is_unconfirmed("ledger.jsonl"));
  CHECK_FALSE(is_unconfirmed("after"));
}

TEST_CASE("create leaves a ledger that exists alone") {
  const ScratchFolder folder;
  { const Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2); }
  const std::string before = test::read_all(folder / "ledger.jsonl");
  const auto second = Ledger::create(folder / "ledger.jsonl", "run-2", "11");
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().status() == Status::kFailedPrecondition);
  CHECK(second.error().message().find("ledger.jsonl exists already") != std::string::npos);
  CHECK(test::read_all(folder / "ledger.jsonl") == before);
}

TEST_CASE("a ledger knows when its file is no longer in place, and can be copied all the same") {
  const ScratchFolder folder;
  const auto file = folder / "ledger.jsonl";
  Ledger ledger = filled_ledger(file, 3);
  CHECK(ledger.check_in_place().has_value());
  std::filesystem::rename(file, folder / "moved");
  CHECK(ledger.check_in_place().error().status() == Status::kNotFound);
  test::write_all(file, "another");
  CHECK(ledger.check_in_place().error().message().find("ledger.jsonl was removed") != std::string::npos);
  std::filesystem::remove(folder / "moved");
  auto copy = ledger.copy_to(folder / "copy");
  REQUIRE(copy.has_value());
  CHECK(copy->check_in_place().has_value());
  REQUIRE(copy->append(commit_of(3)).has_value());
  const auto read = Ledger::replay(folder / "copy");
  REQUIRE(read.has_value());
  CHECK(read->commits.size() == 4);
  CHECK(read->fingerprint == ledger.lineage().fingerprint);
}

TEST_CASE("a snapshot that is recorded again is one snapshot") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 3);
  for (const int64_t step : {1, 2, 2, 3, 3}) {
    REQUIRE(ledger.append(SnapshotRecord{step, "step-" + std::to_string(step)}).has_value());
  }
  for (const Lineage& lineage : {ledger.lineage(), *Ledger::replay(folder / "ledger.jsonl")}) {
    REQUIRE(lineage.snapshots.size() == 3);
    CHECK(lineage.snapshots.back().step == 3);
  }
}

TEST_CASE("a file that never held a whole line is blank, a ledger is not") {
  const ScratchFolder folder;
  for (const char* begin : {"", "{\"record\":\"ledger\""}) CHECK(Ledger::is_blank(folder.write("blank", begin)));
  CHECK_FALSE(Ledger::is_blank(folder.write("damaged", "no record\n")));
  CHECK_FALSE(Ledger::is_blank(folder / "none"));
  { const Ledger ledger = filled_ledger(folder / "ledger.jsonl", 0); }
  CHECK_FALSE(Ledger::is_blank(folder / "ledger.jsonl"));
  CHECK(folder.names().size() == 3);  // nothing of its making is left
}

TEST_CASE("create and open name a folder that is missing") {
  const ScratchFolder folder;
  for (const auto& ledger : {Ledger::create(folder / "no/ledger", "run", "f"), Ledger::open(folder / "no/ledger")}) {
    REQUIRE_FALSE(ledger.has_value());
    CHECK(ledger.error().status() == Status::kNotFound);
    CHECK(ledger.error().message().find("no/ledger") != std::string::npos);
  }
}

TEST_CASE("a ledger that was closed opens with all its records and goes on") {
  const ScratchFolder folder;
  {
    Ledger ledger = filled_ledger(folder / "ledger.jsonl", 3);
    REQUIRE(ledger.append(SnapshotRecord{3, "snapshots/step-00000003.snapshot"}).has_value());
  }
  auto ledger = Ledger::open(folder / "ledger.jsonl");
  REQUIRE(ledger.has_value());
  REQUIRE(ledger->append(GenerationRecord{2, 2, 3, "worker 2 was killed by signal 9"}).has_value());
  REQUIRE(ledger->append(commit_of(3)).has_value());
  const auto read = Ledger::replay(folder / "ledger.jsonl");
  REQUIRE(read.has_value());
  for (const Lineage* lineage : {&ledger->lineage(), &*read}) {
    REQUIRE(lineage->commits.size() == 4);
    for (size_t i = 0; i < 4; ++i) CHECK(same(lineage->commits[i], commit_of(static_cast<int64_t>(i))));
    REQUIRE(lineage->generations.size() == 2);
    CHECK(lineage->generations[1].reason == "worker 2 was killed by signal 9");
    CHECK(lineage->generations[1].next_step == 3);
    REQUIRE(lineage->snapshots.size() == 1);
    CHECK(lineage->snapshots[0].file == "snapshots/step-00000003.snapshot");
  }
}

TEST_CASE("a snapshot keeps the digest of its state where the ranks compared it") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2);
  REQUIRE(ledger.append(SnapshotRecord{1, "one"}).has_value());
  REQUIRE(ledger.append(SnapshotRecord{2, "two", 0x00c0ffee00c0ffee}).has_value());
  const auto read = Ledger::replay(folder / "ledger.jsonl");
  REQUIRE(read.has_value());
  REQUIRE(read->snapshots.size() == 2);
  CHECK_FALSE(read->snapshots[0].state.has_value());
  CHECK(read->snapshots[1].state == 0x00c0ffee00c0ffee);
}

TEST_CASE("a restart makes the commits and snapshots behind it void") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2);
  REQUIRE(ledger.append(SnapshotRecord{2, "two"}).has_value());
  for (int64_t step = 2; step < 5; ++step) REQUIRE(ledger.append(commit_of(step)).has_value());
  REQUIRE(ledger.append(SnapshotRecord{5, "five"}).has_value());
  REQUIRE(ledger.append(RestartRecord{2}).has_value());
  CommitRecord again = commit_of(2);
  again.loss = 42;
  REQUIRE(ledger.append(again).has_value());
  const auto read = Ledger::replay(folder / "ledger.jsonl");
  REQUIRE(read.has_value());
  for (const Lineage* lineage : {&ledger.lineage(), &*read}) {
    REQUIRE(lineage->commits.size() == 3);
    CHECK(lineage->commits[2].loss == 42);
    REQUIRE(lineage->snapshots.size() == 1);
    CHECK(lineage->snapshots[0].file == "two");
  }
}

TEST_CASE("a record that cannot follow is refused and nothing is written") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2);
  const std::string before = test::read_all(folder / "ledger.jsonl");
  CommitRecord negative = commit_of(2);
  negative.epoch = -1;
  for (const auto& refused :
       {ledger.append(commit_of(3)), ledger.append(commit_of(1)), ledger.append(commit_of(-1)), ledger.append(negative),
        ledger.append(SnapshotRecord{3, "three"}), ledger.append(SnapshotRecord{-1, "none"}),
        ledger.append(RestartRecord{3}), ledger.append(RestartRecord{-1})}) {
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status() == Status::kInvalidArgument);
    CHECK(refused.error().message().find("ledger.jsonl") != std::string::npos);
  }
  CHECK(test::read_all(folder / "ledger.jsonl") == before);
  CHECK(ledger.lineage().commits.size() == 2);
}

TEST_CASE("only one writer has a ledger open, readers are welcome") {
  const ScratchFolder folder;
  const Ledger ledger = filled_ledger(folder / "ledger.jsonl", 1);
  const auto second = Ledger::open(folder / "ledger.jsonl");
  REQUIRE_FALSE(second.has_value());
  CHECK(second.error().status() == Status::kFailedPrecondition);
  CHECK(Ledger::replay(folder / "ledger.jsonl").has_value());
}

TEST_CASE("text of any bytes survives as far as it is UTF-8") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 0);
  REQUIRE(ledger.append(GenerationRecord{2, 1, 0, "line\nbreak \"quoted\" \\ \xc3\xa9"}).has_value());
  REQUIRE(ledger.append(GenerationRecord{3, 1, 0, std::string("bad \xff byte and \0 nul", 20)}).has_value());
  const auto read = Ledger::replay(folder / "ledger.jsonl");
  REQUIRE(read.has_value());
  CHECK(read->generations[1].reason == "line\nbreak \"quoted\" \\ \xc3\xa9");
  CHECK(read->generations[2].reason == ledger.lineage().generations[2].reason);
  CHECK(read->generations[2].reason.find("bad ") == 0);
}

TEST_CASE("every double and every digest comes back bit by bit") {
  const bool held = rc::check([] {
    CommitRecord commit = commit_of(*rc::gen::inRange<int64_t>(0, std::numeric_limits<int64_t>::max() / 2));
    commit.loss = std::bit_cast<double>(*rc::gen::arbitrary<uint64_t>());
    commit.learning_rate = *rc::gen::arbitrary<double>();
    commit.digest = *rc::gen::arbitrary<uint64_t>();
    commit.shares.assign(*rc::gen::inRange<size_t>(0, 9), {{1, 2}, {4, 1}});
    const std::string line = encode_line(commit);
    RC_ASSERT(line.back() == '\n');
    const auto read = decode_line(std::string_view(line).substr(0, line.size() - 1));
    RC_ASSERT(read.has_value());
    const auto& got = std::get<CommitRecord>(*read);
    RC_ASSERT(got.digest == commit.digest);
    RC_ASSERT(got.shares == commit.shares);
    RC_ASSERT(std::bit_cast<uint64_t>(got.learning_rate) == std::bit_cast<uint64_t>(commit.learning_rate));
    if (std::isnan(commit.loss)) {
      RC_ASSERT(std::isnan(got.loss));
    } else {
      RC_ASSERT(std::bit_cast<uint64_t>(got.loss) == std::bit_cast<uint64_t>(commit.loss));
    }
  });
  CHECK(held);
}

TEST_CASE("infinite losses are recorded as what they are") {
  for (const double loss : {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), -0.0}) {
    CommitRecord commit = commit_of(0);
    commit.loss = loss;
    const std::string line = encode_line(commit);
    const auto read = decode_line(std::string_view(line).substr(0, line.size() - 1));
    REQUIRE(read.has_value());
    CHECK(std::bit_cast<uint64_t>(std::get<CommitRecord>(*read).loss) == std::bit_cast<uint64_t>(loss));
  }
}

TEST_CASE("a ledger that somebody else makes shorter or longer says so, and its records can be had elsewhere") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 3);
  REQUIRE(ledger.append(SnapshotRecord{2, "snapshots/two"}).has_value());
  CHECK(ledger.check_in_place().has_value());
  const auto size = std::filesystem::file_size(folder / "ledger.jsonl");
  for (const uintmax_t other : {size - 1, uintmax_t{0}, size + 1}) {
    CAPTURE(other);
    std::filesystem::resize_file(folder / "ledger.jsonl", other);
    const auto looked = ledger.check_in_place();
    REQUIRE_FALSE(looked.has_value());
    CHECK(looked.error().status() == Status::kDataLoss);
  }
  auto copy = ledger.copy_to(folder / "copy.jsonl");
  REQUIRE(copy.has_value());
  REQUIRE(copy->append(commit_of(3)).has_value());
  const auto read = Ledger::replay(folder / "copy.jsonl");
  REQUIRE(read.has_value());
  CHECK(read->commits.size() == 4);
  CHECK(read->generations.size() == ledger.lineage().generations.size());
  REQUIRE(read->snapshots.size() == 1);
  CHECK(read->snapshots[0].file == "snapshots/two");
  CHECK(read->run_id == ledger.lineage().run_id);
  CHECK(read->fingerprint == ledger.lineage().fingerprint);
}

}  // namespace
}  // namespace pliant::elastic
