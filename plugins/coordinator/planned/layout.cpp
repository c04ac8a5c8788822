#include "layout.hpp"

namespace pliant::coordinator::planned {

void Layout::build() {
  used_.clear();
  begin_.assign(1, 0);
  for (uint32_t module = 0; module < model_.modules.size(); ++module) {
    const std::vector<uint32_t> numbers = model_.used_by(module);
    used_.insert(used_.end(), numbers.begin(), numbers.end());
    begin_.push_back(used_.size());
  }
  bytes_.clear();
  external_.clear();
  all_bytes_ = largest_ = all_gradients_ = 0;
  for (const sdk::Parameter& one : model_.parameters) {
    if (one.external) external_.push_back(static_cast<uint32_t>(bytes_.size()));
    bytes_.push_back((one.bytes + kAlignment - 1) / kAlignment * kAlignment);
    all_bytes_ += bytes_.back();
    largest_ = std::max(largest_, bytes_.back());
    all_gradients_ += one.gradient_bytes + one.received_bytes;
  }
  // From the root down: what is entered around a module is entered, too.
  struct Around {
    uint32_t module;
    uint64_t used;
    uint64_t gradients;
  };
  std::vector<bool> is_inner(model_.modules.size());
  for (const sdk::Module& one : model_.modules) {
    for (const uint32_t child : one.children) is_inner[child] = true;
  }
  std::vector<Around> open;
  for (uint32_t module = 0; module < model_.modules.size(); ++module) {
    if (module == 0 || !is_inner[module]) open.push_back({module, 0, 0});
  }
  most_gradients_ = most_used_ = most_of_module_ = 0;
  has_containers_ = false;
  std::vector<uint32_t> downwards;
  for (size_t looked_at = 0; !open.empty() && looked_at < model_.modules.size(); ++looked_at) {  // a ring ends, too
    Around at = open.back();
    open.pop_back();
    downwards.push_back(at.module);
    uint64_t received = 0;
    uint64_t own = 0;
    for (const uint32_t parameter : used(at.module)) {
      own += bytes_[parameter];
      at.gradients += model_.parameters[parameter].gradient_bytes;
      received += model_.parameters[parameter].received_bytes;
    }
    at.used += own;
    most_used_ = std::max(most_used_, at.used);
    most_of_module_ = std::max(most_of_module_, own);
    most_gradients_ = std::max(most_gradients_, at.gradients + received);
    if (!has_inner(at.module)) continue;
    has_containers_ = has_containers_ || own > 0;
    for (const uint32_t child : model_.modules[at.module].children) open.push_back({child, at.used, at.gradients});
  }
  most_below_.assign(model_.modules.size(), 0);
  for (auto module = downwards.rbegin(); module != downwards.rend(); ++module) {
    if (!has_inner(*module)) continue;
    for (const uint32_t child : model_.modules[*module].children) {
      uint64_t bytes = most_below_[child];
      for (const uint32_t parameter : used(child)) bytes += bytes_[parameter];
      most_below_[*module] = std::max(most_below_[*module], bytes);
    }
  }
  is_around_.assign(bytes_.size(), false);
  for (uint32_t module = 0; module < model_.modules.size(); ++module) {
    if (most_below_[module] == 0) continue;
    for (const uint32_t parameter : used(module)) is_around_[parameter] = true;
  }
}

}  // namespace pliant::coordinator::planned
