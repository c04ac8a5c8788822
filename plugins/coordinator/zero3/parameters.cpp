// The slow ways into what is known of each parameter.
#include "parameters.hpp"

namespace pliant::coordinator::zero3 {

Parameters::Parameters(const std::vector<sdk::Parameter>& given)
    : words_((given.size() + 63) / 64),
      gather_(given.size()),
      user_(given.size()),
      stamps_(given.size()),
      more_users_(given.size()) {
  for (const sdk::Parameter& one : given) {
    const auto number = static_cast<uint32_t>(elements_.size());
    elements_.push_back(one.elements);
    frozen_.push_back(one.frozen);
    if (one.persistent) make_persistent(number);
    if (one.external) words_[number / 64].external |= bit(number);
  }
}

void Parameters::set_listers(std::span<const uint32_t> modules) {
  for (ParameterBits& word : words_) word.exclusive = ~word.used;
  for (uint32_t parameter = 0; parameter < size(); ++parameter) {
    ParameterBits& word = words_[parameter / 64];
    if (modules[parameter] == kSeveral) word.exclusive &= ~bit(parameter);
    if ((word.exclusive & bit(parameter)) != 0) user_[parameter] = modules[parameter];
  }
}

void Parameters::add_one_more(uint32_t parameter, uint32_t module) {
  std::vector<uint32_t>& more = more_users_[parameter];
  if (std::find(more.begin(), more.end(), module) == more.end()) more.push_back(module);
  words_[parameter / 64].shared |= bit(parameter);
}

void Parameters::remove_one_of_several(uint32_t parameter, uint32_t module) {
  std::vector<uint32_t>& more = more_users_[parameter];
  if (user_[parameter] == module) {
    user_[parameter] = more.back();
    more.pop_back();
  } else {
    more.erase(std::remove(more.begin(), more.end(), module), more.end());
  }
  if (more.empty()) words_[parameter / 64].shared &= ~bit(parameter);
}

bool Parameters::same_state(const Parameters& other) const {
  if (registered_ != 0 || other.registered_ != 0 || more_users_ != other.more_users_) return false;
  for (uint32_t number = 0; number < words_.size(); ++number) {
    const ParameterBits& a = words_[number];
    const ParameterBits& b = other.words_[number];
    if (a.whole != b.whole || a.arrived != b.arrived || a.used != b.used || a.shared != b.shared) return false;
    bool same = true;
    each_of(number, a.used, [&](uint32_t one) { same = same && user_[one] == other.user_[one]; });
    if (!same) return false;
  }
  return true;
}

uint32_t Parameters::new_stamp() {
  if (++stamp_ == 0) {
    std::fill(stamps_.begin(), stamps_.end(), 0U);
    stamp_ = 1;
  }
  return stamp_;
}

}  // namespace pliant::coordinator::zero3
