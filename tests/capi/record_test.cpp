// The record of a loop in C: what an audit finds in it, and what a restart goes on from.
#include <doctest/doctest.h>

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
