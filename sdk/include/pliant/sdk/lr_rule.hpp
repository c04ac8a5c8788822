// Write a learning-rate rule as a class with `double scale(const LrInput&) const`, then PLIANT_LR_RULE.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "pliant/abi/lr_rule.h"
#include "pliant/sdk/plugin.hpp"

namespace pliant::sdk {

enum class Optimizer : int32_t {
  kUnknown = PLIANT_OPTIMIZER_UNKNOWN,
  kSgd = PLIANT_OPTIMIZER_SGD,
  kSgdMomentum = PLIANT_OPTIMIZER_SGD_MOMENTUM,
  kNesterov = PLIANT_OPTIMIZER_NESTEROV,
  kAdam = PLIANT_OPTIMIZER_ADAM,
  kAdamW = PLIANT_OPTIMIZER_ADAMW,
  kLamb = PLIANT_OPTIMIZER_LAMB,
  kLars = PLIANT_OPTIMIZER_LARS,
  kSign = PLIANT_OPTIMIZER_SIGN,
  kOther = PLIANT_OPTIMIZER_OTHER,
};

/// A set of families, as LrFacts has it.
template <class... Family>
constexpr uint32_t optimizers(Family... families) {
  return ((uint32_t{1} << static_cast<uint32_t>(families)) | ... | uint32_t{0});
}
inline constexpr uint32_t kEveryOptimizer =
    optimizers(Optimizer::kUnknown, Optimizer::kSgd, Optimizer::kSgdMomentum, Optimizer::kNesterov, Optimizer::kAdam,
               Optimizer::kAdamW, Optimizer::kLamb, Optimizer::kLars, Optimizer::kSign, Optimizer::kOther);

/// What a rule says about itself, in `LrFacts facts() const`.
struct LrFacts {
  uint32_t optimizers = kEveryOptimizer;
  const char* reason = nullptr;  ///< why not the others and what suits them; a literal
  bool wants_gradient_norms = false;
  bool wants_total = false;
};

/// The answer of a link of the chain; see pliant_lr_output for the meaning of the fields.
struct LrScaling {
  double lr = 0;
  double scheduled_lr = 0;
  double lr_factor = 1;
  double one_minus_beta1 = 1;
  double one_minus_beta2 = 1;
  double epsilon = 1;
  double weight_decay = 1;
  double ema_power = 1;
  double momentum_buffer = 1;
  double second_moment = 1;
  double progress = 0;

