#include "uses.hpp"

#include <utility>

namespace pliant::coordinator::planned {

Uses::Uses(const Layout& layout, std::shared_ptr<const Trace> of, std::shared_ptr<const Trace> after)
    : trace_(std::move(of)),
      after_(std::move(after)),
      begin_(trace_->calls.size()),
      first_(layout.parameters(), kNever) {
  const Trace& trace = *trace_;
  for (Moment at = end(); at-- > calls();) {
    if (leaves(call(at))) continue;
    for (const uint32_t parameter : layout.used(module_of(call(at)))) first_[parameter] = at;
  }
  size_t uses = 0;
  for (size_t at = 0; at < trace.calls.size(); ++at) {
    begin_[at] = uses;
    if (!leaves(trace.calls[at])) uses += layout.used(module_of(trace.calls[at])).size();
  }
  next_.resize(uses);
  for (size_t at = trace.calls.size(); at-- > 0;) {
    if (leaves(trace.calls[at])) continue;
    size_t to = begin_[at];
    for (const uint32_t parameter : layout.used(module_of(trace.calls[at]))) {
      next_[to++] = first_[parameter];
      first_[parameter] = at;
    }
  }
}

std::vector<Moment> Uses::first_from(const Layout& layout, Moment from) const {
  std::vector<Moment> first(layout.parameters(), kNever);
  for (Moment at = end(); at-- > from;) {
    if (leaves(call(at))) continue;
    for (const uint32_t parameter : layout.used(module_of(call(at)))) first[parameter] = at;
  }
  return first;
}

}  // namespace pliant::coordinator::planned
