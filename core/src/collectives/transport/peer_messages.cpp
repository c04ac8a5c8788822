// Does whatever can be done for any message, and sleeps when nothing can.
//
// Between two ranks there is one lane each way, and one message on it at a time. A piece goes into the lane's own ring
// whether its receiver is there or not, and out of it whether the sender does something else or not: no lane waits for
// another. The rings lie in the slot of the sender's stage that its next collective will use, which nobody reads any
// more; a call is over only when its rings have been emptied, so that collective finds the slot free.
#include "collectives/transport/peer_messages.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "collectives/transport/aside.hpp"
#include "collectives/transport/pieces.hpp"

namespace pliant::collectives {

using sdk::Elements;
using sdk::Failure;

namespace {

/// Pieces of a ring: the sender fills one while the receiver empties another.
constexpr uint64_t kRingPieces = 4;

/// All messages of a call in one direction between this rank and a peer.
struct Queue {
  std::vector<const Message*> messages;
  size_t next = 0;      ///< the first that is not done
  uint64_t number = 0;  ///< of that one, on its lane
  uint64_t pieces = 0;  ///< of that one, copied into the ring or out of it
  uint64_t ring = 0;    ///< offset in this rank's stage; of a sender

  [[nodiscard]] bool is_done() const { return next == messages.size(); }
  [[nodiscard]] const Message& message() const { return *messages[next]; }
  void advance() {
    ++next;
    ++number;
    pieces = 0;
  }
};

/// A piece that is being copied, and the count of its lane that tells the peer.
struct Moved {
  std::atomic<uint64_t>* count;
  uint64_t value;
  int32_t peer;
};

std::string words(const Elements& elements) {
  return std::to_string(elements.count) + " " + sdk::name_of(elements.dtype);
}

bool fit(const Elements& sent, const Elements& wanted) {
  return sent.count == wanted.count && sent.dtype == wanted.dtype;
}

/// As rank `own` sees it, which is one of the two.
Failure mismatch_of(int32_t own, int32_t from, const Elements& sent, int32_t to, const Elements& wanted) {
  return Failure(PLIANT_INVALID_ARGUMENT, "rank " + std::to_string(from) + " sent " + words(sent) + ", but rank " +
                                              std::to_string(to) + " receives " + words(wanted) +
                                              "; both must name the same number and type")
      .about_rank(from == own ? to : from);
}

/// Even an empty message has a piece, so that its end waits for the peer and a wrong size is noticed.
uint64_t pieces_of(const Message& message, uint64_t piece_bytes) {
  return std::max<uint64_t>(1, (message.elements.bytes() + piece_bytes - 1) / piece_bytes);
}

class Exchange {
 public:
  Exchange(const Lanes& lanes, const std::vector<Message>& messages, pliant_stream* on);
  void run();

 private:
  void share_out_rings();
  void copy_own();
  bool progress();
  bool send_to(int32_t peer);
  bool receive_from(int32_t peer);
  void copy_piece(void* to, const void* from, uint64_t bytes, const Moved& moved);
  void look_at_what_is_sent(int32_t peer);
  void look_at_what_is_wanted(int32_t peer);
  void find_mismatch();
  [[noreturn]] void refuse(int32_t from, const Elements& sent, int32_t to, const Elements& wanted);
  void wait(uint32_t bell);
  [[nodiscard]] bool is_done() const;

