// Once a trace.
#include "fetch_queue.hpp"

#include <utility>

namespace pliant::coordinator::zero3 {

void FetchQueue::list(const Layout& layout, const std::vector<uint32_t>& trace) {
  clear();
  version_ = layout.version();
  for (uint32_t step = 0; step < trace.size(); ++step) {
    for (const uint32_t parameter : layout.used(trace[step])) uses_.push_back({parameter, step});
    begins_.push_back(uses_.size());
  }
}

void FetchQueue::clear() {
  rewind();
  uses_.clear();
  begins_.assign(1, 0);
}

void FetchQueue::rewind() {
  taken_ = 0;
  if (std::exchange(noted_, 0) > 0) std::fill(taken_for_.begin(), taken_for_.end(), kNever);
}

}  // namespace pliant::coordinator::zero3
