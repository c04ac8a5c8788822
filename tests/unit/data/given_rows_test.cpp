// Rows that were made beforehand: from files and from memory, what is wrong with them, and what must not change.
#include <doctest/doctest.h>

#include <fstream>
#include <functional>
#include <string>

#include "data/lengths/given_rows.hpp"
#include "data/lengths_file.hpp"
#include "npy_file.hpp"
#include "pliant/batches.hpp"
#include "pliant/error.hpp"
#include "scratch.hpp"

namespace given_rows_test {

using namespace pliant;
using pliant::test::npy_bytes;
using pliant::test::Scratch;
using pliant::test::write_npy;

namespace {

const char* const kFromFiles =
    "[sampler]\nuse = \"rows\"\n[sampler.rows]\noffsets = \"offsets.npy\"\nids = \"ids.npy\"\n[run]\nepochs = 2\n";
const char* const kFromMemory = "[sampler]\nuse = \"rows\"\n[run]\nepochs = 2\n";

Plan plan_of(int64_t global_batch) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.world_sizes = {{1, global_batch}};
  return plan;
}

Dataset with(GivenRows rows) {
  Dataset dataset{{5, 6, 7, 8, 9}, {}};
  dataset.rows = std::move(rows);
  return dataset;
}

GivenRows some() {
  return {{0, 2, 3, 5}, {4, 0, 2, 1, 3}};
}

void write_some(const Scratch& scratch) {
  write_npy(scratch.file("offsets.npy"), {0, 2, 3, 5});
  write_npy(scratch.file("ids.npy"), {4, 0, 2, 1, 3});
}

Error refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    return error;
  }
  FAIL("nothing was refused");
  return {Status::kOk, ""};
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

/// What is said of rows in memory.
std::string fault_of(GivenRows rows) {
  const Scratch scratch;
  const Config config = scratch.config(kFromMemory);
  return refused([&] { Batches(config, plan_of(2), with(std::move(rows))); }).message();
}

}  // namespace

TEST_CASE("rows come from files beside the config, and are those that come from memory") {
  const Scratch scratch;
  write_some(scratch);
  const Config config = scratch.config(kFromFiles);
  Batches from_files(config, plan_of(2), with({}));
  const Batch batch = from_files.batch(0, 0);
  CHECK(batch.ids == std::vector<int64_t>{4, 0, 2});
  CHECK(batch.offsets == std::vector<uint64_t>{0, 2, 3});
  CHECK(from_files.batch(0, 1).ids == std::vector<int64_t>{1, 3});
  CHECK(from_files.dataset().rows.offsets_source == scratch.file("offsets.npy").string());
  const Scratch elsewhere;
  CHECK(Batches(elsewhere.config(kFromMemory), plan_of(2), with(some())).fingerprint() == from_files.fingerprint());
}

TEST_CASE("files of rows may hold any integers, and their paths are absolute in the config that a job keeps") {
  const Scratch scratch;
  std::ofstream(scratch.file("offsets.npy"), std::ios::binary) << npy_bytes<uint32_t>("<u4", {0, 2, 3, 5});
  std::ofstream(scratch.file("ids.npy"), std::ios::binary) << npy_bytes<int16_t>("<i2", {4, 0, 2, 1, 3});
  const Config config = scratch.config(kFromFiles);
  CHECK(Batches(config, plan_of(2), with({})).batch(0, 0).ids == std::vector<int64_t>{4, 0, 2});
  CHECK(has(config.resolved_toml(), "offsets = \"" + scratch.file("offsets.npy").string() + "\""));
}

TEST_CASE("rows in memory take the place of files, which need not be there") {
  const Scratch scratch;
  const Config config = scratch.config(kFromFiles);
  CHECK(Batches(config, plan_of(2), with(some())).batch(0, 0).ids == std::vector<int64_t>{4, 0, 2});
}

