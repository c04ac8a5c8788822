// The configured chain of learning-rate rules: what goes in, who comes after whom, progress, state.
#include "pliant/learning_rate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "config/instances.hpp"
#include "data/lr_link.hpp"
#include "data/lr_state.hpp"

namespace pliant {

namespace {

int32_t unit_of(const std::string& unit) {
  if (unit == "rows" || unit == "packs") return PLIANT_BATCH_ROWS;
  if (unit == "sequences") return PLIANT_BATCH_SEQUENCES;
  if (unit == "tokens") return PLIANT_BATCH_TOKENS;
  return unit == "loss_tokens" ? PLIANT_BATCH_LOSS_TOKENS : 0;
}

pliant_lr_counts counts_of(const BatchSize& size) {
  return {static_cast<double>(size.rows - size.padding_rows), static_cast<double>(size.sequences),
          static_cast<double>(size.tokens), static_cast<double>(size.loss_tokens)};
}

double in_unit(const pliant_lr_counts& counts, int32_t unit) {
  switch (unit) {
    case PLIANT_BATCH_ROWS:
      return counts.rows;
    case PLIANT_BATCH_SEQUENCES:
      return counts.sequences;
    case PLIANT_BATCH_TOKENS:
      return counts.tokens;
    default:
      return counts.loss_tokens;
  }
}

/// The batch that base_lr suits.
struct Base {
  int32_t unit = 0;
  double batch = 0;
  pliant_lr_counts counts{};
};

Result<Base> chosen_base(const LrOptions& options, const BatchSize& mean_batch) {
  const auto refuse = [](std::string message) {
    return failed(Status::kInvalidArgument, std::move(message), Origin::kInput);
  };
  if (!std::isfinite(options.base_lr)) return refuse(fmt::format("[lr] base_lr = {} is not finite", options.base_lr));
  if (!std::isfinite(options.base_batch) || options.base_batch < 0) {
    return refuse(fmt::format("[lr] base_batch = {}: give a number of {} above 0, or 0 for the mean batch",
                              options.base_batch, options.unit));
  }
  Base base;
  base.unit = unit_of(options.unit);
  if (base.unit == 0) {
    return refuse(fmt::format("[lr] unit = \"{}\" is unknown; allowed: rows, packs, sequences, tokens, loss_tokens",
                              options.unit));
  }
  base.counts = counts_of(mean_batch);
  const double mean = in_unit(base.counts, base.unit);
  base.batch = options.base_batch > 0 ? options.base_batch : mean;
  if (!(base.batch > 0)) {
    return refuse(fmt::format("[lr] base_batch = 0 means the mean batch, which has {} {} here; set base_batch", mean,
                              options.unit));
  }
  if (options.base_batch > 0) {  // the other units as in the mean batch, where that is known
    const double ratio = mean > 0 ? options.base_batch / mean : 0;
    for (double* count : {&base.counts.rows, &base.counts.sequences, &base.counts.tokens, &base.counts.loss_tokens}) {
      *count = std::isfinite(ratio) ? *count * ratio : 0;
    }
  }
  return base;
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

Scaling scaling_of(const pliant_lr_output& answer) {
  return {answer.lr,      answer.scheduled_lr, answer.lr_factor, answer.one_minus_beta1, answer.one_minus_beta2,
          answer.epsilon, answer.weight_decay, answer.ema_power, answer.momentum_buffer, answer.second_moment,
          answer.progress};
}

pliant_lr_output untouched(double base_lr, double batch) {
  return {sizeof(pliant_lr_output), 0, base_lr, base_lr, 1, 1, 1, 1, 1, 1, 1, 1, batch};
}

}  // namespace

struct LearningRate::State {
  LrOptions options;
  Base base;
  std::vector<data::LrLink> links;
  JobLength length;
  int64_t committed = 0;  ///< steps
  double progress = 0;

  [[nodiscard]] std::string chain() const {
    std::string names;
    for (const data::LrLink& link : links) names += (names.empty() ? "" : "+") + link.name();
    return names;
  }
  [[nodiscard]] bool wants(uint32_t flag) const {
    for (const data::LrLink& link : links) {
      if (link.wants(flag)) return true;
    }
    return false;
  }

  /// All but `previous`.
  [[nodiscard]] Result<pliant_lr_input> input_of(int64_t step, const BatchSize& size, double base_lr) const {
    if (step < 0 || !std::isfinite(base_lr)) {
      return failed(Status::kInvalidArgument, fmt::format("cannot compute a learning rate for step {} with base_lr {}; "
                                                          "steps are counted from 0 and rates must be finite",
                                                          step, base_lr));
    }
    pliant_lr_input input{};
    input.struct_size = sizeof(input);
    input.optimizer = data::optimizer_of(options.optimizer);
    input.unit = base.unit;
    input.base_lr = base_lr > 0 ? base_lr : options.base_lr;
    input.base_batch = base.batch;
    input.counts = counts_of(size);
    input.batch = in_unit(input.counts, base.unit);
    input.step = step;
    input.total_steps = length.steps;
    input.progress = committed > 0 ? progress : static_cast<double>(step) * base.batch;
    input.total_progress = in_unit(counts_of(length.size), base.unit);
    input.base_beta1 = or_nan(options.beta1);
    input.base_beta2 = or_nan(options.beta2);
    input.base_epsilon = or_nan(options.epsilon);
    input.base_weight_decay = or_nan(options.weight_decay);
    input.base_ema = or_nan(options.ema);
    input.base_counts = base.counts;
    return input;
  }

