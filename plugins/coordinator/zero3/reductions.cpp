// DeepSpeed's rule: a bucket leaves before the gradient that would not fit in.
#include "reductions.hpp"

namespace pliant::coordinator::zero3 {

Reductions::Reductions(const std::vector<sdk::Parameter>& parameters, uint64_t bucket_elements)
    : collected_(parameters.size()), limit_(bucket_elements) {
  for (const sdk::Parameter& parameter : parameters) elements_.push_back(parameter.elements);
}

void Reductions::add(std::span<const uint32_t> complete, sdk::Actions& actions) {
  for (const uint32_t parameter : complete) {
    sdk::require(parameter < collected_.size(),
                 [&] { return "the model has no parameter " + std::to_string(parameter); });
    if (collected_[parameter]) continue;
    if (!bucket_.empty() && elements_[parameter] > limit_ - bucket_elements_) flush(actions);
    collected_[parameter] = true;
    bucket_.push_back(parameter);
    bucket_elements_ += elements_[parameter];
    if (bucket_elements_ >= limit_) flush(actions);
  }
}

void Reductions::flush(sdk::Actions& actions) {
  if (bucket_.empty()) return;
  const uint32_t group = actions.new_group();
  for (const uint32_t parameter : bucket_) actions.reduce(parameter, group);
  forget();
}

void Reductions::forget() {
  for (const uint32_t parameter : bucket_) collected_[parameter] = false;
  bucket_.clear();
  bucket_elements_ = 0;
}

}  // namespace pliant::coordinator::zero3
