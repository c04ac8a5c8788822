// The configured learning-rate rule, with inputs and answer checked.
#include "pliant/learning_rate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "base/result.hpp"
#include "data/lr_state.hpp"
#include "pliant/abi/lr_rule.h"
#include "plugin/plugin.hpp"

namespace pliant {

namespace {

Result<double> in_unit(const BatchSize& size, const std::string& unit) {
  if (unit == "rows") return static_cast<double>(size.rows);
  if (unit == "sequences") return static_cast<double>(size.sequences);
  if (unit == "tokens") return static_cast<double>(size.tokens);
  if (unit == "loss_tokens") return static_cast<double>(size.loss_tokens);
  return failed(Status::kInvalidArgument,
                fmt::format("[lr] unit = \"{}\" is not known; allowed: rows, sequences, tokens, loss_tokens", unit),
                ExitCode::kUsage);
}

Result<double> chosen_base(const LrOptions& options, const BatchSize& mean_batch) {
  if (!std::isfinite(options.base_lr)) {
    return failed(Status::kInvalidArgument, fmt::format("[lr] base_lr = {} is not finite", options.base_lr),
                  ExitCode::kUsage);
  }
  if (!std::isfinite(options.base_batch) || options.base_batch < 0) {
    return failed(Status::kInvalidArgument,
                  fmt::format("[lr] base_batch = {}: give a number of {} above 0, or 0 for the mean batch",
                              options.base_batch, options.unit),
                  ExitCode::kUsage);
  }
  Result<double> mean = in_unit(mean_batch, options.unit);
  if (!mean || options.base_batch > 0) return mean ? Result<double>(options.base_batch) : mean;
  if (*mean > 0) return mean;
  return failed(Status::kInvalidArgument,
                fmt::format("[lr] base_batch = 0 stands for the mean batch, which has {} {} here; set base_batch",
                            *mean, options.unit),
                ExitCode::kUsage);
}

}  // namespace

struct LearningRate::State {
  plugin::Instance instance;
  LrOptions options;
  double base_batch;

  [[nodiscard]] std::string rule() const { return instance.plugin().record().name; }
  [[nodiscard]] tl::unexpected<Error> broke(const std::string& how) const {
    return failed(Status::kInternal, fmt::format("lr '{}' broke its contract: {}", rule(), how), ExitCode::kPlugin);
  }

  Result<double> at(const pliant_lr_input& input) {
    pliant_lr_output output{};
    output.struct_size = sizeof(output);
    output.lr = std::numeric_limits<double>::quiet_NaN();
    pliant_error error = plugin::fresh_error();
    int32_t status = PLIANT_OK;
    try {
      status = instance.table<pliant_lr_rule>().scale(instance.self(), &input, &output, &error);
    } catch (const std::exception& thrown) {
      return broke(fmt::format("scale threw across the border: {}", thrown.what()));
    } catch (...) {
      return broke("scale threw across the border");
    }
    if (status != PLIANT_OK) {
      const Error refusal = plugin::to_error(instance.plugin(), status, error);
      return failed(refusal.status(), refusal.message(), ExitCode::kPlugin);
    }
    if (!std::isfinite(output.lr)) {
      return broke(fmt::format("the rate for step {}, a batch of {} {} over {} and base_lr {}, is {}", input.step,
                               input.batch, options.unit, input.base_batch, input.base_lr, output.lr));
    }
    return output.lr;
  }
};

LearningRate::LearningRate(const Config& config, const BatchSize& mean_batch) {
  const double base_batch = or_throw(chosen_base(config.lr(), mean_batch));
  plugin::Instance instance = or_throw(plugin::instantiate(config, "lr"));
  if (instance.table<pliant_lr_rule>().scale == nullptr) {
    throw Error(Status::kInternal, fmt::format("lr '{}' broke its contract: the slot scale is NULL", config.use("lr")),
                ExitCode::kPlugin);
  }
  state_ = std::make_unique<State>(State{std::move(instance), config.lr(), base_batch});
}

LearningRate::~LearningRate() = default;
LearningRate::LearningRate(LearningRate&&) noexcept = default;
LearningRate& LearningRate::operator=(LearningRate&&) noexcept = default;

double LearningRate::at(int64_t step, const BatchSize& size, double base_lr) {
  State& s = *state_;
  if (step < 0 || !std::isfinite(base_lr)) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("a learning rate was asked for step {} with base_lr {}; steps count from 0 and rates are finite",
                    step, base_lr));
  }
  pliant_lr_input input{};
  input.struct_size = sizeof(input);
  input.base_lr = base_lr > 0 ? base_lr : s.options.base_lr;
  input.base_batch = s.base_batch;
  input.batch = or_throw(in_unit(size, s.options.unit));
  input.step = step;
  return or_throw(s.at(input));
}

std::string LearningRate::save() const {
  return data::pack_lr_state(state_->rule(), or_throw(state_->instance.save()));
}

void LearningRate::load(const std::string& saved) {
  or_throw(state_->instance.load(or_throw(data::unpack_lr_state(saved, state_->rule()))));
}

}  // namespace pliant
