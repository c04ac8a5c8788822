// Rows and costs that a C program made: copied or lent, used as they are, refused by their place.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "c_handles.hpp"

namespace given_rows_test {

using namespace pliant::test;

namespace {

std::string rows_job() {
  std::string toml = kJob;
  const std::string concat = "use = \"concat\"\n[sampler.concat]\norder = \"random\"\nmax_tokens = 40\n";
  toml.replace(toml.find(concat), concat.size(), "use = \"rows\"\n");
  return toml;
}

/// Rows of four sequences of some_lengths(), the last ones first.
struct Packed {
  std::vector<int32_t> lengths = some_lengths();
  std::vector<int64_t> offsets;
  std::vector<int64_t> ids;
  std::vector<int64_t> row_costs;

  Packed() {
    for (int64_t row = 0; row <= 50; ++row) offsets.push_back(4 * row);
    for (int64_t i = 199; i >= 0; --i) ids.push_back(i);
    for (int64_t row = 0; row < 50; ++row) row_costs.push_back(100 * row);
  }
  [[nodiscard]] pliant_lengths_t given() const {
    pliant_lengths_t made = PLIANT_INIT(pliant_lengths_t);
    made.count = lengths.size();
    made.lengths = lengths.data();
    made.row_count = offsets.size() - 1;
    made.row_offsets = offsets.data();
    made.row_ids = ids.data();
    return made;
  }
};

OwnedDataset made_of(const pliant_lengths_t& given) {
  return made_by<OwnedDataset>([&](auto to, auto error) { return pliant_dataset_make(&given, to, error); });
}

/// What batches of `given` are refused with.
std::string refusal(const pliant_lengths_t& given) {
  const OwnedConfig config = config_of(rows_job());
  const OwnedPlan plan = plan_of(config.get());
  const OwnedDataset dataset = made_of(given);
  pliant_batches_t* batches = nullptr;
  CHECK(pliant_batches_make(config.get(), plan.get(), dataset.get(), &batches, nullptr) == PLIANT_INVALID_ARGUMENT);
  CHECK(batches == nullptr);
  return last_message();
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("batches are the rows that C gave, and each row costs what it was given") {
  Packed packed;
  pliant_lengths_t given = packed.given();
  given.row_costs = packed.row_costs.data();
  const OwnedDataset dataset = made_of(given);
  const Packed kept = packed;
  std::fill(packed.ids.begin(), packed.ids.end(), -1);  // they were copied
  std::fill(packed.offsets.begin(), packed.offsets.end(), -1);
  std::fill(packed.row_costs.begin(), packed.row_costs.end(), -1);
  const OwnedConfig config = config_of(rows_job());
  const OwnedBatches batches = batches_of(config.get(), dataset.get());
  const OwnedBatch batch =
      made_by<OwnedBatch>([&](auto to, auto error) { return pliant_batches_batch(batches.get(), 0, 1, to, error); });
  pliant_batch_view_t view = PLIANT_INIT(pliant_batch_view_t);
  REQUIRE(pliant_batch_look(batch.get(), &view, nullptr) == PLIANT_OK);
  REQUIRE(view.rows == 24);
  CHECK(std::equal(view.ids, view.ids + view.entry_count, kept.ids.begin() + 24 * 4));
  std::vector<int64_t> costs(24);
  uint64_t count = 0;
  REQUIRE(pliant_row_costs(batch.get(), 1, 0, costs.data(), costs.size(), &count, nullptr) == PLIANT_OK);
  CHECK(std::equal(costs.begin(), costs.end(), kept.row_costs.begin() + 24));
}

TEST_CASE("lent rows and costs are not copied, and given back with the lengths") {
  const Packed packed;
  const std::vector<int64_t> costs(packed.lengths.size(), 3);
  int released = 0;
  pliant_lengths_t given = packed.given();
  given.costs = costs.data();
  given.release = [](void* context) { ++*static_cast<int*>(context); };
  given.context = &released;
  OwnedDataset dataset = made_of(given);
  pliant_lengths_t seen = PLIANT_INIT(pliant_lengths_t);
  REQUIRE(pliant_dataset_look(dataset.get(), &seen, nullptr) == PLIANT_OK);
  CHECK(seen.row_count == 50);
  CHECK(seen.row_offsets == packed.offsets.data());
  CHECK(seen.row_ids == packed.ids.data());
  CHECK(seen.costs == costs.data());
  CHECK(seen.row_costs == nullptr);
  const OwnedConfig config = config_of(rows_job());
  OwnedBatches batches = batches_of(config.get(), dataset.get());
  dataset.reset();
  CHECK(released == 0);
  batches.reset();
  CHECK(released == 1);
}

TEST_CASE("rows and costs that are none are refused by their place") {
  Packed packed;
  packed.ids[9] = 200;
  CHECK(has(refusal(packed.given()), "id 9 is 200, in row 2; the data set has 200 sequences"));
  packed = Packed();
  packed.offsets[3] = packed.offsets[2];
  CHECK(has(refusal(packed.given()), "row 2 has no sequences, offsets 2 and 3 are both 8"));
  packed = Packed();
  packed.row_costs[5] = -1;
  pliant_lengths_t given = packed.given();
  given.row_costs = packed.row_costs.data();
  CHECK(has(refusal(given), "cost 5 is -1"));
}

TEST_CASE("arrays of rows that do not fit each other are refused before they are read") {
  const Packed packed;
  const auto refused = [](const pliant_lengths_t& given) {
    pliant_dataset_t* dataset = nullptr;
    CHECK(pliant_dataset_make(&given, &dataset, nullptr) == PLIANT_INVALID_ARGUMENT);
    CHECK(dataset == nullptr);
    return last_message();
  };
  pliant_lengths_t given = packed.given();
  given.row_ids = nullptr;
  CHECK(has(refused(given), "lengths.row_ids is NULL"));
  given = packed.given();
  given.row_offsets = nullptr;
  CHECK(has(refused(given), "lengths.row_offsets is NULL"));
  given = packed.given();
  given.row_count = 0;
  CHECK(has(refused(given), "lengths has arrays of rows, but row_count is 0"));
  given = packed.given();
  given.row_count = UINT64_MAX;
  CHECK(has(refused(given), "lengths.row_count"));
  Packed beyond;
  beyond.offsets.back() = 201;
  CHECK(
      has(refused(beyond.given()), "lengths.row_offsets ends with 201; it must end with the number of ids, 1 to 200"));
}

}  // namespace given_rows_test
