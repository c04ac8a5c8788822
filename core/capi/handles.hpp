// What is behind the handles that more than one file of C functions knows.
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "handle.hpp"
#include "pliant/balancer.hpp"
#include "pliant/batches.hpp"
#include "pliant/config.hpp"
#include "pliant/learning_rate.hpp"
#include "pliant/log.hpp"
#include "pliant/plan.hpp"

namespace pliant::capi {

/// As C reads texts: borrowed from `texts`.
[[nodiscard]] inline std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> made;
  for (const std::string& text : texts) made.push_back(text.c_str());
  return made;
}

/// Texts that were lent, by name. Any thread may call it; without a lock, so that a fork leaves it whole.
class LentTexts {
 public:
  LentTexts() = default;
  ~LentTexts();
  LentTexts(const LentTexts&) = delete;
  LentTexts& operator=(const LentTexts&) = delete;

  /// Lent under `name` before; nullptr where none was.
  [[nodiscard]] const std::string* find(std::string_view name) const;
  /// The text of `name` from here on: `text`, or what another thread has lent meanwhile.
  const std::string& lend(std::string_view name, std::string text);

 private:
  struct Lent {
    std::string name;
    std::string text;
    const Lent* next;
  };
  static const std::string* found(const Lent* first, std::string_view name);
  std::atomic<const Lent*> first_{nullptr};
};

}  // namespace pliant::capi

struct pliant_config_t : pliant::capi::Handle<pliant::capi::Tag::kConfig> {
  static constexpr const char* kName = "config";
  explicit pliant_config_t(pliant::Config opened)
      : config(std::move(opened)),
        schedule(pliant::capi::pointers_to(config.lr().schedule)),
        then(pliant::capi::pointers_to(config.lr().then)) {}

  const pliant::Config config;
  const std::vector<const char*> schedule;
  const std::vector<const char*> then;
  mutable pliant::capi::LentTexts texts;  // of [app], by key
  mutable pliant::capi::LentTexts resolved;
};

struct pliant_plan_t : pliant::capi::Handle<pliant::capi::Tag::kPlan> {
  static constexpr const char* kName = "plan";
  explicit pliant_plan_t(pliant::Plan made);

  const pliant::Plan plan;
  std::vector<int64_t> ranges;
  std::vector<const char*> warnings;
};

struct pliant_dataset_t : pliant::capi::Handle<pliant::capi::Tag::kDataset> {
  static constexpr const char* kName = "data set";
  explicit pliant_dataset_t(std::shared_ptr<const pliant::Dataset> made) : dataset(std::move(made)) {}

  const std::shared_ptr<const pliant::Dataset> dataset;
};

struct pliant_batch_t : pliant::capi::Handle<pliant::capi::Tag::kBatch> {
  static constexpr const char* kName = "batch";
  pliant_batch_t(std::shared_ptr<const pliant::Batch> made, std::shared_ptr<const pliant::Dataset> of);

  const std::shared_ptr<const pliant::Batch> batch;
  const std::shared_ptr<const pliant::Dataset> dataset;
  std::vector<int64_t> first_tokens;  // as the next two empty where all sequences are whole
  std::vector<int64_t> token_counts;
  std::vector<uint8_t> is_last;
  bool is_lent = false;  // another handle's, which frees it
};

struct pliant_batches_t : pliant::capi::SerialHandle<pliant::capi::Tag::kBatches> {
  static constexpr const char* kName = "batches";
  pliant_batches_t(const pliant::Config& config, const pliant::Plan& plan,
                   const std::shared_ptr<const pliant::Dataset>& of)
      : dataset(completed(config, *of)), batches(config, plan, *dataset) {}

  pliant_batches_t(const pliant::Config& config, const pliant::Plan& plan,
                   const std::shared_ptr<const pliant::Dataset>& of, std::string_view saved)
      : dataset(completed(config, *of)), batches(config, plan, *dataset, saved) {}

  /// With the rows and costs that the config names: pliant_row_costs looks at them.
  static std::shared_ptr<const pliant::Dataset> completed(const pliant::Config& config, const pliant::Dataset& given) {
    return std::make_shared<const pliant::Dataset>(pliant::complete_dataset(config, given));
  }
  [[nodiscard]] std::unique_ptr<pliant_batch_t> lend(pliant::Batch batch) const {
    return std::make_unique<pliant_batch_t>(std::make_shared<const pliant::Batch>(std::move(batch)), dataset);
  }

  const std::shared_ptr<const pliant::Dataset> dataset;
  pliant::Batches batches;
  std::set<std::string> units;  // that were lent
};

struct pliant_assignment_t : pliant::capi::Handle<pliant::capi::Tag::kAssignment> {
  static constexpr const char* kName = "assignment";
  explicit pliant_assignment_t(pliant::Assignment made) : assignment(std::move(made)) {
    offsets.assign(assignment.offsets.begin(), assignment.offsets.end());
    for (const pliant::RowRange& block : assignment.blocks) blocks.insert(blocks.end(), {block.first, block.count});
  }

  const pliant::Assignment assignment;
  std::vector<uint64_t> offsets;
  std::vector<int64_t> blocks;
};

namespace pliant::capi {

/// A size as the caller brings it.
[[nodiscard]] BatchSize size_of(const pliant_batch_size_t* size, const char* name);
[[nodiscard]] pliant_batch_size_t from_size(const BatchSize& size);
[[nodiscard]] pliant_scaling_t from_scaling(const Scaling& scaling);
[[nodiscard]] LogLevel log_level_of(int32_t number);

}  // namespace pliant::capi
