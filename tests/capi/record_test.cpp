// The record of a loop in C: what an audit finds in it, and what a restart goes on from.
#include <doctest/doctest.h>

#include <cstddef>

#include "recorded_job.hpp"

using namespace pliant::test;

TEST_CASE("a loop in C leaves a run that an audit finds whole, over a restart from its snapshot") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  OwnedRecord record = job.begin();
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  const std::string directory = facts.directory;
  REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
  for (int64_t step = 0; step < 3; ++step) job.commit(record.get(), step);
  const std::string state = "weights";
  REQUIRE(pliant_record_keep_snapshot(record.get(), state.data(), state.size(), "rate", 4, nullptr) == PLIANT_OK);
  job.commit(record.get(), 3);
  record.reset();

  record = made_by<OwnedRecord>([&](auto to, auto error) {
    return pliant_record_open(directory.c_str(), job.config.get(), job.plan.get(), job.batches.get(), to, error);
  });
  pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
  REQUIRE(pliant_record_restore(record.get(), &from, nullptr) == PLIANT_OK);
  CHECK(from.step == 3);
  CHECK(std::string(static_cast<const char*>(from.state), from.bytes) == state);
  CHECK(std::string(from.lr_state, from.lr_bytes) == "rate");
  REQUIRE(pliant_record_start_generation(record.get(), 3, "restarted", nullptr) == PLIANT_OK);
  for (int64_t step = 3; step < 6; ++step) job.commit(record.get(), step);

  pliant_audit_t audit = PLIANT_INIT(pliant_audit_t);
  REQUIRE(pliant_audit_run(directory.c_str(), &audit, nullptr) == PLIANT_OK);
  CHECK(audit.is_whole == 1);
  CHECK(audit.steps == 6);
  CHECK(audit.samples_used_once == audit.samples_expected);
  CHECK(audit.differences == 0);
}

TEST_CASE("a record says where the next batch is, also behind the last one of an epoch and after a restart") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  OwnedRecord record = job.begin();
  const auto look = [&] {
    pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
    REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
    return facts;
  };
  const std::string directory = look().directory;
  pliant_epoch_summary_t first = PLIANT_INIT(pliant_epoch_summary_t);
  REQUIRE(pliant_batches_epoch(job.batches.get(), 0, &first, nullptr) == PLIANT_OK);
  REQUIRE(first.batches > 1);
  CHECK(look().epoch == 0);
  CHECK(look().index == 0);
  REQUIRE(pliant_record_start_generation(record.get(), 3, "start", nullptr) == PLIANT_OK);
  for (int64_t step = 0; step < first.batches; ++step) job.commit(record.get(), step);
  CHECK(look().epoch == 0);
  CHECK(look().index == first.batches);
  job.commit(record.get(), first.batches);
  CHECK(look().epoch == 1);
  CHECK(look().index == 1);

  record.reset();
  record = made_by<OwnedRecord>([&](auto to, auto error) {
    return pliant_record_open(directory.c_str(), job.config.get(), job.plan.get(), job.batches.get(), to, error);
  });
  const pliant_record_facts_t opened = look();
  CHECK(opened.epoch == 1);
  CHECK(opened.index == 1);
  const auto view_of = [](const OwnedBatch& batch) {
    pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
    REQUIRE(pliant_batch_look(batch.get(), &view, nullptr) == PLIANT_OK);
    return view;
  };
  const auto next = made_by<OwnedBatch>([&](auto to, auto error) {
    return pliant_batches_batch(job.batches.get(), opened.epoch, opened.index, to, error);
  });
  CHECK(view_of(next).digest == view_of(job.at_step(opened.steps)).digest);
  pliant_restored_t from = PLIANT_INIT(pliant_restored_t);
  REQUIRE(pliant_record_restore(record.get(), &from, nullptr) == PLIANT_OK);
  CHECK(from.step == 0);  // no snapshot was kept
  CHECK(look().steps == 0);
  CHECK(look().epoch == 0);
  CHECK(look().index == 0);
}

TEST_CASE("a program of a header without the place of the next batch gets what that header has") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  const OwnedRecord record = job.begin();
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  facts.struct_size = offsetof(pliant_record_facts_t, epoch);
  facts.epoch = facts.index = -7;
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  CHECK(facts.directory != nullptr);
  CHECK(facts.epoch == -7);
  CHECK(facts.index == -7);
}

TEST_CASE("a record that another one has open is refused") {
  const ScratchFolder folder;
  const RecordedJob job(folder);
  const OwnedRecord record = job.begin();
  pliant_record_facts_t facts = PLIANT_INIT(pliant_record_facts_t);
  REQUIRE(pliant_record_look(record.get(), &facts, nullptr) == PLIANT_OK);
  pliant_record_t* other = nullptr;
  CHECK(pliant_record_open(facts.directory, job.config.get(), job.plan.get(), job.batches.get(), &other, nullptr) ==
        PLIANT_FAILED_PRECONDITION);
  CHECK(other == nullptr);
}
