// The audit counts uses and does not believe a ledger that the plan contradicts.
#include "elastic/audit.hpp"

#include <doctest/doctest.h>

#include <numeric>

#include "scratch_folder.hpp"

namespace pliant::elastic {
namespace {

using test::ScratchFolder;

/// 4 rows a batch; 22 sequences of which 2 are too long: 5 batches an epoch, and 2 epochs.
Batches small_job(const std::string& sampler =
                      "[sampler]\nuse = \"fixed\"\n[sampler.fixed]\nmax_tokens = 50\nover_long = \"drop\"\n") {
  const ScratchFolder folder;
  test::write_all(folder / "pliant.toml", "config_version = 1\n[run]\nepochs = 2\nseed = 5\n" + sampler);
  const ConfigNeeds needs{"sampler"};
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  const Config config = Config::open(folder / "pliant.toml", needs, overrides);
  Plan plan;
  plan.global_batch = 4;
  std::vector<int32_t> lengths(22);
  std::iota(lengths.begin(), lengths.end(), 10);
  lengths[3] = 100;
  lengths[17] = 51;
  return Batches(config, plan, {std::move(lengths), {}});
}

CommitRecord commit_of(Batches& batches, int64_t step) {
  const Batch batch = batches.at_step(step);
  CommitRecord commit;
  commit.step = step;
  commit.epoch = batch.epoch;
  commit.batch_index = batch.index;
  commit.size = batch.size;
  commit.digest = batch.digest;
  commit.shares = {{{0, 1}, {2, batch.size.rows - 2}}, {{1, 1}}, {}};
  return commit;
}

Lineage lineage_of(Batches& batches, int64_t steps) {
  Lineage lineage;
  for (int64_t step = 0; step < steps; ++step) lineage.commits.push_back(commit_of(batches, step));
  return lineage;
}

TEST_CASE("a whole run has used every sample once and counts the dropped ones by reason") {
  Batches batches = small_job();
  REQUIRE(batches.expected_steps() == 10);
  const auto counted = audit(lineage_of(batches, 10), batches, 10);
  REQUIRE(counted.has_value());
  CHECK(counted->expected == 40);
  CHECK(counted->used_once == 40);
  CHECK(counted->repeated == 0);
  CHECK(counted->missing == 0);
  CHECK(counted->dropped == std::map<std::string, int64_t>{{"too_long", 4}});
}

TEST_CASE("a sample in pieces is used once when each of its pieces is") {
  Batches batches = small_job("[sampler]\nuse = \"concat\"\n[sampler.concat]\nmax_tokens = 16\n");
  const int64_t steps = batches.expected_steps();
  const auto whole = audit(lineage_of(batches, steps), batches, steps);
  REQUIRE(whole.has_value());
  CHECK(whole->expected == 44);
  CHECK(whole->used_once == 44);
  Lineage hole = lineage_of(batches, steps);
  hole.commits[1] = hole.commits[0];
  hole.commits[1].step = 1;
  const auto holed = audit(hole, batches, steps);
  REQUIRE(holed.has_value());
  CHECK(holed->expected == 44);
  CHECK(holed->missing > 0);
  CHECK(holed->repeated > 0);
  CHECK(holed->used_once + holed->missing + holed->repeated == 44);
}

TEST_CASE("what was not committed is missing, and only the epochs that were asked for count") {
  Batches batches = small_job();
  const auto all = audit(lineage_of(batches, 3), batches, 10);
  REQUIRE(all.has_value());
  CHECK(all->expected == 40);
  CHECK(all->used_once == 12);
  CHECK(all->missing == 28);
  const auto first = audit(lineage_of(batches, 3), batches, 4);
  REQUIRE(first.has_value());
  CHECK(first->expected == 16);
  CHECK(first->missing == 4);
  CHECK(first->dropped == std::map<std::string, int64_t>{{"too_long", 2}});
  const auto none = audit({}, batches, 0);
  REQUIRE(none.has_value());
  CHECK(none->expected == 0);
  CHECK(none->dropped.empty());
}

TEST_CASE("a batch that was committed twice is repeated, and the one it took the place of is missing") {
  Batches batches = small_job();
  Lineage lineage = lineage_of(batches, 10);
  lineage.commits[7] = commit_of(batches, 6);
  lineage.commits[7].step = 7;
  const auto counted = audit(lineage, batches, 10);
  REQUIRE(counted.has_value());
  CHECK(counted->used_once == 32);
  CHECK(counted->repeated == 4);
  CHECK(counted->missing == 4);
  CHECK(counted->expected == 40);
}

TEST_CASE("the same samples in another epoch are no repetition") {
  Batches batches = small_job();
  Lineage lineage = lineage_of(batches, 10);
  lineage.commits[8] = commit_of(batches, 3);
  lineage.commits[8].step = 8;
  const auto counted = audit(lineage, batches, 10);
  REQUIRE(counted.has_value());
  CHECK(counted->repeated == 4);
  CHECK(counted->missing == 4);
}

TEST_CASE("commits beyond the steps asked for are checked but not counted") {
  Batches batches = small_job();
  Lineage lineage = lineage_of(batches, 10);
  const auto counted = audit(lineage, batches, 3);
  REQUIRE(counted.has_value());
  CHECK(counted->expected == 12);
  CHECK(counted->used_once == 12);
  lineage.commits[9].digest ^= 1;
  CHECK_FALSE(audit(lineage, batches, 3).has_value());
}

TEST_CASE("a commit that the plan contradicts is named") {
  Batches batches = small_job();
  const Lineage good = lineage_of(batches, 10);
  const auto refuse = [&](auto&& change, const char* words) {
    Lineage lineage = good;
    change(lineage.commits[6]);
    const auto counted = audit(lineage, batches, 10);
    REQUIRE_FALSE(counted.has_value());
    CHECK(counted.error().status() == Status::kDataLoss);
    CHECK(counted.error().message().find("step 6 of the ledger (epoch ") == 0);
    CHECK_MESSAGE(counted.error().message().find(words) != std::string::npos, counted.error().message());
  };
  refuse([](CommitRecord& commit) { ++commit.digest; }, "the ranks used other samples");
  refuse([](CommitRecord& commit) { --commit.size.rows; }, "it records 3 rows");
  refuse([](CommitRecord& commit) { ++commit.size.tokens; }, "tokens, the plan has");
  refuse([](CommitRecord& commit) { ++commit.size.loss_tokens; }, "loss tokens, the plan has");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 2}}, {{3, 1}}}; }, "row 2 of 4 must come next");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 3}}, {{2, 2}}}; }, "row 3 of 4 must come next");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 3}}}; }, "end at row 3 of 4");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 5}}}; }, "row 0 of 4 must come next");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 1}, {2, 2}}, {}}; }, "rank 0 has 2 rows from row 2 on");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 1}, {1, 3}}, {{3, 1}}}; }, "rank 1 has 1 rows from row 3 on");
  refuse([](CommitRecord& commit) { commit.shares = {{{0, 4}}, {{4, -1}}}; }, "rank 1 has -1 rows");
  refuse([](CommitRecord& commit) { commit.shares.clear(); }, "end at row 0 of 4");
  refuse([](CommitRecord& commit) { commit.batch_index = 5; }, "the epoch has 5 batches");
  refuse([](CommitRecord& commit) { commit.batch_index = 0; }, "the plan has");
  refuse([](CommitRecord& commit) { commit.epoch = -1; }, "epochs are counted from 0");
  refuse([](CommitRecord& commit) { commit.epoch = 0; }, "the ranks used other samples");
}

TEST_CASE("more steps than the job has cannot be audited") {
  Batches batches = small_job();
  for (const int64_t steps : {int64_t{-1}, int64_t{11}}) {
    const auto counted = audit({}, batches, steps);
    REQUIRE_FALSE(counted.has_value());
    CHECK(counted.error().status() == Status::kInvalidArgument);
  }
}

TEST_CASE("steps that a restart made void are counted once") {
  Batches batches = small_job();
  const ScratchFolder folder;
  auto ledger = Ledger::create(folder / "ledger.jsonl", "run", "f");
  REQUIRE(ledger.has_value());
  for (int64_t step = 0; step < 7; ++step) REQUIRE(ledger->append(commit_of(batches, step)).has_value());
  REQUIRE(ledger->append(RestartRecord{4}).has_value());
  for (int64_t step = 4; step < 10; ++step) REQUIRE(ledger->append(commit_of(batches, step)).has_value());
  const auto lineage = Ledger::replay(folder / "ledger.jsonl");
  REQUIRE(lineage.has_value());
  const auto counted = audit(*lineage, batches, 10);
  REQUIRE(counted.has_value());
  CHECK(counted->used_once == 40);
  CHECK(counted->repeated == 0);
}

}  // namespace
}  // namespace pliant::elastic
