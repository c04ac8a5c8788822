// Does whatever can be done for any message of the batch, and sleeps when nothing can.
//
// A chunk is put into a slot only when its receiver waits for the message, so a slot is never held by a message that
// others must pass.
#include "common/exchange/messages.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace pliant::accelerator {

Messages::Messages(Group& group)
    : group_(group),
      sent_(static_cast<size_t>(group.world_size())),
      wanted_(sent_.size()),
      sends_(sent_.size()),
      receives_(sent_.size()) {}

void Messages::run(std::span<const Call> calls) {
  group_.check();
  for (Queue& queue : sends_) queue = {};
  for (Queue& queue : receives_) queue = {};
  for (const Call& call : calls) {
    auto& queues = call.kind == CallKind::kSend ? sends_ : receives_;
    queues[static_cast<size_t>(call.rank)].calls.push_back(&call);
  }
  if (faults_ != nullptr) ready_ns_ = std::max(faults_->ready_ns(), link_free_ns_);
  run_own();
  struct Listening {
    explicit Listening(std::atomic<uint32_t>& where) : word(where) { word.store(1); }
    ~Listening() { word.store(0); }
    std::atomic<uint32_t>& word;
  };
  while (!is_done()) {
    group_.check_own();
    if (progress()) continue;
    const Listening listening(group_.segment().rank(group_.rank()).listens);
    group_.wait([&] { return progress() || is_done(); });
  }
}

bool Messages::is_done() const {
  const auto done = [](const Queue& queue) { return queue.is_done(); };
  return std::all_of(sends_.begin(), sends_.end(), done) && std::all_of(receives_.begin(), receives_.end(), done);
}

void Messages::time_message(uint64_t theirs_ns, const Call& call) {
  if (faults_ == nullptr) return;
  take_link(faults_->transferred(std::max(ready_ns_, theirs_ns), call.elements.bytes()));
}

void Messages::run_own() {
  const auto own = static_cast<size_t>(group_.rank());
  for (size_t i = 0; i < sends_[own].calls.size(); ++i) {
    const Call& sent = *sends_[own].calls[i];
    const Call& wanted = *receives_[own].calls[i];
    const sdk::Elements& elements = sent.elements;
    if (elements.count != wanted.elements.count || elements.dtype != wanted.elements.dtype) {
      mismatch(group_.rank(), elements, group_.rank(), wanted.elements);
    }
    time_message(ready_ns_, sent);
    if (elements.count != 0 && sent.send != wanted.recv) std::memmove(wanted.recv, sent.send, elements.bytes());
  }
  sends_[own] = {};
  receives_[own] = {};
}

bool Messages::progress() {
  bool any = false;
  for (int32_t i = 1; i < group_.world_size(); ++i) {
    const int32_t peer = (group_.rank() + i) % group_.world_size();
    any |= receive_from(peer);
    any |= send_to(peer);
  }
  return any;
}

uint64_t Messages::chunks_of(const Call& call) const {
  // Even an empty message is one chunk, so that its end waits for the peer and a wrong size is noticed.
  const uint64_t chunk = group_.segment().chunk_bytes();
  return std::max<uint64_t>(1, (call.elements.bytes() + chunk - 1) / chunk);
}

int32_t Messages::free_slot() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.to >= 0 && group_.segment().lane(group_.rank(), slot.to).taken.load() > slot.chunk) slot.to = -1;
    if (slot.to < 0) return static_cast<int32_t>(i);
  }
  return -1;
}

bool Messages::send_to(int32_t peer) {
  Queue& queue = sends_[static_cast<size_t>(peer)];
  if (queue.is_done()) return false;
  const Call& call = *queue.calls[queue.next];
  Lane& lane = group_.segment().lane(group_.rank(), peer);
  uint64_t& sent = sent_[static_cast<size_t>(peer)];
  const uint64_t posted = lane.posted.load(std::memory_order_relaxed);
  if (queue.chunks == chunks_of(call)) {
    if (lane.taken.load() < posted) {
      fail_if_peer_left(peer);
      return false;
    }
    ++sent;
    ++queue.next;
    queue.chunks = 0;
    return true;
  }
  const uint64_t in_flight = posted - lane.taken.load();
  const int32_t slot = lane.wanted.load() > sent && in_flight < kLaneSlots ? free_slot() : -1;
  if (slot < 0) {
    fail_if_peer_left(peer);
    return false;
  }
  const uint64_t chunk_bytes = group_.segment().chunk_bytes();
  const uint64_t first = queue.chunks * chunk_bytes;
  const uint64_t bytes = std::min(chunk_bytes, call.elements.bytes() - first);
  if (queue.chunks == 0) {
    lane.count = call.elements.count;
    lane.dtype = static_cast<int32_t>(call.elements.dtype);
    lane.sender_ready_ns = ready_ns_;
    time_message(lane.receiver_ready_ns, call);
  }
  if (bytes != 0) {
    std::memcpy(group_.segment().lane_slot(group_.rank(), static_cast<uint32_t>(slot)),
                static_cast<const std::byte*>(call.send) + first, bytes);
  }
  slots_[static_cast<size_t>(slot)] = {peer, posted};
  lane.slots[posted % kLaneSlots] = static_cast<uint32_t>(slot);
  ++queue.chunks;
  lane.posted.store(posted + 1);
  group_.link().posted(peer, static_cast<uint32_t>(slot), bytes);
  return true;
}