  const Lanes lanes_;
  pliant_stream* const on_;
  std::vector<Message> messages_;
  Aside aside_;
  uint64_t piece_bytes_ = 0;  ///< of what this rank sends
  std::vector<Queue> sends_;  ///< by peer
  std::vector<Queue> receives_;
  std::vector<pliant_copy> copies_;
  std::vector<Moved> moved_;
};

Exchange::Exchange(const Lanes& lanes, const std::vector<Message>& messages, pliant_stream* on)
    : lanes_(lanes),
      on_(on),
      messages_(messages),
      aside_(lanes.steps, lanes.place.device_index, on),
      sends_(static_cast<size_t>(lanes.place.world_size)),
      receives_(sends_.size()) {
  aside_.put(messages_);
  for (const Message& message : messages_) {
    auto& queues = message.is_send ? sends_ : receives_;
    queues[static_cast<size_t>(message.peer)].messages.push_back(&message);
  }
  for (int32_t peer = 0; peer < lanes_.place.world_size; ++peer) {
    sends_[static_cast<size_t>(peer)].number = lanes_.mailbox.offer(lanes_.place.rank, peer).begun.load() + 1;
    receives_[static_cast<size_t>(peer)].number = lanes_.mailbox.want(peer, lanes_.place.rank).begun.load() + 1;
  }
  share_out_rings();
}

void Exchange::share_out_rings() {
  uint64_t lanes = 0;
  for (const Queue& queue : sends_) lanes += queue.is_done() ? 0 : 1;
  if (lanes == 0) return;
  piece_bytes_ = PeerMemory::kSlotBytes / lanes / kRingPieces;
  if (piece_bytes_ > kCacheLine) piece_bytes_ = piece_bytes_ / kCacheLine * kCacheLine;
  uint64_t at = lanes_.memory.coming_slot() % PeerMemory::kSlots * PeerMemory::kSlotBytes;
  for (Queue& queue : sends_) {
    queue.ring = at;
    if (!queue.is_done()) at += kRingPieces * piece_bytes_;
  }
}

void Exchange::run() {
  // The collectives of a group come before its messages, and the slot is free when they are over.
  lanes_.steps.device().slots.must(&pliant_accelerator::stream_synchronize, on_);
  copy_own();
  while (!is_done()) {
    lanes_.watch.check_here();
    const uint32_t bell = lanes_.mailbox.bell();
    if (!progress()) wait(bell);
  }
}

bool Exchange::is_done() const {
  const auto done = [](const Queue& queue) { return queue.is_done(); };
  return std::all_of(sends_.begin(), sends_.end(), done) && std::all_of(receives_.begin(), receives_.end(), done);
}

/// The i-th to this rank itself is received by its i-th receive, of which there are as many.
void Exchange::copy_own() {
  const auto own = static_cast<size_t>(lanes_.place.rank);
  std::vector<pliant_copy> copies;
  for (size_t i = 0; i < sends_[own].messages.size(); ++i) {
    const Message& sent = *sends_[own].messages[i];
    const Message& wanted = *receives_[own].messages[i];
    if (!fit(sent.elements, wanted.elements))
      refuse(lanes_.place.rank, sent.elements, lanes_.place.rank, wanted.elements);
    if (sent.elements.count != 0) copies.push_back({wanted.buffer, sent.buffer, sent.elements.bytes()});
  }
  if (!copies.empty()) lanes_.steps.copy(copies, on_);
  sends_[own] = {};
  receives_[own] = {};
}

/// A piece of each lane at most, all in one batch. Copies wait for no peer.
bool Exchange::progress() {
  copies_.clear();
  moved_.clear();
  bool any = false;
  for (int32_t i = 1; i < lanes_.place.world_size; ++i) {
    const int32_t peer = (lanes_.place.rank + i) % lanes_.place.world_size;
    if (!receives_[static_cast<size_t>(peer)].is_done()) any |= receive_from(peer);
    if (!sends_[static_cast<size_t>(peer)].is_done()) any |= send_to(peer);
  }
  if (moved_.empty()) return any;
  if (!copies_.empty()) {
    lanes_.steps.copy(copies_, on_);
    lanes_.steps.device().slots.must(&pliant_accelerator::stream_synchronize, on_);
  }
  for (const Moved& one : moved_) {
    one.count->store(one.value);
    lanes_.mailbox.ring(one.peer);
  }
  return true;
}

void Exchange::copy_piece(void* to, const void* from, uint64_t bytes, const Moved& moved) {
  if (bytes != 0) copies_.push_back({to, from, bytes});
  moved_.push_back(moved);
}

bool Exchange::send_to(int32_t peer) {
  Queue& queue = sends_[static_cast<size_t>(peer)];
  const Message& message = queue.message();
  Offer& offer = lanes_.mailbox.offer(lanes_.place.rank, peer);
  const uint64_t posted = offer.posted.load();
  const uint64_t taken = lanes_.mailbox.want(lanes_.place.rank, peer).taken.load();
  const bool is_new = offer.begun.load() < queue.number;
  if (is_new) {
    offer.count = message.elements.count;
    offer.dtype = static_cast<int32_t>(message.elements.dtype);
    offer.ring = queue.ring;
    offer.piece_bytes = piece_bytes_;
    offer.begun.store(queue.number);
    lanes_.mailbox.ring(peer);
  }
  look_at_what_is_wanted(peer);
  if (queue.pieces == pieces_of(message, piece_bytes_)) {
    if (taken < posted) return is_new;
    queue.advance();
    return true;
  }
  if (posted - taken == kRingPieces) return is_new;
  const uint64_t first = queue.pieces++ * piece_bytes_;
  copy_piece(lanes_.memory.stage(lanes_.place.rank) + queue.ring + posted % kRingPieces * piece_bytes_,
             static_cast<const std::byte*>(message.buffer) + first,
             std::min(piece_bytes_, message.elements.bytes() - first), {&offer.posted, posted + 1, peer});
  return true;
}

bool Exchange::receive_from(int32_t peer) {
  Queue& queue = receives_[static_cast<size_t>(peer)];
  const Message& message = queue.message();
  Want& want = lanes_.mailbox.want(peer, lanes_.place.rank);
  const bool is_new = want.begun.load() < queue.number;
  if (is_new) {
    want.wanted[queue.number % 2] = {message.elements.count, static_cast<int32_t>(message.elements.dtype)};
    want.begun.store(queue.number);
    lanes_.mailbox.ring(peer);
  }
  look_at_what_is_sent(peer);
  const Offer& offer = lanes_.mailbox.offer(peer, lanes_.place.rank);
  const uint64_t taken = want.taken.load();
  if (offer.begun.load() < queue.number || offer.posted.load() == taken) return is_new;
  const uint64_t piece_bytes = offer.piece_bytes;
  const uint64_t first = queue.pieces++ * piece_bytes;
  copy_piece(static_cast<std::byte*>(message.buffer) + first,
             lanes_.memory.stage(peer) + offer.ring + taken % kRingPieces * piece_bytes,
             std::min(piece_bytes, message.elements.bytes() - first), {&want.taken, taken + 1, peer});
  if (queue.pieces == pieces_of(message, piece_bytes)) queue.advance();
  return true;
}

void Exchange::look_at_what_is_sent(int32_t peer) {
  const Queue& queue = receives_[static_cast<size_t>(peer)];
  const Offer& offer = lanes_.mailbox.offer(peer, lanes_.place.rank);
  if (queue.is_done() || offer.begun.load() < queue.number) return;
  const Elements sent{offer.count, static_cast<sdk::DType>(offer.dtype)};
  if (!fit(sent, queue.message().elements)) refuse(peer, sent, lanes_.place.rank, queue.message().elements);
}

void Exchange::look_at_what_is_wanted(int32_t peer) {
  const Queue& queue = sends_[static_cast<size_t>(peer)];
  const Want& want = lanes_.mailbox.want(lanes_.place.rank, peer);
  if (queue.is_done() || want.begun.load() < queue.number) return;
  const Want::Wanted& theirs = want.wanted[queue.number % 2];
  const Elements wanted{theirs.count, static_cast<sdk::DType>(theirs.dtype)};
  if (!fit(queue.message().elements, wanted)) refuse(lanes_.place.rank, queue.message().elements, peer, wanted);
}

void Exchange::find_mismatch() {
  for (int32_t peer = 0; peer < lanes_.place.world_size; ++peer) {
    look_at_what_is_sent(peer);
    look_at_what_is_wanted(peer);
  }
}

void Exchange::refuse(int32_t from, const Elements& sent, int32_t to, const Elements& wanted) {
  lanes_.mailbox.mark_mismatch();
  throw mismatch_of(lanes_.place.rank, from, sent, to, wanted);
}

void Exchange::wait(uint32_t bell) {
  try {
    lanes_.watch.check_peers();
  } catch (const Failure&) {
    find_mismatch();  // the peer that saw it first has aborted; this rank can say it as well
    throw;
  }
  for (int32_t peer = 0; peer < lanes_.place.world_size; ++peer) {
    const auto at = static_cast<size_t>(peer);
    if ((sends_[at].is_done() && receives_[at].is_done()) || !lanes_.mailbox.has_left(peer)) continue;
    if (progress()) return;  // it had done its part before it left
    throw Failure(PLIANT_PEER_LOST, "rank " + std::to_string(peer) +
                                        " is lost: it destroyed the communicator while this rank still needed it")
        .about_rank(peer);
  }
  lanes_.mailbox.await_ring(bell);
}

}  // namespace

void exchange_by_lanes(const Lanes& lanes, const std::vector<Message>& messages, pliant_stream* on) {
  try {
    Exchange(lanes, messages, on).run();
  } catch (const Failure& failure) {
    lanes.watch.fail(lanes.watch.cause_of(failure));  // with this cause, before anyone gives it another
    throw;
  }
}

}  // namespace pliant::collectives
