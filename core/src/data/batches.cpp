// The batches of a job: one planned epoch at a time, cut into global batches.
#include "pliant/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "data/digest.hpp"
#include "data/epoch_planner.hpp"
#include "data/packing.hpp"
#include "data/position.hpp"
#include "plugin/plugin.hpp"

namespace pliant {
namespace {

/// A schedule is not off by a step in thousands for the epochs after these; to plan all of a job without an end would
/// have none.
constexpr int64_t kMostEpochsPlanned = 64;

int64_t scaled(int64_t count, double factor) {
  constexpr double kMost = 9e18;  // an int64_t holds a little more
  return static_cast<int64_t>(std::min(static_cast<double>(count) * factor, kMost));
}

}  // namespace

uint64_t sample_digest(int64_t epoch, std::span<const int64_t> ids) {
  const uint64_t key = data::mix64(static_cast<uint64_t>(epoch));
  uint64_t sum = 0;
  for (const int64_t id : ids) sum += data::mix64(key ^ static_cast<uint64_t>(id));
  return sum;
}

struct Batches::State {
  State(const Config& read, const Plan& plan, Dataset owned)
      : config(read),
        dataset(std::move(owned)),
        seed(static_cast<uint64_t>(config.run().seed)),
        epochs(config.run().epochs),
        max_steps(config.run().max_steps),
        global_batch(plan.global_batch),
        now(new_planner()) {}

  /// Checked, without a plan and without the fingerprint.
  static std::unique_ptr<State> open(const Config& config, const Plan& plan, Dataset dataset);

  [[nodiscard]] std::unique_ptr<data::EpochPlanner> new_planner() const {
    const bool streams = dataset.lengths.size() >= data::kStreamFrom;
    return or_throw(data::EpochPlanner::make(or_throw(config::instantiate(config, "sampler")), streams));
  }
  void plan_epoch(data::EpochPlanner& planner, int64_t epoch) const {
    or_throw(planner.plan({seed, epoch, global_batch, dataset}));
    require_as_saved(planner);
  }
  void require_as_saved(data::EpochPlanner& planner) const {
    const int64_t epoch = planner.plan().epoch();
    if (!opened_at.has_begun(epoch) || planner.plan().facts().digest == opened_at.rows) return;
    planner.forget();
    throw Error(
        Status::kFailedPrecondition,
        fmt::format("{} gives other rows for epoch {} than when the position was saved; its plugin is another one now",
                    planner.sampler().name, epoch),
        Origin::kInput);
  }

  data::EpochPlan& at_epoch(int64_t epoch) {
    if (epoch < 0) throw Error(Status::kOutOfRange, fmt::format("epoch {}: epochs are counted from 0", epoch));
    if (now->holds(epoch)) return now->plan();
    if (after && after->holds(epoch)) {
      now = std::move(after);
      require_as_saved(*now);
    } else {
      after.reset();
      plan_epoch(*now, epoch);
    }
    return now->plan();
  }
  /// The same beside the epoch that at_epoch gave last, which stays.
  data::EpochPlan& after_epoch(int64_t epoch) {
    if (!after) after = new_planner();
    if (!after->holds(epoch)) plan_epoch(*after, epoch);
    return after->plan();
  }

  /// Batch `index` of an epoch, which is there.
  [[nodiscard]] Batch cut(data::EpochPlan& plan, int64_t index) const {
    const int64_t first = index * global_batch;
    const int64_t count = std::min(global_batch, plan.summary().rows - first);
    return or_throw(plan.cut(index, static_cast<uint64_t>(first), static_cast<uint64_t>(count)));
  }

  /// The first job step of `epoch`: batches of all epochs before it. Each epoch is counted once; those before
  /// counted_from are counted where somebody asks for them.
  int64_t first_step(int64_t epoch) {
    if (epoch < counted_from) count_from(0, 0);
    while (counted_epochs() < epoch)
      first_steps.push_back(first_steps.back() + at_epoch(counted_epochs()).summary().batches);
    return first_steps[static_cast<size_t>(epoch - counted_from)];
  }
  void count_from(int64_t epoch, int64_t its_first_step) {
    counted_from = epoch;
    first_steps = {its_first_step};
  }
  /// The epoch of `step`, which is not before counted_from, as far as it is known: of later steps the first that was
  /// not counted.
  [[nodiscard]] int64_t known_epoch_of(int64_t step) const {
    return counted_from + (std::upper_bound(first_steps.begin(), first_steps.end(), step) - first_steps.begin()) - 1;
  }

  /// The epoch of `step`; `epochs` where the job ends before. Plans the epochs up to it that were not yet counted.
  [[nodiscard]] int64_t epoch_of(int64_t step) {
    if (step < first_steps.front()) count_from(0, 0);
    int64_t epoch = known_epoch_of(step);
    while (epoch < epochs && first_step(epoch + 1) <= step) ++epoch;
    return epoch;
  }

