// Lengths in C: files of other tools, the analysis of a data set that has none, and what Batches says of a packing.
#include "pliant/lengths.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "c_handles.hpp"
#include "pliant/batches.hpp"
#include "scratch_folder.hpp"

using namespace pliant::test;

namespace {

/// What a program in C measures: sequence i has 1 + i % 7 tokens.
struct Measured {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> told{0};
  int64_t fails_at = -1;
  int64_t progress_fails_at = 1001;  ///< once so many are done, with `fails_with`
  int32_t fails_with = PLIANT_ABORTED;
};

int32_t measured_length(void* context, int64_t number, int64_t* length) {
  auto& of = *static_cast<Measured*>(context);
  ++of.calls;
  if (number == of.fails_at) return of.fails_with;
  *length = 1 + number % 7;
  return PLIANT_OK;
}

int32_t told_progress(void* context, int64_t done, int64_t total) {
  if (done > total) return PLIANT_INTERNAL;
  auto& of = *static_cast<Measured*>(context);
  of.told = done;
  return done >= of.progress_fails_at ? of.fails_with : PLIANT_OK;
}

pliant_length_analysis_t analysis_over(Measured& of) {
  pliant_length_analysis_t analysis = PLIANT_INIT(pliant_length_analysis_t);
  analysis.count = 1000;
  analysis.length_of = measured_length;
  analysis.progress = told_progress;
  analysis.context = &of;
  analysis.identity = "tokenizer 2";
  analysis.threads = 2;
  return analysis;
}

OwnedDataset read_by_c(const std::filesystem::path& file, const char* column = nullptr) {
  return made_by<OwnedDataset>(
      [&](auto to, auto error) { return pliant_dataset_read(file.c_str(), column, to, error); });
}

std::vector<int32_t> lengths_in(const OwnedDataset& dataset) {
  pliant_lengths_t seen = PLIANT_INIT(pliant_lengths_t);
  REQUIRE(pliant_dataset_look(dataset.get(), &seen, nullptr) == PLIANT_OK);
  return {seen.lengths, seen.lengths + seen.count};
}

}  // namespace

TEST_CASE("C reads lengths from files of other tools, by column where they have columns") {
  const ScratchFolder folder;
  CHECK(lengths_in(read_by_c(folder.write("l.txt", "3\n5\n9\n"))) == std::vector<int32_t>{3, 5, 9});
  const auto lines = folder.write("l.jsonl", "{\"length\": 4, \"n\": 8}\n{\"length\": 2, \"n\": 7}\n");
  CHECK(lengths_in(read_by_c(lines)) == std::vector<int32_t>{4, 2});
  CHECK(lengths_in(read_by_c(lines, "n")) == std::vector<int32_t>{8, 7});
  pliant_dataset_t* none = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_dataset_read((folder / "none.npy").c_str(), nullptr, &none, &error) == PLIANT_NOT_FOUND);
  CHECK(error.exit_code == 2);
  CHECK(pliant_dataset_read(folder.write("w.txt", "3\n0\n").c_str(), nullptr, &none, &error) ==
        PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_dataset_read(nullptr, nullptr, &none, &error) == PLIANT_INVALID_ARGUMENT);
  CHECK(none == nullptr);
}

TEST_CASE("C measures the lengths of a data set once, on several threads, and reads them from then on") {
  const ScratchFolder folder;
  const std::string file = (folder / "lengths.npy").string();
  Measured measured;
  const pliant_length_analysis_t analysis = analysis_over(measured);
  pliant_analysed_lengths_t analysed = PLIANT_INIT(pliant_analysed_lengths_t);
  REQUIRE(pliant_analyse_lengths(file.c_str(), &analysis, &analysed, nullptr) == PLIANT_OK);
  CHECK(analysed.measured == 1000);
  CHECK(measured.calls == 1000);
  CHECK(measured.told == 1000);
  const std::vector<int32_t> lengths = lengths_in(read_by_c(file));
  REQUIRE(lengths.size() == 1000);
  CHECK(lengths[8] == 2);
  REQUIRE(pliant_analyse_lengths(file.c_str(), &analysis, &analysed, nullptr) == PLIANT_OK);
  CHECK(analysed.measured == 0);
  CHECK(measured.calls == 1000);
  REQUIRE(pliant_analyse_lengths(file.c_str(), &analysis, nullptr, nullptr) == PLIANT_OK);
  pliant_length_analysis_t other = analysis;
  other.identity = "tokenizer 3";
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_analyse_lengths(file.c_str(), &other, nullptr, &error) == PLIANT_FAILED_PRECONDITION);
  CHECK(error.exit_code == 2);
}

