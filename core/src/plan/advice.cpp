// What would make a world size valid: changes that are tried, and kept when the plan that they give proves them right.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "config/values/value.hpp"
#include "plan/block.hpp"
#include "pliant/error.hpp"
#include "pliant/plan.hpp"

namespace pliant {
namespace {

constexpr int64_t kLargestMicroBatchTried = 16;
constexpr int kCapsTried = 24;  // in eighths above the present one, up to four times it

/// Tries changes of one config for one world size.
class Adviser {
 public:
  Adviser(const Config& config, int64_t world_size, const std::optional<PinnedBatch>& pinned)
      : config_(config), world_size_(world_size), pinned_(pinned) {
    const Result<ElasticityBlock> block = elasticity_block(config);
    if (block) block_ = *block;
  }

  std::vector<PlanChange> run() {
    try_limits();
    try_micro_batches();
    if (changes_.empty()) try_caps();
    if (block_.policy != "exact") try_exact();
    return std::move(changes_);
  }

 private:
  [[nodiscard]] std::optional<int64_t> option(const char* key) const {
    const auto found = block_.options.find(key);
    if (found == block_.options.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<int64_t>();
  }

  [[nodiscard]] std::string path(const char* key) const { return config::dotted({"elasticity", block_.policy, key}); }

  /// Keeps the change when its plan has the world size, and what is pinned.
  bool try_sets(std::vector<std::string> sets) {
    try {
      Plan plan = Planner(config_.with(sets)).plan(world_size_);
      if (pinned_ && (plan.global_batch != pinned_->global_batch || plan.granule != pinned_->granule)) return false;
      changes_.push_back({std::move(sets), std::move(plan)});
      return true;
    } catch (const Error&) {
      return false;  // a change that does not help
    }
  }

  void try_exact() {
    std::vector<std::string> sets;
    try {
      sets = sets_for_plugin(config_, "elasticity", "exact");
    } catch (const Error&) {
      return;  // it is not installed
    }
    if (try_sets(sets) || !pinned_) return;
    sets.push_back(fmt::format("elasticity.exact.max_train_batch_size={}", pinned_->global_batch));
    try_sets(std::move(sets));
  }

  void try_limits() {
    int64_t devices = 0;
    const int64_t parallel = std::max<int64_t>(1, option("model_parallel_size").value_or(1));
    if (__builtin_mul_overflow(world_size_, parallel, &devices)) return;
    if (const auto most = option("max_gpus"); most && devices > *most) {
      try_sets({fmt::format("{}={}", path("max_gpus"), devices)});
    }
    if (const auto least = option("min_gpus"); least && devices < *least) {
      try_sets({fmt::format("{}={}", path("min_gpus"), devices)});
    }
  }

  /// 1 makes most sizes valid; where it does not, the largest other one that does.
  void try_micro_batches() {
    const auto found = block_.options.find("micro_batch_sizes");
    if (found == block_.options.end() || !found->is_array()) return;
    const auto sizes = found->get<std::vector<int64_t>>();
    std::vector<int64_t> tried{1};
    for (int64_t size = kLargestMicroBatchTried; size > 1; --size) tried.push_back(size);
    for (const int64_t more : tried) {
      if (std::find(sizes.begin(), sizes.end(), more) != sizes.end()) continue;
      std::vector<int64_t> longer = sizes;
      longer.insert(std::upper_bound(longer.begin(), longer.end(), more), more);
      if (try_sets({fmt::format("{}=[{}]", path("micro_batch_sizes"), fmt::join(longer, ", "))})) return;
    }
  }

  void try_caps() {
    const auto cap = option("max_train_batch_size");
    if (!cap || *cap > INT64_MAX / (kCapsTried + 8)) return;
    for (int eighths = 9; eighths <= 8 + kCapsTried; ++eighths) {
      const int64_t larger = *cap * eighths / 8;
      if (larger > *cap && try_sets({fmt::format("{}={}", path("max_train_batch_size"), larger)})) return;
    }
  }

  const Config& config_;
  int64_t world_size_;
  std::optional<PinnedBatch> pinned_;
  ElasticityBlock block_;
  std::vector<PlanChange> changes_;
};

}  // namespace

std::vector<PlanChange> changes_for(const Config& config, int64_t world_size,
                                    const std::optional<PinnedBatch>& pinned) {
  if (world_size < 1) return {};
  return Adviser(config, world_size, pinned).run();
}

Error with_changes(const Config& config, const Error& refusal, int64_t world_size,
                   const std::optional<PinnedBatch>& pinned) {
  std::string help;
  for (const PlanChange& change : changes_for(config, world_size, pinned)) {
    help += fmt::format(
        "\n  help: --set '{}' {}: global batch {}, {} valid sizes from {} to {}", fmt::join(change.sets, "' --set '"),
        pinned ? "makes it valid and keeps the job's batch" : "makes it valid", change.plan.global_batch,
        change.plan.count(), change.plan.world_sizes.front().first, change.plan.world_sizes.back().last);
  }
  return refusal.with_lines(help);
}

}  // namespace pliant
