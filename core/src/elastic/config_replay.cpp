#include "elastic/config_replay.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "data/input_file.hpp"
#include "elastic/assignment_record.hpp"
#include "pliant/balancer.hpp"
#include "pliant/config.hpp"
#include "pliant/learning_rate.hpp"

namespace pliant::elastic {
namespace {

constexpr size_t kMostDifferences = 20;
// Another C library may compute powers and cosines otherwise in the last digits.
constexpr double kRelativeTolerance = 1e-12;

std::string one_line(const Error& error) {
  return error.message().substr(0, error.message().find('\n'));
}

std::string text_of(const std::vector<RowRange>& rows) {
  std::string text;
  for (const RowRange& range : rows) {
    text += fmt::format("{}{}..{}", text.empty() ? "" : ", ", range.first, range.first + range.count - 1);
  }
  return text.empty() ? "none" : text;
}

bool same_rate(double one, double other) {
  if (one == other || (std::isnan(one) && std::isnan(other))) return true;
  return std::abs(one - other) <= kRelativeTolerance * std::max(std::abs(one), std::abs(other));
}

/// Something that can be derived only while all that it is made of is known.
template <class Thing>
struct Derived {
  std::optional<Thing> thing;
  std::string why_not;  ///< in words; empty where it is there
};

template <class Make>
auto derive(const Make& make) -> Derived<decltype(make())> {
  try {
    return {make(), {}};
  } catch (const Error& error) {
    return {{}, one_line(error)};
  }
}

/// What a resolved config says that workers or the agent worked with.
class ConfigOfSteps {
 public:
  ConfigOfSteps(std::filesystem::path file, int64_t global_batch)
      : file_(std::move(file)), global_batch_(global_batch), plain_(derive([this] { return open({}); })) {
    if (!plain_.thing) return;
    planner_ = derive([this] { return Planner(open({"elasticity"})); });
    balancer_ = derive([this] { return Balancer(open({"balancer"})); });
    if (plain_.thing->balancer().fit) {
      balancer_ = {{}, "[balancer] fit = true follows the times that the ranks measured"};
    }
  }

  [[nodiscard]] Config open(const ConfigNeeds& needs) const {
    ConfigOverrides as_resolved;
    as_resolved.read_environment = false;
    return Config::open(file_, needs, as_resolved);
  }
  /// Why nothing is known of it; empty where something is.
  [[nodiscard]] const std::string& why_not() const { return plain_.why_not; }
  [[nodiscard]] const Config& plain() const { return *plain_.thing; }
  [[nodiscard]] std::string why_no_assignments() const {
    return !balancer_.why_not.empty() ? balancer_.why_not : planner_.why_not;
  }

  /// Rows at once at that world size; nullopt where it is none of the job's. Throws what the policy throws.
  std::optional<int64_t> micro_batch(int64_t world_size) {
    const auto known = micro_batches_.find(world_size);
    if (known != micro_batches_.end()) return known->second;
    std::optional<int64_t> rows;
    try {
      const Plan plan = planner_.thing->plan(world_size);
      if (plan.global_batch == global_batch_) rows = plan.micro_batch;
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
    return micro_batches_.emplace(world_size, rows).first->second;
  }
  [[nodiscard]] const Balancer& balancer() const { return *balancer_.thing; }

 private:
  std::filesystem::path file_;
  int64_t global_batch_;
  Derived<Config> plain_;
  Derived<Planner> planner_;
  Derived<Balancer> balancer_;
  std::map<int64_t, std::optional<int64_t>> micro_batches_;
};

class ConfigReplay {
 public:
  ConfigReplay(const RunDirectory& directory, const Lineage& lineage, Batches& batches, RunAudit& audit)
      : directory_(directory),
        lineage_(lineage),
        batches_(batches),
        audit_(audit),
        facts_(or_throw(directory.read_facts())),
        mean_batch_(batches.epoch(0).mean_batch()) {
    if (const auto text = data::read_whole(directory.config())) present_ = digest_of_config((*text)->bytes());
  }

  void run() {
    const auto steps = static_cast<int64_t>(lineage_.commits.size());
    for (step_ = 0; step_ < steps; ++step_) look_at(lineage_.commits[static_cast<size_t>(step_)]);
    for (const auto& [what, since] : unknown_) {
      const std::string steps_text = since.until == since.first ? fmt::format("step {}", since.first)
                                                                : fmt::format("steps {}..{}", since.first, since.until);
      audit_.not_checked.push_back(fmt::format("{} of {}: {}", what.first, steps_text, what.second));
    }
    if (steps > 0)
      audit_.not_checked.push_back("losses: they can only be checked by training again; --against compares them");
  }

 private:
  struct Steps {
    int64_t first = 0;
    int64_t until = 0;
  };

  void differs(std::string field, std::string recorded, std::string planned) {
    ++audit_.differences_found;
    if (audit_.differences.size() >= kMostDifferences) return;
    audit_.differences.push_back({step_, std::move(field), std::move(recorded), std::move(planned)});
  }
  void cannot(const std::string& what, const std::string& why) {
    Steps& steps = unknown_.try_emplace({what, why}, Steps{step_, step_}).first->second;
    steps.until = step_;
  }

  void look_at(const CommitRecord& commit) {
    place_of(commit);
    const GenerationRecord* const generation = generation_of(commit);
    if (generation != nullptr) compare_with(*generation, commit);
    ConfigOfSteps& config = config_of(generation != nullptr ? generation->config : std::string());
    if (!config.why_not().empty()) {
      cannot("learning rates and rows of the ranks", config.why_not());
      lost_rates_ = "an earlier config is unknown";
      return;
    }
    const std::string& on_nonfinite = config.plain().run().on_nonfinite;
    if (commit.skipped && on_nonfinite != "skip")
      differs("skipped", "true", fmt::format("[run] on_nonfinite is \"{}\"", on_nonfinite));
    rows_of(commit, config);
    rate_of(commit, config);
  }