  /// Multiplies the rate by what the batch asks for.
  void multiply_lr(double factor) {
    lr *= factor;
    lr_factor *= factor;
  }
  /// Replaces the part of the rate that the batch makes.
  void replace_factor(double factor) {
    if (factor == lr_factor) return;
    lr = lr_factor != 0 ? lr * (factor / lr_factor) : scheduled_lr * factor;
    lr_factor = factor;
  }
  /// Replaces the part of the rate that time makes.
  void replace_schedule(double rate) {
    lr = lr == scheduled_lr ? rate : scheduled_lr != 0 ? lr * (rate / scheduled_lr) : rate * lr_factor;
    scheduled_lr = rate;
  }
};

struct LrCounts {
  double rows = 0;
  double sequences = 0;
  double tokens = 0;
  double loss_tokens = 0;
};

struct LrInput {
  double base_lr = 0;     ///< the rate that suits base_batch now: after the links before this one
  double base_batch = 0;  ///< in the unit of [lr] unit
  double batch = 0;       ///< this step's batch, same unit
  int64_t step = 0;       ///< optimizer updates made before this one
  Optimizer optimizer = Optimizer::kUnknown;
  int32_t unit = 0;                                            ///< PLIANT_BATCH_...
  int64_t total_steps = 0;                                     ///< of the job; 0 = not known
  double progress = 0;                                         ///< what the committed steps added, in unit
  double total_progress = 0;                                   ///< of the job; 0 = not known
  std::optional<double> beta1, beta2, eps, weight_decay, ema;  ///< base values of [lr], where given
  LrCounts base_counts;                                        ///< base_batch in every unit, 0 = not known
  LrCounts counts;                                             ///< batch in every unit
  LrScaling so_far;                                            ///< the answer of the link before this one
};

/// Squared gradient norms of a committed step. Sizes in [lr] unit.
struct LrCommitted {
  double small_batch = 0;
  double small_norm = 0;
  double big_batch = 0;
  double big_norm = 0;
  [[nodiscard]] bool has_norms() const { return small_batch > 0 && big_batch > small_batch; }
};

namespace detail {

inline std::optional<double> given(double value) {
  return std::isnan(value) ? std::nullopt : std::optional<double>(value);
}

inline LrCounts counts(const pliant_lr_counts& from) {
  return {from.rows, from.sequences, from.tokens, from.loss_tokens};
}

inline LrScaling scaling(const pliant_lr_output* given_output) {
  const pliant_lr_output from = taken(given_output, &pliant_lr_output::progress, "pliant_lr_output");
  return {from.lr,      from.scheduled_lr, from.lr_factor, from.one_minus_beta1, from.one_minus_beta2,
          from.epsilon, from.weight_decay, from.ema_power, from.momentum_buffer, from.second_moment,
          from.progress};
}

inline LrInput lr_input(const pliant_lr_input* given_input) {
  const pliant_lr_input from = taken(given_input, &pliant_lr_input::previous, "pliant_lr_input");
  LrInput made;
  made.so_far = scaling(from.previous);
  made.base_lr = made.so_far.lr;
  made.base_batch = from.base_batch;
  made.batch = from.batch;
  made.step = from.step;
  made.optimizer = static_cast<Optimizer>(from.optimizer);
  made.unit = from.unit;
  made.total_steps = from.total_steps;
  made.progress = from.progress;
  made.total_progress = from.total_progress;
  made.beta1 = given(from.base_beta1);
  made.beta2 = given(from.base_beta2);
  made.eps = given(from.base_epsilon);
  made.weight_decay = given(from.base_weight_decay);
  made.ema = given(from.base_ema);
  made.base_counts = counts(from.base_counts);
  made.counts = counts(from.counts);
  return made;
}

/// Throws unless the border takes it: all finite, factors and progress not below 0.
inline void put(const LrScaling& from, const LrInput& input, pliant_lr_output& to) {
  const double factors[] = {from.lr_factor, from.one_minus_beta1, from.one_minus_beta2, from.epsilon, from.weight_decay,
                            from.ema_power, from.momentum_buffer, from.second_moment,   from.progress};
  bool good = std::isfinite(from.lr) && std::isfinite(from.scheduled_lr);
  for (const double factor : factors) good = good && std::isfinite(factor);
  if (!good) {
    throw Failure(PLIANT_OUT_OF_RANGE, "the rate is not finite for a batch of " + std::to_string(input.batch) +
                                           " over " + std::to_string(input.base_batch));
  }
  fill(&to, {0, 0, from.lr, from.scheduled_lr, from.lr_factor, from.one_minus_beta1, from.one_minus_beta2, from.epsilon,
             from.weight_decay, from.ema_power, from.momentum_buffer, from.second_moment, from.progress});
}

template <class T>
concept HasFacts = requires(const T& rule) {
  { rule.facts() } -> std::convertible_to<LrFacts>;
};
template <class T>
concept HasCommit = requires(T& rule, const LrInput& input, const LrScaling& answer, const LrCommitted& committed) {
  rule.commit(input, answer, committed);
};
template <class T>
concept GivesRateAlone = requires(T& rule, const LrInput& input) {
  { rule.scale(input) } -> std::convertible_to<double>;
};

template <class T>
struct LrAdapter {
  using Instance = Plain<T>;

  static LrScaling answer(Instance& instance, const LrInput& input) {
    if constexpr (GivesRateAlone<T>) {
      LrScaling made = input.so_far;
      made.lr = instance.plugin.scale(input);
      made.lr_factor *= input.base_lr != 0 ? made.lr / input.base_lr : 1;
      return made;
    } else {
      return instance.plugin.scale(input);
    }
  }
  static int32_t describe(void* self, pliant_lr_facts* to, pliant_error* error) noexcept {
    return guarded(error, [&] {
      LrFacts facts;
      if constexpr (HasFacts<T>) facts = static_cast<const Instance*>(self)->plugin.facts();
      pliant_lr_facts made{};
      made.flags = (facts.wants_gradient_norms ? uint32_t{PLIANT_LR_WANTS_GRADIENT_NORMS} : 0) |
                   (facts.wants_total ? uint32_t{PLIANT_LR_WANTS_TOTAL} : 0);
      made.optimizers = facts.optimizers;
      made.reason = facts.reason;
      fill(to, made);
      (void)self;
    });
  }
  static int32_t scale(void* self, const pliant_lr_input* in, pliant_lr_output* out, pliant_error* error) noexcept {
    return guarded(error, [&] {
      const LrInput input = lr_input(in);
      put(answer(*static_cast<Instance*>(self), input), input, *out);
    });
  }
  static int32_t commit(void* self, const pliant_lr_input* in, const pliant_lr_output* out,
                        const pliant_lr_committed* committed, pliant_error* error) noexcept {
    return guarded(error, [&] {
      if constexpr (HasCommit<T>) {
        const pliant_lr_committed known = taken(committed, &pliant_lr_committed::big_norm, "pliant_lr_committed");
        const LrCommitted step{known.small_batch, known.small_norm, known.big_batch, known.big_norm};
        static_cast<Instance*>(self)->plugin.commit(lr_input(in), scaling(out), step);
      }
    });
  }
  static const void* vtable() noexcept {
    static const pliant_lr_rule kTable{sizeof(pliant_lr_rule), 0, &describe, &scale, &commit};
    return &kTable;
  }
};

}  // namespace detail
}  // namespace pliant::sdk

#define PLIANT_LR_RULE(Type, name, version, summary) \
  PLIANT_DETAIL_EXPORT(Type, LrAdapter, PLIANT_KIND_LR_RULE, name, version, summary)