TEST_CASE("rows that are none are refused with the array, the place in it and what to do") {
  CHECK(has(fault_of({{0}, {}}), "the offsets of rows: 1 offsets are no row; n rows have n + 1"));
  CHECK(has(fault_of({{}, {1}}), "the offsets of rows: 0 offsets are no row"));
  CHECK(has(fault_of({{1, 5}, {4, 0, 2, 1, 3}}), "offset 0 is 1; the first offset must be 0"));
  CHECK(has(fault_of({{0, 3, 2, 5}, {4, 0, 2, 1, 3}}),
            "offset 2 is 2, below offset 1, which is 3; offsets must ascend: row i is ids[offsets[i]]"));
  CHECK(has(fault_of({{0, 3, 3, 5}, {4, 0, 2, 1, 3}}),
            "row 1 has no sequences, offsets 1 and 2 are both 3; leave it out"));
  CHECK(has(fault_of({{0, 3, 4}, {4, 0, 2, 1, 3}}),
            "the last offset, 2 of 3, is 4, but the ids of rows has 5 ids; it must be their number"));
  CHECK(has(fault_of({{0, 3, 6}, {4, 0, 2, 1, 3}}), "is 6, but the ids of rows has 5 ids"));
  CHECK(has(fault_of({{0, -3, 5}, {4, 0, 2, 1, 3}}), "offset 1 is -3, below offset 0, which is 0"));
  CHECK(has(fault_of({{0, 2, 3, 5}, {4, 0, 5, 1, 3}}),
            "the ids of rows: id 2 is 5, in row 1; the data set has 5 sequences, counted from 0"));
  CHECK(has(fault_of({{0, 2, 3, 5}, {4, 0, 2, 1, -1}}), "id 4 is -1, in row 2"));
  CHECK(has(fault_of({{0, 2, 3, 5}, {4, 0, 2, 1, 0}}),
            "sequence 0 is id 1, in row 0, and id 4, in row 2; an epoch uses a sequence once: remove one of them"));
  CHECK(has(fault_of({{0, 2}, {4, 0}}), "3 of 5 sequences are in no row; ids: 1, 2, 3."));
}

TEST_CASE("what is wrong with files of rows points at the option and names the file") {
  const Scratch scratch;
  const auto fault = [&](const char* toml = kFromFiles) {
    const Config config = scratch.config(toml);
    return refused([&] { Batches(config, plan_of(2), with({})); }).message();
  };
  CHECK(has(fault(), "pliant.toml:5:11: error:"));
  CHECK(has(fault(), "cannot read " + scratch.file("offsets.npy").string()));
  write_some(scratch);
  write_npy(scratch.file("offsets.npy"), {0, 3, 2, 5});
  CHECK(has(fault(), "pliant.toml:5:11: error:"));
  CHECK(has(fault(), scratch.file("offsets.npy").string() + ": offset 2 is 2, below offset 1"));
  write_some(scratch);
  write_npy(scratch.file("ids.npy"), {4, 0, 2, 1, 1});
  CHECK(has(fault(), "pliant.toml:6:7: error:"));
  CHECK(has(fault(), scratch.file("ids.npy").string() + ": sequence 1 is id 3, in row 2, and id 4, in row 2"));
  std::ofstream(scratch.file("ids.npy"), std::ios::binary) << npy_bytes<double>("<f8", {4, 0, 2, 1, 3});
  CHECK(has(fault(), "its numbers are floats; save integers, as with .astype(\"int64\")"));
  std::ofstream(scratch.file("ids.npy"), std::ios::binary) << npy_bytes<uint64_t>("<u8", {4, 0, 2, 1, ~uint64_t{0}});
  CHECK(has(fault(), "value 4 is 18446744073709551615, which is not a whole number of 63 bits"));
  std::ofstream(scratch.file("ids.npy"), std::ios::binary) << npy_bytes<int64_t>("|b1", {1});
  CHECK(has(fault(), "is neither integer nor float"));
  const std::string whole = npy_bytes<int64_t>("<i8", {4, 0, 2, 1, 3});
  for (const size_t cut : {size_t{0}, size_t{7}, size_t{40}, whole.size() - 1, whole.size() - 8}) {
    CAPTURE(cut);
    std::ofstream(scratch.file("ids.npy"), std::ios::binary) << whole.substr(0, cut);
    CHECK(has(fault(), "pliant.toml:6:7: error:"));
    CHECK(has(fault(), scratch.file("ids.npy").string()));
  }
  std::ofstream(scratch.file("ids.npy"), std::ios::binary) << "4 0 2 1 3";
  CHECK(has(fault(), "it is not a .npy file"));
  CHECK(has(fault("[sampler]\nuse = \"rows\"\n[sampler.rows]\nids = \"ids.npy\"\n"),
            "ids is set but offsets is not; rows need both files"));
}