  /// The answers of all links; the first entry is what goes into the first.
  [[nodiscard]] Result<std::vector<pliant_lr_output>> answers(pliant_lr_input input) const {
    std::vector<pliant_lr_output> all{untouched(input.base_lr, input.batch)};
    for (const data::LrLink& link : links) {
      const pliant_lr_output previous = all.back();
      input.previous = &previous;
      auto answer = link.scale(input);
      if (!answer) return failed(std::move(answer));
      all.push_back(*answer);
    }
    return all;
  }
};

namespace {

std::vector<data::LrLink> checked_links(const Config& config) {
  std::vector<data::LrLink> links;
  std::vector<plugin::Instance> instances = or_throw(config::instantiate_lr_chain(config));
  for (plugin::Instance& instance : instances) {
    links.push_back(or_throw(data::LrLink::make(std::move(instance))));
    const Result<> fits = links.back().check_optimizer(data::optimizer_of(config.lr().optimizer));
    if (!fits) throw config::at_lr_key(config, links.size() - 1, "optimizer", fits.error());
  }
  return links;
}

}  // namespace

LearningRate::LearningRate(const Config& config, const BatchSize& mean_batch) {
  auto state = std::make_unique<State>();
  state->options = config.lr();
  state->base = or_throw(chosen_base(config.lr(), mean_batch));
  state->links = checked_links(config);
  state_ = std::move(state);
}

void LearningRate::check(const Config& config) {
  if (config::is_open(config, "lr")) (void)checked_links(config);
}

LearningRate::~LearningRate() = default;
LearningRate::LearningRate(LearningRate&&) noexcept = default;
LearningRate& LearningRate::operator=(LearningRate&&) noexcept = default;

Scaling LearningRate::scaling(int64_t step, const BatchSize& size, double base_lr) const {
  return scaling_of(or_throw(state_->answers(or_throw(state_->input_of(step, size, base_lr)))).back());
}

double LearningRate::at(int64_t step, const BatchSize& size, double base_lr) const {
  return scaling(step, size, base_lr).learning_rate;
}

void LearningRate::commit(int64_t step, const BatchSize& size, const std::optional<GradientNorms>& norms,
                          double base_lr) {
  State& s = *state_;
  if (step < s.committed) {
    throw Error(
        Status::kFailedPrecondition,
        fmt::format("step {} of the learning rate was committed before; the next step is {}", step, s.committed));
  }
  if (step == std::numeric_limits<int64_t>::max()) {
    throw Error(Status::kOutOfRange, fmt::format("step {} of the learning rate has no step after it", step));
  }
  pliant_lr_input input = or_throw(s.input_of(step, size, base_lr));
  const std::vector<pliant_lr_output> all = or_throw(s.answers(input));
  pliant_lr_committed committed{};
  committed.struct_size = sizeof(committed);
  if (norms && norms->parts >= 2 && std::isfinite(norms->small_norm) && std::isfinite(norms->big_norm)) {
    committed.small_batch = input.batch / static_cast<double>(norms->parts);
    committed.small_norm = norms->small_norm;
    committed.big_batch = input.batch;
    committed.big_norm = norms->big_norm;
  }
  for (size_t i = 0; i < s.links.size(); ++i) {
    input.previous = &all[i];
    or_throw(s.links[i].commit(input, all[i + 1], committed));
  }
  s.progress = input.progress + all.back().progress;
  s.committed = step + 1;
}

bool LearningRate::wants_gradient_norms() const {
  return state_->wants(PLIANT_LR_WANTS_GRADIENT_NORMS);
}

bool LearningRate::wants_job_length() const {
  return state_->wants(PLIANT_LR_WANTS_TOTAL);
}

void LearningRate::set_job_length(const JobLength& length) {
  state_->length = length;
}

std::string LearningRate::save() const {
  data::LrChainState saved{state_->committed, state_->progress, {}};
  for (const data::LrLink& link : state_->links) saved.links.push_back(or_throw(link.save()));
  return data::pack_lr_state(state_->chain(), data::encode(saved));
}

void LearningRate::load(const std::string& saved) {
  State& s = *state_;
  const data::LrChainState wanted =
      or_throw(data::decode(or_throw(data::unpack_lr_state(saved, s.chain())), s.links.size()));
  std::vector<std::string> before;
  for (size_t i = 0; i < s.links.size(); ++i) {
    before.push_back(or_throw(s.links[i].save()));
    Result<> loaded = s.links[i].load(wanted.links[i]);
    if (loaded) continue;
    for (size_t back = 0; back < i; ++back) or_throw(s.links[back].load(before[back]));
    or_throw(std::move(loaded));
  }
  s.committed = wanted.committed;
  s.progress = wanted.progress;
}

}  // namespace pliant