  void place_of(const CommitRecord& commit) {
    while (index_ >= batches_.epoch(epoch_).batches) {
      ++epoch_;
      index_ = 0;
    }
    const auto text = [](int64_t epoch, int64_t index) { return fmt::format("{} of epoch {}", index, epoch); };
    if (commit.epoch != epoch_ || commit.batch_index != index_)
      differs("batch", text(commit.epoch, commit.batch_index), text(epoch_, index_));
    ++index_;
  }

  [[nodiscard]] const GenerationRecord* generation_of(const CommitRecord& commit) const {
    const size_t began = lineage_.began_before[static_cast<size_t>(commit.step)];
    return began == 0 ? nullptr : &lineage_.generations[began - 1];
  }

  void compare_with(const GenerationRecord& generation, const CommitRecord& commit) {
    if (generation.generation != commit.generation)
      differs("generation", std::to_string(commit.generation), std::to_string(generation.generation));
    if (std::cmp_not_equal(generation.world_size, commit.shares.size()))
      differs("world size", std::to_string(commit.shares.size()), std::to_string(generation.world_size));
  }

  ConfigOfSteps& config_of(const std::string& digest) {
    const bool is_present = digest.empty() || digest == present_;
    const auto found = configs_.find(is_present ? present_ : digest);
    if (found != configs_.end()) return found->second;
    return configs_
        .try_emplace(is_present ? present_ : digest,
                     is_present ? directory_.config() : directory_.config_before(digest), facts_.global_batch)
        .first->second;
  }

  void rows_of(const CommitRecord& commit, ConfigOfSteps& config) {
    constexpr const char* kWhat = "rows of the ranks";
    if (const std::string why = config.why_no_assignments(); !why.empty()) return cannot(kWhat, why);
    try {
      const auto world_size = static_cast<int64_t>(commit.shares.size());
      const std::optional<int64_t> micro_batch = config.micro_batch(world_size);
      if (!micro_batch) return differs("world size", std::to_string(world_size), "none that is valid for the job");
      const Batch batch = batches_.batch(commit.epoch, commit.batch_index);
      const auto costs = row_costs(batch, batches_.dataset(), config.balancer().rates());
      const auto planned =
          rows_of_ranks(config.balancer().assign(costs, {.world_size = world_size,
                                                         .micro_batch = *micro_batch,
                                                         .granule = facts_.granule,
                                                         .deterministic = config.plain().run().deterministic,
                                                         .in_turn = config.plain().has("coordinator")}));
      ++audit_.assignments;
      for (size_t rank = 0; rank < planned.size(); ++rank) {
        if (planned[rank] == commit.shares[rank]) continue;
        return differs(fmt::format("rows of rank {}", rank), text_of(commit.shares[rank]), text_of(planned[rank]));
      }
    } catch (const Error& error) {
      cannot(kWhat, one_line(error));
    }
  }

  void rate_of(const CommitRecord& commit, const ConfigOfSteps& config) {
    constexpr const char* kWhat = "learning rates";
    if (!lost_rates_.empty()) return cannot(kWhat, lost_rates_);
    try {
      if (rate_config_ != &config) change_rate(config);
      if (rate_->wants_gradient_norms()) {
        lost_rates_ = "a rule of [lr] depends on the norms of gradients, which the ledger does not record";
        return cannot(kWhat, lost_rates_);
      }
      const double planned = rate_->scaling(commit.step, commit.size).learning_rate;
      ++audit_.learning_rates;
      if (!same_rate(planned, commit.learning_rate))
        differs("learning rate", fmt::format("{}", commit.learning_rate), fmt::format("{}", planned));
      rate_->commit(commit.step, commit.size);
    } catch (const Error& error) {
      lost_rates_ = one_line(error);
      cannot(kWhat, lost_rates_);
    }
  }

  // A resume with other rules takes over what the rules before it had come to, as from a snapshot.
  void change_rate(const ConfigOfSteps& config) {
    const Config with_rules = config.open({"lr", "sampler"});
    LearningRate fresh(with_rules, mean_batch_);
    if (fresh.wants_job_length()) fresh.set_job_length(job_length(with_rules));
    if (rate_) fresh.load(rate_->save());
    rate_.emplace(std::move(fresh));
    rate_config_ = &config;
  }

  // Of a job of that config, whose batches are the same but whose epochs and steps may be more or fewer.
  JobLength job_length(const Config& config) {
    Plan plan;
    plan.global_batch = facts_.global_batch;
    plan.granule = facts_.granule;
    return Batches(config, plan, batches_.dataset()).job_length();
  }

  const RunDirectory& directory_;
  const Lineage& lineage_;
  Batches& batches_;
  RunAudit& audit_;
  JobFacts facts_;
  BatchSize mean_batch_;
  std::string present_;  ///< digest of the config that is in its place
  std::map<std::string, ConfigOfSteps> configs_;
  int64_t step_ = 0;
  int64_t epoch_ = 0;  ///< of the batch of that step
  int64_t index_ = 0;
  std::optional<LearningRate> rate_;
  const ConfigOfSteps* rate_config_ = nullptr;
  std::string lost_rates_;                                        ///< why no rate is known from some step on
  std::map<std::pair<std::string, std::string>, Steps> unknown_;  ///< what and why, and where
};

}  // namespace

void replay_config(const RunDirectory& directory, const Lineage& lineage, Batches& batches, RunAudit& audit) {
  ConfigReplay(directory, lineage, batches, audit).run();
}

}  // namespace pliant::elastic
