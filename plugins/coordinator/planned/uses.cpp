#include "uses.hpp"

namespace pliant::coordinator::planned {

Uses::Uses(const Layout& layout, std::shared_ptr<const Trace> of, std::shared_ptr<const Trace> after)
    : trace_(std::move(of)), after_(std::move(after)), begin_(end()), first_(layout.parameters()) {
  size_t uses = 0;
  for (Moment at = 0; at < end(); ++at) {
    begin_[at] = uses;
    if (!leaves(call(at))) uses += layout.used(module_of(call(at))).size();
  }
  next_.resize(uses);
  for (Moment at = end(); at-- > 0;) {
    if (leaves(call(at))) continue;
    size_t number = begin_[at];
    for (const uint32_t parameter : layout.used(module_of(call(at)))) {
      next_[number] = first_[parameter];
      first_[parameter] = {at, number++};
    }
  }
}

std::vector<Moment> Uses::first_from(const Layout& layout, Moment from) const {
  std::vector<Use> first(layout.parameters());
  for (Moment at = end(); at-- > from;) {
    if (leaves(call(at))) continue;
    size_t number = begin_[at];
    for (const uint32_t parameter : layout.used(module_of(call(at)))) first[parameter] = {at, number++};
  }
  std::vector<Moment> moments;
  for (const Use& use : first) moments.push_back(kept(use));
  return moments;
}

}  // namespace pliant::coordinator::planned
