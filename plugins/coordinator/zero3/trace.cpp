// The life of a trace, and what is released outside of visits.
#include <algorithm>
#include <string>

#include "schedule.hpp"

namespace pliant::coordinator::zero3 {

void Schedule::begin_pass(bool with_gradient, sdk::Actions& actions) {
  with_gradient_ = with_gradient;
  if (outdated_) invalidate(actions);
  if (options_.head) reset(actions);
}

void Schedule::end_pass(sdk::Actions& actions) {
  if (options_.head || options_.strict) release_unfinished(actions);
  const bool fewer = with_gradient_ && step_ > 0 && static_cast<size_t>(step_) < trace_.size();
  if (options_.strict && mode_ == Mode::kComplete && fewer) invalidate(actions);
  if (!options_.head) reset(actions);
}

void Schedule::reset(sdk::Actions& actions) {
  if (!options_.head && !options_.strict && parameters_.registered() > 0) {
    throw sdk::Failure(
        PLIANT_FAILED_PRECONDITION,
        std::to_string(parameters_.registered()) +
            " parameters are still being gathered at the end of a pass; set [coordinator.zero3] strict = true");
  }
  clean_up(actions);
  if (mode_ == Mode::kRecording) {
    queue_.list(*layout_, trace_);
    mode_ = Mode::kComplete;
    ++traces_;
    if (options_.strict) releases_.clear();
  } else if (mode_ == Mode::kInvalid) {
    mode_ = Mode::kRecording;
  }
  has_queue_ = true;
  queue_.rewind();
  step_ = 0;
  if (!options_.strict) live_ = 0;
}

void Schedule::drop_trace(sdk::Actions& actions) {
  if (mode_ != Mode::kInvalid) invalidate(actions);
  if (!options_.head) mode_ = Mode::kRecording;  // as it begins
}

void Schedule::invalidate(sdk::Actions& actions) {
  mode_ = Mode::kInvalid;
  outdated_ = false;
  trace_.clear();
  queue_.clear();
  has_queue_ = false;
  reuse_.clear();
  reuse_of_leaves_.clear();
  if (options_.strict) releases_.clear();
  if (options_.head || options_.strict) clean_up(actions);
  actions.drop_trace();
}

/// What is on its way is waited for, and released where no entered module uses it.
void Schedule::clean_up(sdk::Actions& actions) {
  if (parameters_.registered() == 0) return;
  std::vector<uint32_t> arrived;
  for (uint32_t word = 0; word < parameters_.word_count(); ++word) {
    each_of(word, parameters_.words()[word].registered, [&](uint32_t parameter) { arrived.push_back(parameter); });
  }
  for (const uint32_t parameter : arrived) take_off_register(parameter, actions);
  for (const uint32_t parameter : arrived) {
    if (!(options_.strict && stays(parameter))) release(parameter, actions);
  }
}

/// Modules that were entered in backward (strict: in either direction) and never left.
void Schedule::release_unfinished(sdk::Actions& actions) {
  std::vector<uint32_t> modules(backward_.rbegin(), backward_.rend());
  if (options_.strict) {
    modules.clear();
    for (uint32_t module = 0; module < entered_.size(); ++module) {
      if (entered_[module].depth > 0) modules.push_back(module);
    }
  }
  for (const uint32_t module : modules) {
    std::vector<uint32_t> parameters = std::move(entered_[module].recomputed);
    entered_[module].recomputed.clear();
    forget_backward(module);
    entered_[module].depth = 0;
    const Numbers used = layout_->used(module);
    parameters.insert(parameters.end(), used.begin(), used.end());
    for (const uint32_t parameter : parameters) {
      parameters_.remove_user(parameter, module);
      if (!stays(parameter)) release(parameter, actions);
    }
  }
}

void Schedule::release_all(sdk::Actions& actions) {
  if (options_.strict) {
    release_everything(actions);
  } else {
    release_all_in_model_order(actions);
  }
}

void Schedule::release_all_in_model_order(sdk::Actions& actions) {
  const std::vector<uint32_t> parameters = layout_->listed(0, true);
  if (options_.head) {
    for (const uint32_t parameter : parameters) {
      if (parameters_.registered(parameter)) take_off_register(parameter, actions);
    }
  }
  for (const uint32_t parameter : parameters) {
    if (parameters_.registered(parameter)) {
      throw sdk::Failure(
          PLIANT_FAILED_PRECONDITION,
          "parameter " + std::to_string(parameter) +
              " is still being gathered when everything is released; set [coordinator.zero3] strict = true");
    }
    parameters_.remove_users(parameter);
    release(parameter, actions);
  }
}

void Schedule::release_everything(sdk::Actions& actions) {
  for (uint32_t parameter = 0; parameter < parameters_.size(); ++parameter) {
    if (parameters_.registered(parameter)) take_off_register(parameter, actions);
    parameters_.remove_users(parameter);
  }
  for (uint32_t parameter = 0; parameter < parameters_.size(); ++parameter) release(parameter, actions);
  backward_.clear();
  std::fill(entered_.begin(), entered_.end(), Entered());
}

}  // namespace pliant::coordinator::zero3
