// DeepSpeed's rule: a bucket leaves before the gradient that would not fit in.
#include "reductions.hpp"

#include <algorithm>

namespace pliant::coordinator::zero3 {

Reductions::Reductions(const std::vector<sdk::Parameter>& parameters, uint64_t bucket_elements)
    : collected_(parameters.size()), limit_(bucket_elements) {
  for (const sdk::Parameter& parameter : parameters) elements_.push_back(parameter.elements);
}

// What is collected is complete and not reduced: all else that is listed is new, mostly the lowest, as backward goes.
void Reductions::add(std::span<const uint32_t> complete, sdk::Actions& actions) {
  size_t fresh = complete.size() - std::min(complete.size(), bucket_.size());
  for (const uint32_t parameter : complete) {
    if (fresh == 0) break;
    sdk::require(parameter < collected_.size(),
                 [&] { return "the model has no parameter " + std::to_string(parameter); });
    if (collected_[parameter] != 0) continue;
    --fresh;
    if (!bucket_.empty() && elements_[parameter] > limit_ - bucket_elements_) leave(actions);
    collected_[parameter] = 1;
    bucket_.push_back(parameter);
    bucket_elements_ += elements_[parameter];
    if (bucket_elements_ >= limit_) leave(actions);
  }
  for (const uint32_t parameter : left_) collected_[parameter] = 0;  // not sooner: `complete` has them still
  left_.clear();
}

/// The bucket becomes a group; what is in it stays collected until the call ends.
void Reductions::leave(sdk::Actions& actions) {
  const uint32_t group = actions.new_group();
  for (const uint32_t parameter : bucket_) actions.reduce(parameter, group);
  left_.insert(left_.end(), bucket_.begin(), bucket_.end());
  bucket_.clear();
  bucket_elements_ = 0;
}

void Reductions::flush(sdk::Actions& actions) {
  if (bucket_.empty()) return;
  leave(actions);
  forget();
}

void Reductions::forget() {
  for (const uint32_t parameter : bucket_) collected_[parameter] = 0;
  for (const uint32_t parameter : left_) collected_[parameter] = 0;
  left_.clear();
  bucket_.clear();
  bucket_elements_ = 0;
}

}  // namespace pliant::coordinator::zero3
