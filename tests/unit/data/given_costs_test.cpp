// Costs that were made beforehand take the place of rates: from files and from memory, of sequences and of rows.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "npy_file.hpp"
#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/error.hpp"
#include "scratch.hpp"

namespace given_costs_test {

using namespace pliant;
using pliant::test::npy_bytes;
using pliant::test::Scratch;
using pliant::test::write_npy;

namespace {

const char* const kRows = "[sampler]\nuse = \"rows\"\n";

Plan plan_of(int64_t global_batch) {
  Plan plan;
  plan.global_batch = global_batch;
  plan.world_sizes = {{1, global_batch}};
  return plan;
}

Dataset some() {
  Dataset dataset{{5, 6, 7, 8, 9}, {}};
  dataset.rows = {{0, 2, 3, 5}, {4, 0, 2, 1, 3}};
  return dataset;
}

std::vector<int64_t> costs_of(const std::string& toml, const Scratch& scratch, Dataset dataset) {
  Batches batches(scratch.config(toml), plan_of(3), std::move(dataset));
  return row_costs(batches.batch(0, 0), batches.dataset(), {});
}

std::string fault_of(const std::string& toml, const Scratch& scratch, const Dataset& dataset) {
  try {
    static_cast<void>(costs_of(toml, scratch, dataset));
  } catch (const Error& error) {
    CHECK(error.origin() == Origin::kInput);
    return error.message();
  }
  return "nothing was refused";
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a row costs what its sequences cost, or what it costs by itself, and without costs what rates say") {
  const Scratch scratch;
  Dataset dataset = some();
  CHECK(costs_of(kRows, scratch, dataset) == std::vector<int64_t>{14, 7, 14});
  dataset.costs = {10, 20, 30, 0, 50};
  CHECK(costs_of(kRows, scratch, dataset) == std::vector<int64_t>{60, 30, 20});
  dataset.costs = {};
  dataset.row_costs = {9, 0, 4};
  CHECK(costs_of(kRows, scratch, dataset) == std::vector<int64_t>{9, 0, 4});
}

TEST_CASE("costs come from files that the balancer's options name, of integers or floats") {
  const Scratch scratch;
  write_npy(scratch.file("costs.npy"), {10, 20, 30, 0, 50});
  CHECK(costs_of(std::string(kRows) + "[balancer]\nuse = \"contiguous\"\ncosts = \"costs.npy\"\n", scratch, some()) ==
        std::vector<int64_t>{60, 30, 20});
  std::ofstream(scratch.file("rows.npy"), std::ios::binary) << npy_bytes<float>("<f4", {0.5F, 0.25F, 2.0F});
  const auto costs =
      costs_of(std::string(kRows) + "[balancer]\nuse = \"contiguous\"\nrow_costs = \"rows.npy\"\n", scratch, some());
  CHECK(costs[0] == 2 * costs[1]);
  CHECK(costs[2] == 4 * costs[0]);
  CHECK(costs[1] > 0);
}

TEST_CASE("sequences have costs under every sampler, of pieces the part that their tokens are") {
  const Scratch scratch;
  Dataset dataset{{8, 4, 8}, {}};
  dataset.costs = {80, 40, 7};
  const std::string toml = "[sampler]\nuse = \"concat\"\n[sampler.concat]\nmax_tokens = 5\n";
  Batches batches(scratch.config(toml), plan_of(4), dataset);
  const auto costs = row_costs(batches.batch(0, 0), batches.dataset(), {});
  CHECK(costs[0] == 50);       // 5 of 8 tokens
  CHECK(costs[1] == 30 + 20);  // 3 of 8, and 2 of 4
  int64_t sum = 0;
  for (const int64_t cost : costs) sum += cost;
  CHECK(sum == 127);
}

TEST_CASE("costs that are none are refused with the file and the place in it") {
  const Scratch scratch;
  const std::string of_sequences = std::string(kRows) + "[balancer]\nuse = \"contiguous\"\ncosts = \"c.npy\"\n";
  const std::string of_rows = std::string(kRows) + "[balancer]\nuse = \"contiguous\"\nrow_costs = \"c.npy\"\n";
  const auto write = [&](const std::vector<double>& costs) {
    std::ofstream(scratch.file("c.npy"), std::ios::binary) << npy_bytes("<f8", costs);
  };
  CHECK(has(fault_of(of_sequences, scratch, some()), "pliant.toml:6:9: error:"));
  CHECK(has(fault_of(of_sequences, scratch, some()), "cannot read"));
  write({1, 2, 3, 4});
  CHECK(has(fault_of(of_sequences, scratch, some()), "c.npy: 4 costs for 5 sequences; give one for each"));
  CHECK(has(fault_of(of_rows, scratch, some()), "c.npy: 4 costs for 3 rows; give one for each"));
  write({1, 2, std::nan(""), 4, 5});
  CHECK(has(fault_of(of_sequences, scratch, some()), "c.npy: cost 2 is nan; a cost must be finite and 0 or more"));
  write({1, 2, 3, std::numeric_limits<double>::infinity(), 5});
  CHECK(has(fault_of(of_sequences, scratch, some()), "cost 3 is inf"));
  write({1, -0.5, 3});
  CHECK(has(fault_of(of_rows, scratch, some()), "cost 1 is -0.5; a cost must be finite and 0 or more"));
  write_npy(scratch.file("c.npy"), {1, -2, 3});
  CHECK(has(fault_of(of_rows, scratch, some()), "cost 1 is -2; a cost must be finite and 0 or more"));
  write_npy(scratch.file("c.npy"), {1, 2, 3, 4, -5});
  CHECK(has(fault_of(of_sequences, scratch, some()), "cost 4 is -5"));
  write({});
  CHECK(has(fault_of(of_sequences, scratch, some()), "it has no costs"));
  Dataset no_rows{{5, 6, 7}, {}};
  write({1, 2, 3});
  CHECK(has(fault_of("[sampler]\nuse = \"fixed\"\n[balancer]\nuse = \"contiguous\"\nrow_costs = \"c.npy\"\n", scratch,
                     no_rows),
            "rows have costs of their own only where rows are given"));
  Dataset both = some();
  both.costs = {1, 2, 3, 4, 5};
  both.row_costs = {1, 2, 3};
  CHECK(has(fault_of(kRows, scratch, both), "costs are given for sequences and for rows; give one of them"));
}

TEST_CASE("costs do not go with another source of costs in the config") {
  const Scratch scratch;
  const std::string begin = std::string(kRows) + "[balancer]\nuse = \"contiguous\"\ncosts = \"c.npy\"\n";
  CHECK(has(fault_of(begin + "row_costs = \"c.npy\"\n", scratch, some()),
            "balancer.costs and balancer.row_costs both say what a row costs"));
  CHECK(has(fault_of(begin + "fit = true\n", scratch, some()),
            "balancer.fit = true has nothing to fit where balancer.costs gives the costs"));
}

TEST_CASE("whole costs stay, others are scaled by one power of two") {
  CHECK(whole_costs(std::vector<double>{0, 3, 9007199254740992.0}) == Integers{0, 3, 9007199254740992});
  const Integers scaled = whole_costs(std::vector<double>{0.5, 1.5, 0});
  CHECK(scaled[1] == 3 * scaled[0]);
  CHECK(scaled[2] == 0);
  const Integers huge = whole_costs(std::vector<double>{1e300, 5e299, 1e-300});
  CHECK(huge[0] > huge[1]);
  CHECK(huge[2] == 0);
  CHECK(huge[0] < int64_t{1} << 42);
  CHECK(whole_costs(std::vector<double>{}).empty());
}

TEST_CASE("other costs have another fingerprint") {
  const Scratch scratch;
  const Config config = scratch.config(kRows);
  Dataset dataset = some();
  const uint64_t without = Batches(config, plan_of(2), dataset).fingerprint();
  dataset.costs = {1, 2, 3, 4, 5};
  const uint64_t with_costs = Batches(config, plan_of(2), dataset).fingerprint();
  dataset.costs = {1, 2, 3, 4, 6};
  CHECK(with_costs != without);
  CHECK(Batches(config, plan_of(2), dataset).fingerprint() != with_costs);
}

}  // namespace given_costs_test