  [[nodiscard]] int64_t counted_epochs() const { return counted_from + static_cast<int64_t>(first_steps.size()) - 1; }

  /// Everything that decides the batches. Options count through the sampler's saved state and through what they do to
  /// the rows of epoch 0.
  [[nodiscard]] uint64_t digest_of_inputs(const Plan& plan) {
    data::Digest digest;
    digest.add(data_digest);
    digest.add(seed);
    digest.add(static_cast<uint64_t>(plan.global_batch));
    digest.add(static_cast<uint64_t>(plan.granule));
    digest.add(std::string_view(now->instance().plugin().record().name));
    digest.add(std::string_view(or_throw(now->instance().save())));
    digest.add(at_epoch(0).facts().digest);
    return digest.value();
  }
  /// The same without a plan: every option counts, whatever it does.
  [[nodiscard]] uint64_t digest_of_options(const Plan& plan) {
    data::Digest digest;
    digest.add(static_cast<uint64_t>(plan.granule));
    digest.add(std::string_view(or_throw(config::choice_of(config, "sampler"))));
    digest.add(std::string_view(or_throw(now->instance().save())));
    return digest.value();
  }
  [[nodiscard]] uint64_t digest_of_data() const {
    data::Digest digest;
    digest.add(dataset.lengths.view());
    digest.add(dataset.loss_tokens.view());
    if (dataset.content != 0) digest.add(dataset.content);
    if (!dataset.rows.empty()) {
      digest.add(std::string_view("rows"));
      digest.add(dataset.rows.offsets.view());
      digest.add(dataset.rows.ids.view());
    }
    if (!dataset.costs.empty()) {
      digest.add(std::string_view("costs"));
      digest.add(dataset.costs.view());
    }
    return digest.value();
  }

  [[nodiscard]] const pliant_packing* packing_table() const {
    return or_throw(now->instance().extension<pliant_packing>(PLIANT_PACKING));
  }
  /// Streamed rows are not there to be reported on: another instance plans them, and forgets them.
  [[nodiscard]] Result<Packing> planned_elsewhere(int64_t epoch) const {
    auto other = config::instantiate(config, "sampler");
    if (!other) return failed(std::move(other));
    data::Sampler planner = now->sampler();
    planner.self = other->self();
    planner.stream = nullptr;
    const data::EpochInputs inputs{seed, epoch, global_batch, dataset};
    const auto rows = data::open_rows(planner, inputs);
    if (!rows) return tl::unexpected<Error>(rows.error());
    const Result<const pliant_packing*> table = other->extension<pliant_packing>(PLIANT_PACKING);
    if (!table) return tl::unexpected<Error>(table.error());
    return data::packing_of(planner, *table);
  }

  [[nodiscard]] std::string name_of_data() const {
    std::string name = dataset.source.empty() ? "the data set" : dataset.source;
    const bool has_rows = !dataset.rows.empty();
    if (!has_rows && dataset.costs.empty()) return name;
    return fmt::format("{} with its {}{}", name, has_rows ? "rows" : "costs",
                       has_rows && !dataset.costs.empty() ? " and costs" : "");
  }

  [[nodiscard]] data::Position position() const {
    const pliant_plugin& record = now->instance().plugin().record();
    data::Position here{fmt::format("{} {}", record.name, record.version),
                        name_of_data(),
                        dataset.lengths.size(),
                        data_digest,
                        seed,
                        global_batch,
                        fingerprint,
                        next_step,
                        options_digest};
    if (opened_at.epoch >= 0 && next_step == opened_at.step) {
      here.epoch = opened_at.epoch;
      here.first_step = opened_at.first_step;
      here.rows = opened_at.rows;
      return here;
    }
    if (next_step < first_steps.front() || next_step > first_steps.back()) return here;
    here.epoch = known_epoch_of(next_step);
    here.first_step = first_steps[static_cast<size_t>(here.epoch - counted_from)];
    here.rows = rows_of_last;
    return here;
  }