TEST_CASE(
    "an analysis in C ends with the status of the program's own function, names the sequence, and goes on there") {
  const ScratchFolder folder;
  const std::string file = (folder / "lengths.npy").string();
  Measured measured;
  measured.fails_at = 700;
  measured.fails_with = PLIANT_DATA_LOSS;
  pliant_length_analysis_t analysis = analysis_over(measured);
  analysis.threads = 1;
  CHECK(pliant_analyse_lengths(file.c_str(), &analysis, nullptr, nullptr) == PLIANT_DATA_LOSS);
  CHECK(last_message().find("700") != std::string::npos);
  measured.fails_at = -1;
  measured.calls = 0;
  pliant_analysed_lengths_t analysed = PLIANT_INIT(pliant_analysed_lengths_t);
  REQUIRE(pliant_analyse_lengths(file.c_str(), &analysis, &analysed, nullptr) == PLIANT_OK);
  CHECK(analysed.resumed > 0);
  CHECK(analysed.measured + analysed.resumed == 1000);
  CHECK(measured.calls == analysed.measured);
}

TEST_CASE("progress in C that ends with a status ends the analysis with it, by name, and what was measured is kept") {
  const ScratchFolder folder;
  const std::string file = (folder / "lengths.npy").string();
  Measured measured;
  measured.progress_fails_at = 500;
  measured.fails_with = PLIANT_DATA_LOSS;
  const pliant_length_analysis_t analysis = analysis_over(measured);
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  CHECK(pliant_analyse_lengths(file.c_str(), &analysis, nullptr, &error) == PLIANT_DATA_LOSS);
  CHECK(std::string(error.message) ==
        "the program's own progress ended with status " + std::to_string(PLIANT_DATA_LOSS));
  CHECK(!std::filesystem::exists(file));
  measured.progress_fails_at = 1001;
  measured.calls = 0;
  pliant_analysed_lengths_t analysed = PLIANT_INIT(pliant_analysed_lengths_t);
  REQUIRE(pliant_analyse_lengths(file.c_str(), &analysis, &analysed, nullptr) == PLIANT_OK);
  CHECK(analysed.resumed > 0);
  CHECK(measured.calls == 1000 - analysed.resumed);
}

TEST_CASE("a callback in C that ends with a number that is no status is an internal failure with that number") {
  const ScratchFolder folder;
  for (const int32_t number : {-1, int32_t{PLIANT_DEADLINE_EXCEEDED} + 1, INT32_MAX, INT32_MIN}) {
    CAPTURE(number);
    Measured measured;
    measured.fails_with = number;
    measured.fails_at = 3;
    const pliant_length_analysis_t analysis = analysis_over(measured);
    const auto call = [&](const std::string& file) {
      return pliant_analyse_lengths((folder / (file + std::to_string(number))).c_str(), &analysis, nullptr, nullptr);
    };
    CHECK(call("a") == PLIANT_INTERNAL);
    CHECK(last_message().find("the program's own length_of ended with status " + std::to_string(number)) !=
          std::string::npos);
    measured.fails_at = -1;
    measured.progress_fails_at = 1;
    CHECK(call("b") == PLIANT_INTERNAL);
    CHECK(last_message() == "the program's own progress ended with status " + std::to_string(number));
  }
}

