// Largest differencing on partial partitions that hold only the parts that have blocks.
#include "differencing.hpp"

#include <iterator>
#include <limits>
#include <utility>

namespace pliant::balancer {

namespace {

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

/// Blocks of one rank to be: a linked list through Differencing::next_.
struct Part {
  int64_t load = 0;
  uint32_t lowest = kNone;  ///< the first of its blocks in the batch; decides between equal loads
  uint32_t head = kNone;
  uint32_t tail = kNone;
};

bool before(const Part& a, const Part& b) {
  return a.load != b.load ? a.load > b.load : a.lowest < b.lowest;
}

/// Parts that have blocks, the largest first; the others are empty.
struct Partition {
  std::vector<Part> parts;
  int64_t difference = 0;  ///< between the largest and the smallest part
  uint32_t lowest = kNone;
};

class Differencing {
 public:
  Differencing(Costs costs, size_t width) : costs_(costs), width_(width), next_(costs.size(), kNone) {}

  /// `blocks`: at most one for each part, the costliest first.
  void begin_with(std::span<const uint32_t> blocks) {
    Partition made;
    for (const uint32_t block : blocks) made.parts.push_back({costs_[block], block, block, block});
    add(std::move(made));
  }

  Ranks run() {
    std::make_heap(heap_.begin(), heap_.end(), after);
    while (heap_.size() > 1) {
      Partition first = take();
      Partition second = take();
      combine(first.parts, second.parts);
      first.parts.swap(merged_);
      add(std::move(first));
      std::push_heap(heap_.begin(), heap_.end(), after);
    }
    return ranks_of(heap_.empty() ? std::vector<Part>() : std::move(heap_.front().parts));
  }

 private:
  static bool after(const Partition& a, const Partition& b) {
    return a.difference != b.difference ? a.difference < b.difference : a.lowest > b.lowest;
  }

  void add(Partition partition) {
    const int64_t smallest = partition.parts.size() < width_ ? 0 : partition.parts.back().load;
    partition.difference = partition.parts.front().load - smallest;
    partition.lowest = kNone;
    for (const Part& part : partition.parts) partition.lowest = std::min(partition.lowest, part.lowest);
    heap_.push_back(std::move(partition));
  }

  Partition take() {
    std::pop_heap(heap_.begin(), heap_.end(), after);
    Partition top = std::move(heap_.back());
    heap_.pop_back();
    return top;
  }

  Part join(const Part& a, const Part& b) {
    next_[a.tail] = b.head;
    return {a.load + b.load, std::min(a.lowest, b.lowest), a.head, b.tail};
  }

  /// Part i of one with part width - 1 - i of the other. Where only one of them has blocks nothing is added, and those
  /// parts are in order already.
  void combine(const std::vector<Part>& a, const std::vector<Part>& b) {
    const size_t only_a = std::min(a.size(), width_ - b.size());
    const size_t only_b = std::min(b.size(), width_ - a.size());
    joined_.clear();
    for (size_t i = only_a; i < a.size(); ++i) joined_.push_back(join(a[i], b[width_ - 1 - i]));
    std::sort(joined_.begin(), joined_.end(), before);
    apart_.clear();
    std::merge(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(only_a), b.begin(),
               b.begin() + static_cast<std::ptrdiff_t>(only_b), std::back_inserter(apart_), before);
    merged_.clear();
    std::merge(apart_.begin(), apart_.end(), joined_.begin(), joined_.end(), std::back_inserter(merged_), before);
  }

  /// Ranks go to parts in the order of their first blocks, so that no rank has the largest part every time.
  Ranks ranks_of(std::vector<Part> parts) const {
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.lowest < b.lowest; });
    Ranks ranks(costs_.size());
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      for (uint32_t block = parts[rank].head; block != kNone; block = next_[block]) {
        ranks[block] = static_cast<int32_t>(rank);
      }
    }
    return ranks;
  }

  Costs costs_;
  size_t width_;
  std::vector<uint32_t> next_;
  std::vector<Partition> heap_;
  std::vector<Part> merged_;  // and these keep their memory from one combination to the next
  std::vector<Part> joined_;
  std::vector<Part> apart_;
};

}  // namespace

Ranks largest_differencing(Costs costs, int64_t world_size, bool equal_counts) {
  // Parts that no block can reach need not be kept.
  const size_t width = std::min(static_cast<size_t>(world_size), std::max<size_t>(costs.size(), 1));
  Differencing differencing(costs, width);
  const std::vector<uint32_t> order = costliest_first(costs);
  const size_t at_once = equal_counts ? width : 1;
  for (size_t first = 0; first < order.size(); first += at_once) {
    differencing.begin_with(std::span(order).subspan(first, std::min(at_once, order.size() - first)));
  }
  return differencing.run();
}

}  // namespace pliant::balancer
