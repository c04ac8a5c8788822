// Works out virtual times.
#include "clock.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <optional>
#include <unordered_set>

namespace pliant::accelerator {

struct VirtualClock::Node : Moment {
  std::optional<size_t> engine;
  bool is_collective = false;
  bool is_timed = false;
  uint64_t work_ns = 0;
  uint64_t ready_ns = 0;
  uint64_t end_ns = 0;
  std::vector<NodePointer> after;  ///< what must end first and has no time yet
};

namespace {

uint64_t bytes_ns(double bytes, double gbps) {
  return static_cast<uint64_t>(std::ceil(bytes / gbps));
}

/// Never given to another thread, unlike the system's numbers.
uint64_t this_thread() {
  static std::atomic<uint64_t> threads{0};
  thread_local uint64_t number = 0;
  if (number == 0) number = ++threads;
  return number;
}

}  // namespace

void VirtualClock::opened(uint64_t stream, sdk::StreamRole role) {
  const std::lock_guard lock(mutex_);
  streams_[stream].role = role;
}

uint64_t VirtualClock::cost_ns(const Piece& piece, sdk::StreamRole role) const {
  const auto launch = static_cast<uint64_t>(costs_.launch_ns);
  const auto bytes = static_cast<double>(piece.bytes);
  if (piece.kind == WorkKind::kSpend) return piece.spent_ns;
  if (piece.kind == WorkKind::kLocal) return launch + bytes_ns(bytes, costs_.memory_gbps);
  if (piece.kind == WorkKind::kAllocation) return launch;
  if (piece.kind != WorkKind::kCopy) return 0;
  if (role == sdk::StreamRole::kToDevice) return launch + bytes_ns(bytes, costs_.to_device_gbps);
  if (role == sdk::StreamRole::kToHost) return launch + bytes_ns(bytes, costs_.to_host_gbps);
  return launch + bytes_ns(2 * bytes, costs_.memory_gbps);
}

void VirtualClock::put_after(Node& node, const NodePointer& earlier) {
  if (earlier == nullptr) return;
  if (earlier->is_timed) {
    node.ready_ns = std::max(node.ready_ns, earlier->end_ns);
  } else {
    node.after.push_back(earlier);
  }
}

bool VirtualClock::gather(Node& node) {
  std::erase_if(node.after, [&](const NodePointer& earlier) {
    if (earlier->is_timed) node.ready_ns = std::max(node.ready_ns, earlier->end_ns);
    return earlier->is_timed;
  });
  return node.after.empty();
}

std::shared_ptr<Moment> VirtualClock::enqueued(uint64_t stream, const Piece& piece, double factor, uint64_t late_ns) {
  const std::lock_guard lock(mutex_);
  Stream& on = streams_[stream];
  auto node = std::make_shared<Node>();
  node->is_collective = piece.kind == WorkKind::kCollective;
  const bool is_computed = piece.kind == WorkKind::kLocal || piece.kind == WorkKind::kSpend;
  if (is_computed || piece.kind == WorkKind::kCopy || piece.kind == WorkKind::kAllocation) {
    node->engine = static_cast<size_t>(on.role);
    node->work_ns = late_ns + static_cast<uint64_t>(std::ceil(static_cast<double>(cost_ns(piece, on.role)) * factor));
  }
  put_after(*node, on.last);
  put_after(*node, std::static_pointer_cast<const Node>(piece.after));
  Host& host = hosts_[this_thread()];
  node->ready_ns = std::max(node->ready_ns, host.ns);
  for (const NodePointer& earlier : host.after) put_after(*node, earlier);
  on.last = node;
  if (!node->is_collective && node->after.empty() && (!node->engine || queued_[*node->engine] == 0)) {
    place(*node);
  } else {
    untimed_.push_back(node);
    if (node->engine) ++queued_[*node->engine];
  }
  return node;
}

void VirtualClock::place(Node& node) {
  node.is_timed = true;
  node.end_ns = std::max(node.end_ns, node.ready_ns);
  if (!node.engine || node.work_ns == 0) return;
  auto& busy = busy_[*node.engine];
  uint64_t begin = node.ready_ns;
  auto next = busy.upper_bound(begin);
  if (next != busy.begin()) begin = std::max(begin, std::prev(next)->second);
  while (next != busy.end() && next->first < begin + node.work_ns) {
    begin = next->second;
    ++next;
  }
  node.end_ns = begin + node.work_ns;
  // Pieces without a gap between them become one.
  uint64_t end = node.end_ns;
  if (next != busy.end() && next->first == end) {
    end = next->second;
    next = busy.erase(next);
  }
  if (next != busy.begin() && std::prev(next)->second == begin) {
    std::prev(next)->second = end;
  } else {
    busy.emplace_hint(next, begin, end);
  }
}

void VirtualClock::settle() {
  std::array<bool, kEngines> waits{};
  for (auto at = untimed_.begin(); at != untimed_.end();) {
    Node& node = **at;
    const bool waits_here = node.engine && waits[*node.engine];
    if (!node.is_timed && gather(node) && !node.is_collective && !waits_here) place(node);
    if (!node.is_timed) {
      if (node.engine) waits[*node.engine] = true;
      ++at;
      continue;
    }
    if (node.engine) --queued_[*node.engine];
    at = untimed_.erase(at);
  }
}

void VirtualClock::force(const Node& node) {
  std::unordered_set<const Node*> wanted;
  std::vector<const Node*> open{&node};
  while (!open.empty()) {
    const Node* one = open.back();
    open.pop_back();
    if (one->is_timed || !wanted.insert(one).second) continue;
    for (const NodePointer& earlier : one->after) open.push_back(earlier.get());
  }
  for (const auto& one : untimed_) {  // what hangs on something comes after it
    if (wanted.count(one.get()) == 0) continue;
    gather(*one);
    if (!one->is_collective) place(*one);
  }
  settle();
}

uint64_t VirtualClock::ready_ns(Moment& collective) {
  const std::lock_guard lock(mutex_);
  auto& node = static_cast<Node&>(collective);
  if (!gather(node)) force(node);
  return node.ready_ns;
}

uint64_t VirtualClock::transferred(Moment& collective, uint64_t begin_ns, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& node = static_cast<Node&>(collective);
  const uint64_t end = begin_ns + static_cast<uint64_t>(costs_.collective_ns) +
                       bytes_ns(static_cast<double>(bytes), costs_.collective_gbps);
  node.end_ns = std::max(node.end_ns, end);
  return end;
}

void VirtualClock::ended(Moment& collective) {
  const std::lock_guard lock(mutex_);
  auto& node = static_cast<Node&>(collective);
  if (!gather(node)) force(node);
  place(node);
  settle();
}

uint64_t VirtualClock::end_ns(const Moment& piece) {
  const std::lock_guard lock(mutex_);
  const auto& node = static_cast<const Node&>(piece);
  if (!node.is_timed) force(node);
  return node.end_ns;
}

void VirtualClock::host_waits(const std::shared_ptr<const Moment>& piece) {
  if (piece == nullptr) return;
  const std::lock_guard lock(mutex_);
  Host& host = hosts_[this_thread()];
  host.after.push_back(std::static_pointer_cast<const Node>(piece));
  std::erase_if(host.after, [&](const NodePointer& earlier) {
    if (earlier->is_timed) host.ns = std::max(host.ns, earlier->end_ns);
    return earlier->is_timed;
  });
}

}  // namespace pliant::accelerator