TEST_CASE("an analysis in C without a function, without an identity or of no sequences is refused") {
  const ScratchFolder folder;
  const std::string file = (folder / "lengths.npy").string();
  Measured measured;
  pliant_length_analysis_t analysis = analysis_over(measured);
  const auto refused = [&] { return pliant_analyse_lengths(file.c_str(), &analysis, nullptr, nullptr); };
  analysis.length_of = nullptr;
  CHECK(refused() == PLIANT_INVALID_ARGUMENT);
  analysis = analysis_over(measured);
  analysis.identity = nullptr;
  CHECK(refused() == PLIANT_INVALID_ARGUMENT);
  analysis = analysis_over(measured);
  analysis.count = 0;
  CHECK(refused() == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_analyse_lengths(nullptr, &analysis, nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(pliant_analyse_lengths(file.c_str(), nullptr, nullptr, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(measured.calls == 0);
}

TEST_CASE("C looks at rows of an epoch in portions, goes to any step, and asks how far the job goes") {
  const CJob job;
  const auto batch = made_by<OwnedBatch>(
      [&](auto to, auto error) { return pliant_batches_rows(job.batches.get(), 1, 2, 5, to, error); });
  pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
  REQUIRE(pliant_batch_look(batch.get(), &view, nullptr) == PLIANT_OK);
  CHECK(view.epoch == 1);
  CHECK(view.index == -1);
  CHECK(view.rows == 5);
  const auto whole = made_by<OwnedBatch>(
      [&](auto to, auto error) { return pliant_batches_batch(job.batches.get(), 1, 0, to, error); });
  pliant_batch_view_t of_whole = PLIANT_INIT(pliant_batch_view_t);
  REQUIRE(pliant_batch_look(whole.get(), &of_whole, nullptr) == PLIANT_OK);
  CHECK(view.ids[0] == of_whole.ids[of_whole.offsets[2]]);
  pliant_batch_t* none = nullptr;
  CHECK(pliant_batches_rows(job.batches.get(), 1, 0, 0, &none, nullptr) != PLIANT_OK);
  CHECK(none == nullptr);

  pliant_job_facts_t facts = PLIANT_INIT(pliant_job_facts_t);
  REQUIRE(pliant_batches_seek(job.batches.get(), 3, nullptr) == PLIANT_OK);
  REQUIRE(pliant_batches_look(job.batches.get(), &facts, nullptr) == PLIANT_OK);
  CHECK(facts.next_step == 3);
  CHECK(pliant_batches_seek(job.batches.get(), -1, nullptr) == PLIANT_OUT_OF_RANGE);
  int64_t steps = 0;
  pliant_batch_size_t all = PLIANT_INIT(pliant_batch_size_t);
  REQUIRE(pliant_batches_job_length(job.batches.get(), &steps, &all, nullptr) == PLIANT_OK);
  int32_t has = -1;
  REQUIRE(pliant_batches_has_step(job.batches.get(), steps - 1, &has, nullptr) == PLIANT_OK);
  CHECK(has == 1);
  REQUIRE(pliant_batches_has_step(job.batches.get(), steps, &has, nullptr) == PLIANT_OK);
  CHECK(has == 0);
}

TEST_CASE("what C reads of truncated sequences and of a packing is what C++ reads") {
  std::string toml = kJob;
  const std::string concat = "use = \"concat\"\n[sampler.concat]\norder = \"random\"\nmax_tokens = 40\n";
  toml.replace(toml.find(concat), concat.size(),
               "use = \"next_fit\"\n[sampler.next_fit]\nmax_tokens = 20\nover_long = \"truncate\"\n");
  const CJob job(toml);
  pliant::ConfigOverrides overrides;
  overrides.read_environment = false;
  const pliant::Config config = pliant::Config::parse(toml, {"elasticity", "sampler"}, overrides);
  pliant::Dataset dataset;
  dataset.lengths = some_lengths();
  pliant::Batches cpp(config, pliant::Planner(config).plan(), dataset);

  const std::vector<int64_t> expected = cpp.truncated(0);
  REQUIRE(!expected.empty());
  uint64_t count = 0;
  REQUIRE(pliant_batches_truncated(job.batches.get(), 0, nullptr, 0, &count, nullptr) == PLIANT_OK);
  CHECK(count == expected.size());
  std::vector<int64_t> ids(count);
  CHECK(pliant_batches_truncated(job.batches.get(), 0, ids.data(), count - 1, &count, nullptr) == PLIANT_OUT_OF_RANGE);
  REQUIRE(pliant_batches_truncated(job.batches.get(), 0, ids.data(), count, &count, nullptr) == PLIANT_OK);
  CHECK(ids == expected);

  const pliant::Packing packed = cpp.packing(0);
  pliant_packing_t packing = PLIANT_INIT(pliant_packing_t);
  REQUIRE(pliant_batches_packing(job.batches.get(), 0, &packing, nullptr) == PLIANT_OK);
  CHECK(packed.unit == packing.unit);
  CHECK(packing.budget == packed.budget);
  CHECK(packing.used == packed.used);
  CHECK(packing.least_rows == packed.least_rows);
  CHECK(packing.efficiency == packed.efficiency);
  CHECK(packing.efficiency > 0);
}