/// Tells the sender of the first message that is not done that its receiver is here.
bool Messages::want_from(int32_t peer) {
  const Queue& queue = receives_[static_cast<size_t>(peer)];
  uint64_t& wanted = wanted_[static_cast<size_t>(peer)];
  Lane& lane = group_.segment().lane(peer, group_.rank());
  if (lane.wanted.load(std::memory_order_relaxed) > wanted || queue.is_done()) return false;
  lane.receiver_ready_ns = ready_ns_;
  lane.wanted.store(wanted + 1);
  group_.link().turned(peer);
  return true;
}

bool Messages::receive_from(int32_t peer) {
  Queue& queue = receives_[static_cast<size_t>(peer)];
  if (queue.is_done()) return false;
  const bool told = want_from(peer);
  const Call& call = *queue.calls[queue.next];
  Lane& lane = group_.segment().lane(peer, group_.rank());
  const uint64_t taken = lane.taken.load(std::memory_order_relaxed);
  if (lane.posted.load() == taken) {
    fail_if_peer_left(peer);
    return told;
  }
  if (queue.chunks == 0) {
    const sdk::Elements sent{lane.count, static_cast<sdk::DType>(lane.dtype)};
    if (sent.count != call.elements.count || sent.dtype != call.elements.dtype) {
      mismatch(peer, sent, group_.rank(), call.elements);
    }
    time_message(lane.sender_ready_ns, call);
  }
  const uint64_t chunk_bytes = group_.segment().chunk_bytes();
  const uint64_t first = queue.chunks * chunk_bytes;
  const uint64_t bytes = std::min(chunk_bytes, call.elements.bytes() - first);
  if (bytes != 0) {
    std::memcpy(static_cast<std::byte*>(call.recv) + first,
                group_.segment().lane_slot(peer, lane.slots[taken % kLaneSlots]), bytes);
  }
  if (++queue.chunks == chunks_of(call)) {
    ++wanted_[static_cast<size_t>(peer)];
    ++queue.next;
    queue.chunks = 0;
  }
  lane.taken.store(taken + 1);
  group_.link().turned(peer);
  return true;
}

/// A rank that left in good order has sent and taken all that it ever will.
void Messages::fail_if_peer_left(int32_t peer) {
  if (!group_.left(peer)) return;
  const Lane& out = group_.segment().lane(group_.rank(), peer);
  const Lane& in = group_.segment().lane(peer, group_.rank());
  const Queue& sends = sends_[static_cast<size_t>(peer)];
  const Queue& receives = receives_[static_cast<size_t>(peer)];
  const bool sends_wait =
      !sends.is_done() && (sends.chunks != chunks_of(*sends.calls[sends.next]) || out.taken.load() < out.posted.load());
  const bool receives_wait = !receives.is_done() && in.posted.load() == in.taken.load();
  if (sends_wait || receives_wait) {
    group_.fail_here({FailureCause::kLeft, peer, 0});
    group_.check();
  }
}

void Messages::mismatch(int32_t from, const sdk::Elements& sent, int32_t to, const sdk::Elements& wanted) {
  const auto text = [](const sdk::Elements& elements) {
    return std::to_string(elements.count) + " " + sdk::name_of(elements.dtype);
  };
  group_.fail_for_mismatch(from == group_.rank() ? to : from,
                           "rank " + std::to_string(from) + " sent " + text(sent) + ", but rank " + std::to_string(to) +
                               " receives " + text(wanted) + "; both must name the same number and type");
}

}  // namespace pliant::accelerator
