// report_run: the course of a run, from ledgers that were written for it.
#include "pliant/report.hpp"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <vector>

#include "elastic/run_directory.hpp"
#include "ledger_samples.hpp"
#include "scratch_folder.hpp"

namespace pliant::elastic {
namespace {

using test::commit_of;
using test::filled_ledger;
using test::ScratchFolder;

}  // namespace

TEST_CASE("a report has the steps that survive, and those of each restart apart from them") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 6);
  REQUIRE(ledger.append(RestartRecord{4}).has_value());
  REQUIRE(ledger.append(GenerationRecord{2, 2, 4, "a loss", {}, GroupCause::kLoss}).has_value());
  REQUIRE(ledger.append(commit_of(4)).has_value());
  REQUIRE(ledger.append(RestartRecord{5}).has_value());  // nothing is lost by that
  REQUIRE(ledger.append(RestartRecord{0}).has_value());
  REQUIRE(ledger.append(GenerationRecord{3, 2, 0, "start", {}, GroupCause::kStart}).has_value());
  REQUIRE(ledger.append(commit_of(0)).has_value());
  const RunReport report = report_run(folder.path());
  CHECK(report.run_id == "run-1");
  REQUIRE(report.steps.size() == 1);
  CHECK(report.steps[0].world_size == 4);  // the shares of commit_of
  CHECK(report.steps[0].loss == commit_of(0).loss);
  CHECK_FALSE(report.steps[0].short_batch);
  REQUIRE(report.discarded.size() == 2);
  CHECK(report.discarded[0].size() == 2);
  CHECK(report.discarded[0][1].step == 5);
  CHECK(report.discarded[0][1].short_batch);
  CHECK(report.discarded[1].size() == 5);
  CHECK(report.steps_discarded() == 7);
  REQUIRE(report.groups.size() == 3);
  CHECK(report.groups[0].cause == GroupCause::kUnknown);
  CHECK(report.groups[0].world_size_before == 0);
  CHECK(report.groups[1].cause == GroupCause::kLoss);
  CHECK(report.groups[1].world_size_before == 3);
  CHECK(report.groups[1].steps_discarded == 2);
  CHECK(report.groups[2].cause == GroupCause::kResume);
  CHECK(report.groups[2].steps_discarded == 5);
}

TEST_CASE("a batch is short where it has fewer rows than the job's, whether the others are empty or not there") {
  const ScratchFolder folder;
  {
    Ledger ledger = filled_ledger(folder / "ledger.jsonl", 0);
    const std::array<BatchSize, 3> sizes{{{7, 7, 70, 70, 0}, {5, 5, 50, 50, 0}, {7, 6, 60, 60, 1}}};
    for (size_t step = 0; step < sizes.size(); ++step) {
      CommitRecord commit = commit_of(static_cast<int64_t>(step));
      commit.size = sizes[step];
      REQUIRE(ledger.append(commit).has_value());
    }
  }
  const auto is_short = [&folder] {
    std::vector<bool> marks;
    for (const StepReport& one : report_run(folder.path()).steps) marks.push_back(one.short_batch);
    return marks;
  };
  CHECK(is_short() == std::vector<bool>{false, true, true});  // beside the largest
  const auto directory = RunDirectory::open(folder.path());
  REQUIRE(directory.has_value());
  REQUIRE(directory->fill({"run-1", "name", 8, 1}, "").has_value());
  CHECK(is_short() == std::vector<bool>{true, true, true});  // as the job says
  const RunReport report = report_run(folder.path());
  CHECK(report.steps[1].rows == 5);
  CHECK(report.steps[2].rows == 6);
}

TEST_CASE("a step that was not finite ends a report until a resume has come past it") {
  const ScratchFolder folder;
  Ledger ledger = filled_ledger(folder / "ledger.jsonl", 2);
  REQUIRE(ledger.append(NotFiniteRecord{2, "row 3 on rank 1"}).has_value());
  const RunReport ended = report_run(folder.path());
  CHECK(ended.not_finite_step == 2);
  CHECK(ended.not_finite_reason == "row 3 on rank 1");
  REQUIRE(ledger.append(RestartRecord{1}).has_value());
  REQUIRE(ledger.append(commit_of(1)).has_value());
  CHECK(report_run(folder.path()).not_finite_step == 2);
  REQUIRE(ledger.append(commit_of(2)).has_value());
  CHECK_FALSE(report_run(folder.path()).not_finite_step.has_value());
}

TEST_CASE("a ledger keeps for what cause a group was formed, also in a copy") {
  const ScratchFolder folder;
  {
    Ledger ledger = filled_ledger(folder / "ledger.jsonl", 1);
    int64_t generation = 2;
    for (const GroupCause cause :
         {GroupCause::kLoss, GroupCause::kLeave, GroupCause::kJoin, GroupCause::kFault, GroupCause::kUnknown}) {
      REQUIRE(ledger.append(GenerationRecord{generation++, 2, 1, "why", {}, cause}).has_value());
    }
    REQUIRE(ledger.copy_to(folder / "copy").has_value());
  }
  for (const char* name : {"ledger.jsonl", "copy"}) {
    const auto lineage = Ledger::replay(folder / name);
    REQUIRE(lineage.has_value());
    REQUIRE(lineage->generations.size() == 6);
    CHECK(lineage->generations[1].cause == GroupCause::kLoss);
    CHECK(lineage->generations[2].cause == GroupCause::kLeave);
    CHECK(lineage->generations[3].cause == GroupCause::kJoin);
    CHECK(lineage->generations[4].cause == GroupCause::kFault);
    CHECK(lineage->generations[5].cause == GroupCause::kUnknown);
  }
}

}  // namespace pliant::elastic