TEST_CASE("a row above max_tokens points at the option, by its number") {
  const Scratch scratch;
  write_some(scratch);
  const Config config = scratch.config(
      "[sampler]\nuse = \"rows\"\n[sampler.rows]\noffsets = \"offsets.npy\"\nids = \"ids.npy\"\nmax_tokens = 13\n");
  const std::string message = refused([&] { Batches(config, plan_of(2), with({})); }).message();
  CHECK(has(message, "2 of 3 rows have more than max_tokens = 13 tokens; rows (tokens): 0 (14), 2 (14)"));
}

TEST_CASE("rows are refused where the sampler makes its own, and asked for where it takes them") {
  const Scratch scratch;
  const Config own = scratch.config("[sampler]\nuse = \"fixed\"\n");
  CHECK(has(refused([&] { Batches(own, plan_of(2), with(some())); }).message(),
            "rows are given with the data set, but sampler 'fixed' makes its own; sampler 'rows' takes those"));
  const Config takes = scratch.config(kFromMemory);
  CHECK(has(refused([&] { Batches(takes, plan_of(2), with({})); }).message(),
            "there are no rows; set offsets and ids to .npy files"));
}

TEST_CASE("other rows have another fingerprint and a position saved with them is refused, wherever they come from") {
  const Scratch scratch;
  const Config config = scratch.config(kFromMemory);
  Batches batches(config, plan_of(2), with(some()));
  static_cast<void>(batches.next());
  const std::string saved = batches.save();
  Batches same(config, plan_of(2), with(some()), saved);
  CHECK(same.next()->ids == std::vector<int64_t>{1, 3});
  for (const GivenRows& other : {GivenRows{{0, 2, 3, 5}, {4, 0, 2, 3, 1}}, GivenRows{{0, 2, 4, 5}, {4, 0, 2, 1, 3}}}) {
    CHECK(Batches(config, plan_of(2), with(other)).fingerprint() != batches.fingerprint());
    CHECK(has(refused([&] { Batches(config, plan_of(2), with(other), saved); }).message(),
              "the data set with its rows has changed since the position was saved"));
    Batches begun(config, plan_of(2), with(other));
    CHECK(refused([&] { begun.load(saved); }).status() == Status::kFailedPrecondition);
  }
  write_some(scratch);
  const Config moved = scratch.config(kFromFiles);
  CHECK(Batches(moved, plan_of(2), with({}), saved).next()->ids == std::vector<int64_t>{1, 3});
}

TEST_CASE("the data set of a job keeps rows and costs, and refuses others") {
  for (const bool odd : {false, true}) {
    const Scratch scratch;
    Dataset dataset = with(some());
    if (odd) dataset.loss_tokens = {1, 2, 3, 4, 5};
    dataset.costs = {3, 1, 4, 1, 5};
    const auto file = scratch.file("dataset.bin");
    REQUIRE(data::write_dataset_once(file, dataset).has_value());
    REQUIRE(data::write_dataset_once(file, dataset).has_value());
    const Dataset read = data::read_dataset(file).value();
    CHECK(read.lengths == dataset.lengths);
    CHECK(read.loss_tokens == dataset.loss_tokens);
    CHECK(read.rows.offsets == dataset.rows.offsets);
    CHECK(read.rows.ids == dataset.rows.ids);
    CHECK(read.costs == dataset.costs);
    Dataset other = dataset;
    other.rows.ids = {4, 0, 2, 3, 1};
    auto refusal = data::write_dataset_once(file, other);
    REQUIRE_FALSE(refusal.has_value());
    CHECK(has(refusal.error().message(), "the given rows have changed: this job began with others"));
    other = dataset;
    other.costs = {3, 1, 4, 1, 6};
    refusal = data::write_dataset_once(file, other);
    REQUIRE_FALSE(refusal.has_value());
    CHECK(has(refusal.error().message(), "the given costs have changed"));
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    for (size_t size = 0; size < bytes.size(); ++size) {
      std::ofstream(scratch.file("cut"), std::ios::binary) << bytes.substr(0, size);
      CHECK_FALSE(data::read_dataset(scratch.file("cut")).has_value());
    }
  }
}

}  // namespace given_rows_test
