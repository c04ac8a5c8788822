// Handles of libpliant that the tests make, freed when they leave the scope.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "pliant.h"

namespace pliant::test {

template <auto kFree>
struct Freed {
  template <class Handle>
  void operator()(Handle* handle) const {
    CHECK(kFree(handle) == PLIANT_OK);
  }
};
template <class Handle, auto kFree>
using Owned = std::unique_ptr<Handle, Freed<kFree>>;

using OwnedConfig = Owned<pliant_config_t, pliant_config_free>;
using OwnedPlanner = Owned<pliant_planner_t, pliant_planner_free>;
using OwnedPlan = Owned<pliant_plan_t, pliant_plan_free>;
using OwnedDataset = Owned<pliant_dataset_t, pliant_dataset_free>;
using OwnedBatches = Owned<pliant_batches_t, pliant_batches_free>;
using OwnedBatch = Owned<pliant_batch_t, pliant_batch_free>;
using OwnedMicroBatches = Owned<pliant_micro_batches_t, pliant_micro_batches_free>;
using OwnedBalancer = Owned<pliant_balancer_t, pliant_balancer_free>;
using OwnedAssignment = Owned<pliant_assignment_t, pliant_assignment_free>;
using OwnedAccelerator = Owned<pliant_accelerator_t, pliant_accelerator_free>;
using OwnedBuffer = Owned<pliant_buffer_t, pliant_buffer_free>;
using OwnedStream = Owned<pliant_stream_t, pliant_stream_free>;
using OwnedEvent = Owned<pliant_event_t, pliant_event_free>;
using OwnedCommunicator = Owned<pliant_communicator_t, pliant_communicator_free>;
using OwnedRecord = Owned<pliant_record_t, pliant_record_free>;
using OwnedImported = Owned<pliant_imported_t, pliant_imported_free>;
using OwnedReport = Owned<pliant_report_t, pliant_report_free>;
using OwnedComparison = Owned<pliant_comparison_t, pliant_comparison_free>;
using OwnedRate = Owned<pliant_learning_rate_t, pliant_learning_rate_free>;

/// What `call` makes at its out-parameter; it must succeed.
template <class Holder, class Call>
Holder made_by(Call&& call) {
  typename Holder::pointer handle = nullptr;
  pliant_error_t error = PLIANT_INIT(pliant_error_t);
  const int32_t status = call(&handle, &error);
  CAPTURE(std::string(error.message));
  REQUIRE(status == PLIANT_OK);
  return Holder(handle);
}

inline const char* const kJob = R"(
config_version = 1
[run]
seed = 5
epochs = 2
[elasticity]
use = "exact"
[elasticity.exact]
max_train_batch_size = 24
micro_batch_sizes = [2, 4]
max_gpus = 8
[sampler]
use = "concat"
[sampler.concat]
order = "random"
max_tokens = 40
[balancer]
use = "lpt"
[lr]
use = "linear"
base_lr = 0.5
base_batch = 10
unit = "sequences"
[app]
width = 7
name = "mühe"
)";

inline const char* const kJobNeeds = "elasticity sampler balancer lr";

inline OwnedConfig config_of(const std::string& toml, const char* needs = kJobNeeds) {
  pliant_config_options_t options = PLIANT_INIT(pliant_config_options_t);
  options.needs = needs;
  options.flags = PLIANT_CONFIG_NO_ENVIRONMENT;
  return made_by<OwnedConfig>(
      [&](auto to, auto error) { return pliant_config_parse(toml.data(), toml.size(), &options, to, error); });
}

inline OwnedPlan plan_of(const pliant_config_t* config, int64_t world_size = 0) {
  const auto planner =
      made_by<OwnedPlanner>([&](auto to, auto error) { return pliant_planner_make(config, to, error); });
  return made_by<OwnedPlan>(
      [&](auto to, auto error) { return pliant_planner_plan(planner.get(), world_size, to, error); });
}

/// 200 lengths of 3 to 31 tokens.
inline std::vector<int32_t> some_lengths() {
  std::vector<int32_t> lengths(200);
  for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<int32_t>(3 + i * 7 % 29);
  return lengths;
}

inline OwnedDataset dataset_of(const std::vector<int32_t>& lengths) {
  pliant_lengths_t given = PLIANT_INIT(pliant_lengths_t);
  given.count = lengths.size();
  given.lengths = lengths.data();
  return made_by<OwnedDataset>([&](auto to, auto error) { return pliant_dataset_make(&given, to, error); });
}

inline OwnedBatches batches_of(const pliant_config_t* config, const pliant_dataset_t* dataset) {
  const OwnedPlan plan = plan_of(config);
  return made_by<OwnedBatches>(
      [&](auto to, auto error) { return pliant_batches_make(config, plan.get(), dataset, to, error); });
}

/// A job from its config to its batches.
struct CJob {
  explicit CJob(const std::string& toml = kJob) : config(config_of(toml)), dataset(dataset_of(some_lengths())) {
    batches = batches_of(config.get(), dataset.get());
  }
  [[nodiscard]] OwnedBatch at_step(int64_t step) const {
    return made_by<OwnedBatch>(
        [&](auto to, auto error) { return pliant_batches_at_step(batches.get(), step, to, error); });
  }
  OwnedConfig config;
  OwnedDataset dataset;
  OwnedBatches batches;
};

inline const char* const kHost = "config_version = 1\n[accelerator]\nuse = \"host\"\n";

inline OwnedAccelerator host() {
  const OwnedConfig config = config_of(kHost, "accelerator");
  return made_by<OwnedAccelerator>(
      [&](auto to, auto error) { return pliant_accelerator_make(config.get(), to, error); });
}

inline OwnedStream stream_on(const OwnedAccelerator& accelerator) {
  return made_by<OwnedStream>(
      [&](auto to, auto error) { return pliant_stream_make(accelerator.get(), 0, PLIANT_ROLE_COMPUTE, 0, to, error); });
}

/// What the last call of this thread that failed said.
inline std::string last_message() {
  return pliant_last_message(nullptr);
}

}  // namespace pliant::test