  Config config;
  Dataset dataset;
  uint64_t seed;
  int64_t epochs;
  int64_t max_steps;
  int64_t global_batch;
  std::unique_ptr<data::EpochPlanner> now;    ///< with the epoch that was looked at last
  std::unique_ptr<data::EpochPlanner> after;  ///< with the one after it, where coming has looked at that
  int64_t counted_from = 0;                   ///< the first epoch of which it is known how many steps come before it
  std::vector<int64_t> first_steps{0};
  data::Position opened_at;   ///< epoch -1: at the beginning
  uint64_t rows_of_last = 0;  ///< digest of the rows of the epoch of step next_step - 1; 0: there is none
  uint64_t data_digest = 0;
  uint64_t options_digest = 0;
  uint64_t fingerprint = 0;
  int64_t next_step = 0;
};

std::unique_ptr<Batches::State> Batches::State::open(const Config& config, const Plan& plan, Dataset dataset) {
  or_throw(data::check_dataset(dataset));
  dataset = complete_dataset(config, std::move(dataset));
  if (plan.global_batch < 1) {
    throw Error(Status::kInvalidArgument,
                fmt::format("the plan has a global batch of {} rows; it must be at least 1", plan.global_batch));
  }
  auto state = std::make_unique<State>(config, plan, std::move(dataset));
  state->data_digest = state->digest_of_data();
  state->options_digest = state->digest_of_options(plan);
  return state;
}

Batches::Batches(const Config& config, const Plan& plan, Dataset dataset)
    : state_(State::open(config, plan, std::move(dataset))) {
  state_->fingerprint = state_->digest_of_inputs(plan);
}

Batches::Batches(const Config& config, const Plan& plan, Dataset dataset, std::string_view saved) {
  const data::Position position = or_throw(data::parse_position(saved));
  state_ = State::open(config, plan, std::move(dataset));
  if (position.epoch < 0) {  // there is no way around the epochs before it
    state_->fingerprint = state_->digest_of_inputs(plan);
    load(saved);
    return;
  }
  or_throw(data::check_same_options(position, state_->position()));
  state_->fingerprint = position.fingerprint;
  state_->opened_at = position;
  state_->next_step = position.step;
  state_->rows_of_last = position.rows;
  state_->count_from(position.epoch, position.first_step);
}

Batches::~Batches() = default;
Batches::Batches(Batches&&) noexcept = default;
Batches& Batches::operator=(Batches&&) noexcept = default;

const Dataset& Batches::dataset() const {
  return state_->dataset;
}

const EpochSummary& Batches::epoch(int64_t epoch) {
  return state_->at_epoch(epoch).summary();
}

std::map<std::string, std::vector<int64_t>> Batches::dropped_by_reason(int64_t epoch) {
  return state_->at_epoch(epoch).facts().dropped;
}

std::vector<int64_t> Batches::dropped(int64_t epoch) {
  std::vector<int64_t> ids;
  for (const auto& [reason, members] : state_->at_epoch(epoch).facts().dropped)
    ids.insert(ids.end(), members.begin(), members.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<int64_t> Batches::truncated(int64_t epoch) {
  return state_->at_epoch(epoch).facts().truncated.ids();
}

Batch Batches::batch(int64_t epoch, int64_t index) {
  data::EpochPlan& plan = state_->at_epoch(epoch);
  if (index < 0 || index >= plan.summary().batches) {
    throw Error(Status::kOutOfRange, fmt::format("batch {} of epoch {}: the epoch has {} batches, counted from 0",
                                                 index, epoch, plan.summary().batches));
  }
  return state_->cut(plan, index);
}

Batch Batches::rows(int64_t epoch, int64_t first, int64_t count) {
  data::EpochPlan& plan = state_->at_epoch(epoch);
  const int64_t all = plan.summary().rows;
  if (first < 0 || count < 1 || first > all - count) {
    throw Error(Status::kOutOfRange,
                fmt::format("{} rows from row {} of epoch {} on: the epoch has {} rows, counted from 0", count, first,
                            epoch, all));
  }
  return or_throw(plan.cut(-1, static_cast<uint64_t>(first), static_cast<uint64_t>(count)));
}

Packing Batches::packing(int64_t epoch) {
  State& s = *state_;
  const EpochSummary& summary = s.at_epoch(epoch).summary();
  Packing packing = s.now->sampler().stream == nullptr ? or_throw(data::packing_of(s.now->sampler(), s.packing_table()))
                                                       : or_throw(s.planned_elsewhere(epoch));
  const auto rows = static_cast<double>(summary.rows - summary.padding_rows);
  const bool own_unit = packing.unit == "loss_tokens" || packing.unit == "cost";
  const double room = rows * static_cast<double>(packing.budget > 0 ? packing.budget : summary.longest_row);
  packing.efficiency = (own_unit ? packing.used : static_cast<double>(summary.tokens)) / room;
  return packing;
}

bool Batches::has_step(int64_t step) {
  State& s = *state_;
  if (step < 0 || (s.max_steps != 0 && step >= s.max_steps)) return false;
  if (step < s.first_steps.front()) return true;
  // An epoch has at least one batch, so the one after the last that was counted need not be planned for its first step.
  while (s.first_steps.back() < step && s.counted_epochs() < s.epochs) s.first_step(s.counted_epochs() + 1);
  return step < s.first_steps.back() || (step == s.first_steps.back() && s.counted_epochs() < s.epochs);
}

int64_t Batches::expected_steps() {
  State& s = *state_;
  if (s.first_steps.size() == 1 && s.counted_from < s.epochs) s.first_step(s.counted_from + 1);
  const int64_t counted = s.first_steps.back();
  const int64_t last = s.first_steps.size() > 1 ? counted - s.first_steps[s.first_steps.size() - 2] : 0;
  const int64_t most = s.max_steps == 0 ? std::numeric_limits<int64_t>::max() : s.max_steps;
  const int64_t left = s.epochs - s.counted_epochs();
  if (counted >= most || (last > 0 && left > (most - counted) / last)) return most;
  return counted + left * last;
}

JobLength Batches::job_length() {
  const State& s = *state_;
  JobLength length;
  int64_t all = 0;
  int64_t planned = 0;
  const int64_t most = std::min(s.epochs, kMostEpochsPlanned);
  for (; planned < most && (s.max_steps == 0 || all < s.max_steps); ++planned) {
    const EpochSummary& summary = epoch(planned);
    all += summary.batches;
    length.size.rows += summary.rows - summary.padding_rows;
    length.size.sequences += summary.sequences;
    length.size.tokens += summary.tokens;
    length.size.loss_tokens += summary.loss_tokens;
  }
  const int64_t expected =
      planned < s.epochs ? scaled(all, static_cast<double>(s.epochs) / static_cast<double>(planned)) : all;
  length.steps = s.max_steps == 0 ? expected : std::min(expected, s.max_steps);
  if (all == 0 || length.steps == all) return length;
  const double share = static_cast<double>(length.steps) / static_cast<double>(all);
  for (int64_t* count : {&length.size.rows, &length.size.sequences, &length.size.tokens, &length.size.loss_tokens}) {
    *count = scaled(*count, share);
  }
  return length;
}

Batch Batches::at_step(int64_t step) {
  State& s = *state_;
  // Counts epochs only as far as the step needs, so that a long job starts at once.
  if (step >= 0 && (s.max_steps == 0 || step < s.max_steps)) {
    const int64_t epoch = s.epoch_of(step);
    if (epoch < s.epochs) return batch(epoch, step - s.first_step(epoch));
  }
  throw Error(Status::kOutOfRange,
              fmt::format("step {}: the job has {} steps, counted from 0", step, expected_steps()));
}

std::optional<Batch> Batches::next() {
  State& s = *state_;
  if (!has_step(s.next_step)) return std::nullopt;
  Batch batch = at_step(s.next_step);
  s.rows_of_last = s.now->plan().facts().digest;
  ++s.next_step;
  return batch;
}

std::optional<Batch> Batches::coming(int64_t ahead) {
  State& s = *state_;
  if (ahead < 1) {
    throw Error(Status::kInvalidArgument, fmt::format("Batches::coming looks at least 1 step ahead, not {}", ahead));
  }
  const int64_t most = s.max_steps == 0 ? std::numeric_limits<int64_t>::max() : s.max_steps;
  if (ahead > most - s.next_step) return std::nullopt;
  const int64_t step = s.next_step + (ahead - 1);
  const int64_t last = s.next_step > s.first_steps.front() ? s.next_step - 1 : s.next_step;
  const int64_t epoch = s.epoch_of(last);
  if (epoch >= s.epochs) return std::nullopt;
  const int64_t end = s.first_step(epoch + 1);
  if (step < end) return s.cut(s.at_epoch(epoch), step - s.first_step(epoch));
  if (epoch + 1 >= s.epochs) return std::nullopt;
  data::EpochPlan& after = s.after_epoch(epoch + 1);
  if (step - end >= after.summary().batches) return std::nullopt;
  return s.cut(after, step - end);
}

int64_t Batches::next_step() const {
  return state_->next_step;
}

void Batches::seek(int64_t step) {
  if (step < 0) throw Error(Status::kOutOfRange, fmt::format("step {}: steps are counted from 0", step));
  if (step == state_->next_step) return;
  state_->next_step = step;
  state_->rows_of_last = 0;
}

std::string Batches::save() const {
  return data::to_bytes(state_->position());
}

void Batches::load(std::string_view saved) {
  const data::Position position = or_throw(data::parse_position(saved));
  or_throw(data::check_same_batches(position, state_->position()));
  state_->next_step = position.step;
  state_->rows_of_last = position.rows;
  if (position.epoch < 0) return;
  state_->opened_at = position;
  const bool is_counted = position.epoch >= state_->counted_from && position.epoch <= state_->counted_epochs();
  if (!is_counted) state_->count_from(position.epoch, position.first_step);
}

uint64_t Batches::fingerprint() const {
  return state_->fingerprint;
}

}  // namespace pliant
