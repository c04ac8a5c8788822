// What a run has left, in C: reports, comparisons, and snapshots whose state comes and goes in pieces.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "pliant/audit.hpp"
#include "pliant/report.hpp"
#include "recorded_job.hpp"

using namespace pliant::test;

namespace {

std::string directory_of(const OwnedRecord& record) {
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  return facts.directory;
}

/// A run of three ranks over `steps` steps.
std::string run_of(const RecordedJob& job, int64_t steps) {
  const OwnedRecord record = job.begin();
  REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
  for (int64_t step = 0; step < steps; ++step) job.commit(record.get(), step);
  return directory_of(record);
}

OwnedRecord opened_again(const RecordedJob& job, const std::string& directory) {
  return made_by<OwnedRecord>([&](auto to, auto error) {
    return pliant_record_open(directory.c_str(), job.config.get(), job.plan.get(), job.batches.get(), to, error);
  });
}

/// A state of 3 MB that is in no one buffer: made piece by piece, and checked piece by piece.
struct LargeState {
  static constexpr uint64_t kBytes = 3'000'001;
  std::vector<char> piece = std::vector<char>(70'001);
  uint64_t given = 0;
  uint64_t taken = 0;
  uint64_t largest = 0;
  uint64_t fails_after = UINT64_MAX;
  bool is_same = true;

  static char byte(uint64_t at) { return static_cast<char>(at * 31 % 251); }
  static int32_t next(void* context, const void** piece, uint64_t* bytes) {
    auto& of = *static_cast<LargeState*>(context);
    if (of.given >= of.fails_after) return PLIANT_ABORTED;
    const uint64_t count = std::min<uint64_t>(of.piece.size(), kBytes - of.given);
    for (uint64_t i = 0; i < count; ++i) of.piece[i] = byte(of.given + i);
    of.given += count;
    *piece = of.piece.data();
    *bytes = count;
    return PLIANT_OK;
  }
  static int32_t take(void* context, const void* piece, uint64_t bytes) {
    auto& of = *static_cast<LargeState*>(context);
    if (of.taken >= of.fails_after) return PLIANT_ABORTED;
    const auto* const seen = static_cast<const char*>(piece);
    for (uint64_t i = 0; i < bytes; ++i) of.is_same = of.is_same && seen[i] == byte(of.taken + i);
    of.taken += bytes;
    of.largest = std::max(of.largest, bytes);
    return PLIANT_OK;
  }
};

}  // namespace

TEST_CASE("a state that is kept in pieces comes back in pieces, the same bytes, and in one buffer for who wants that") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  std::string directory;
  {
    const OwnedRecord record = job.begin();
    directory = directory_of(record);
    REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
    for (int64_t step = 0; step < 2; ++step) job.commit(record.get(), step);
    LargeState state;
    REQUIRE(pliant_record_keep_pieces(record.get(), &LargeState::next, &state, "rate", 4, nullptr) == PLIANT_OK);
    CHECK(state.given == LargeState::kBytes);
  }
  OwnedRecord record = opened_again(job, directory);
  LargeState state;
  pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
  REQUIRE(pliant_record_restore_pieces(record.get(), &LargeState::take, &state, &from, nullptr) == PLIANT_OK);
  CHECK(from.step == 2);
  CHECK(from.state == nullptr);
  CHECK(from.bytes == LargeState::kBytes);
  CHECK(std::string(from.lr_state, from.lr_bytes) == "rate");
  CHECK(state.taken == LargeState::kBytes);
  CHECK(state.is_same);
  CHECK(state.largest <= (1U << 20U));
  REQUIRE(pliant_record_restore(record.get(), &from, nullptr) == PLIANT_OK);
  CHECK(from.bytes == LargeState::kBytes);
  CHECK(static_cast<const char*>(from.state)[LargeState::kBytes - 1] == LargeState::byte(LargeState::kBytes - 1));
}

TEST_CASE("a snapshot whose state ends with a status of the program's own is not kept, and the one before it stays") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  const OwnedRecord record = job.begin();
  REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
  job.commit(record.get(), 0);
  REQUIRE(pliant_record_keep_snapshot(record.get(), "first", 5, nullptr, 0, nullptr) == PLIANT_OK);
  job.commit(record.get(), 1);
  const auto files = [&] {
    size_t count = 0;
    for ([[maybe_unused]] const auto& one : std::filesystem::recursive_directory_iterator(directory_of(record)))
      ++count;
    return count;
  };
  const size_t before = files();
  LargeState state;
  state.fails_after = 1'000'000;
  CHECK(pliant_record_keep_pieces(record.get(), &LargeState::next, &state, nullptr, 0, nullptr) == PLIANT_ABORTED);
  CHECK(last_message().find("next of a state ended with status 8") != std::string::npos);
  CHECK(files() == before);
  const auto no_memory = [](void*, const void** piece, uint64_t* bytes) {
    *piece = nullptr;
    *bytes = 7;
    return int32_t{PLIANT_OK};
  };
  CHECK(pliant_record_keep_pieces(record.get(), no_memory, nullptr, nullptr, 0, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_record_keep_pieces(record.get(), nullptr, nullptr, nullptr, 0, nullptr) == PLIANT_INVALID_ARGUMENT);
  pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
  LargeState none;
  none.fails_after = 0;
  CHECK(pliant_record_restore_pieces(record.get(), &LargeState::take, &none, &from, nullptr) == PLIANT_ABORTED);
  CHECK(pliant_record_restore_pieces(record.get(), nullptr, nullptr, &from, nullptr) == PLIANT_INVALID_ARGUMENT);
  REQUIRE(pliant_record_restore(record.get(), &from, nullptr) == PLIANT_OK);
  CHECK(from.step == 1);
  CHECK(std::string(static_cast<const char*>(from.state), from.bytes) == "first");
}

TEST_CASE("the report of a run in C is the one of C++, step by step and group by group") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  std::string directory;
  {
    const OwnedRecord record = job.begin();
    directory = directory_of(record);
    REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
    for (int64_t step = 0; step < 2; ++step) job.commit(record.get(), step);
    REQUIRE(pliant_record_keep_snapshot(record.get(), "w", 1, nullptr, 0, nullptr) == PLIANT_OK);
    job.commit(record.get(), 2);
  }
  {
    const OwnedRecord record = opened_again(job, directory);
    pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
    REQUIRE(pliant_record_restore(record.get(), &from, nullptr) == PLIANT_OK);
    REQUIRE(pliant_record_start_generation(record.get(), 3, "restarted", nullptr) == PLIANT_OK);
    for (int64_t step = 2; step < 5; ++step) job.commit(record.get(), step);
  }
  const auto report =
      made_by<OwnedReport>([&](auto to, auto error) { return pliant_report_run(directory.c_str(), to, error); });
  pliant_report_view_t view = PLIANT_INIT(pliant_report_view_t);
  REQUIRE(pliant_report_look(report.get(), &view, nullptr) == PLIANT_OK);
  const pliant::RunReport cpp = pliant::report_run(directory);
  CHECK(view.run_id == cpp.run_id);
  CHECK(view.directory == cpp.directory.string());
  REQUIRE(view.step_count == 5);
  for (size_t i = 0; i < cpp.steps.size(); ++i) {
    CAPTURE(i);
    CHECK(view.generations[i] == cpp.steps[i].generation);
    CHECK(view.world_sizes[i] == 3);
    CHECK(view.losses[i] == 0.5);
    CHECK(view.learning_rates[i] == cpp.steps[i].learning_rate);
    CHECK(view.tokens[i] == cpp.steps[i].tokens);
    CHECK(view.rows[i] == cpp.steps[i].rows);
    CHECK((view.is_skipped[i] != 0) == cpp.steps[i].skipped);
    CHECK((view.is_short[i] != 0) == cpp.steps[i].short_batch);
  }
  REQUIRE(view.group_count == cpp.groups.size());
  REQUIRE(view.group_count == 2);
  for (size_t i = 0; i < cpp.groups.size(); ++i) {
    CAPTURE(i);
    CHECK(view.group_generations[i] == cpp.groups[i].generation);
    CHECK(view.group_steps[i] == cpp.groups[i].step);
    CHECK(view.group_world_sizes[i] == cpp.groups[i].world_size);
    CHECK(view.group_causes[i] == static_cast<int32_t>(cpp.groups[i].cause));
    CHECK(view.group_reasons[i] == cpp.groups[i].reason);
    CHECK(view.group_steps_discarded[i] == cpp.groups[i].steps_discarded);
  }
  CHECK(view.group_steps[1] == 2);
  CHECK(view.steps_discarded == 1);
  CHECK(view.steps_skipped == 0);
  CHECK(view.not_finite_step == -1);
  pliant_report_t* none = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_report_run((folder / "nowhere").c_str(), &none, &error) == PLIANT_NOT_FOUND);
  CHECK(error.exit_code == 2);
  CHECK(none == nullptr);
}

TEST_CASE("two runs are compared in C as in C++: of the same steps without digests of states, and of one step more") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  const std::string first = run_of(job, 3);
  const std::string same = run_of(job, 3);
  const std::string longer = run_of(job, 4);
  const auto compared = [&](const std::string& other) {
    return made_by<OwnedComparison>(
        [&](auto to, auto error) { return pliant_compare_runs(first.c_str(), other.c_str(), to, error); });
  };
  const OwnedComparison of_same_steps = compared(same);
  pliant_comparison_view_t view = PLIANT_INIT(pliant_comparison_view_t);
  REQUIRE(pliant_comparison_look(of_same_steps.get(), &view, nullptr) == PLIANT_OK);
  CHECK(view.is_equal == 0);
  CHECK(view.steps == 3);
  CHECK(view.states == 0);
  CHECK(view.differs == -1);
  CHECK(view.how == pliant::compare_runs(first, same).how);
  CHECK(std::string(view.how).find("no step has a digest of its state") == 0);
  const OwnedComparison different = compared(longer);
  REQUIRE(pliant_comparison_look(different.get(), &view, nullptr) == PLIANT_OK);
  const pliant::RunComparison cpp = pliant::compare_runs(first, longer);
  CHECK(view.is_equal == 0);
  CHECK(view.how == cpp.how);
  CHECK(view.differs == cpp.differs);
  CHECK(view.part_count == cpp.parts.size());
  CHECK(view.parts_step == cpp.parts_step);
  pliant_comparison_t* none = nullptr;
  CHECK(pliant_compare_runs(first.c_str(), nullptr, &none, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_compare_runs(first.c_str(), "/nowhere", &none, nullptr) == PLIANT_NOT_FOUND);
  CHECK(none == nullptr);
}
