// Frames over Gloo's unbound buffers.
//
// Receives are posted ahead, so that what a peer sends goes at once. A frame's memory is used again when the peer has
// acknowledged it: Gloo's own completions are not used, for where a connection ends in the middle of a message Gloo
// does not end the wait for it.
#include "common/gloo/peer.hpp"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "common/gloo/api.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

namespace {

constexpr uint64_t kFrames = 64;    ///< that may be under way to one peer
constexpr uint64_t kWindow = 48;    ///< of these for all but acknowledgements and failures
constexpr uint64_t kTell = 16;      ///< frames that are acknowledged together
constexpr uint64_t kInline = 4096;  ///< payload that goes behind its frame
constexpr uint64_t kPayloads = 2;   ///< larger payloads that may be under way from one peer
constexpr uint64_t kCell = sizeof(Frame) + kInline;
constexpr std::chrono::seconds kAnswer{1};  ///< that a call takes where anyone is there to answer
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 3650);

/// Of two addresses the higher one calls the other: Gloo's order, which goes by the bytes as they are in memory.
bool calls(const std::vector<char>& own, const std::string& peer) {
  const auto order = [&](auto address, auto host, auto port) {
    decltype(address) ours{};
    decltype(address) theirs{};
    std::memcpy(&ours, own.data(), std::min(own.size(), sizeof(ours)));
    std::memcpy(&theirs, peer.data(), std::min(peer.size(), sizeof(theirs)));
    const int hosts = std::memcmp(&(ours.*host), &(theirs.*host), sizeof(ours.*host));
    return hosts != 0 ? hosts > 0 : ours.*port > theirs.*port;
  };
  sockaddr kind{};
  std::memcpy(&kind, own.data(), std::min(own.size(), sizeof(kind)));
  return kind.sa_family == AF_INET6 ? order(sockaddr_in6{}, &sockaddr_in6::sin6_addr, &sockaddr_in6::sin6_port)
                                    : order(sockaddr_in{}, &sockaddr_in::sin_addr, &sockaddr_in::sin_port);
}

}  // namespace

GlooPeer::GlooPeer(FrameSink& sink, gloo::transport::Context& context, const Segment& segment, int32_t rank)
    : sink_(sink),
      context_(context),
      segment_(segment),
      own_(context.rank),
      rank_(rank),
      ranks_(static_cast<uint64_t>(context.size)),
      in_(kFrames * kCell),
      out_(kFrames * kCell),
      payloads_(kPayloads * segment.chunk_bytes()),
      pair_(context.createPair(rank).get()),
      in_buffer_(context.createUnboundBuffer(in_.data(), in_.size())),
      out_buffer_(context.createUnboundBuffer(out_.data(), out_.size())),
      payload_buffer_(context.createUnboundBuffer(payloads_.data(), payloads_.size())),
      segment_buffer_(context.createUnboundBuffer(segment.base(), segment.bytes())),
      heard_at_(Clock::now().time_since_epoch().count()) {}

GlooPeer::~GlooPeer() {
  stop();
  // So that Gloo's thread has left the buffers. Not by close(), which resets the connection: a peer whose Gloo takes a
  // connection that was reset before throws where nobody catches it, and is terminated.
  context_.getPair(rank_).reset();
}

std::string GlooPeer::address() const {
  const std::vector<char> bytes = pair_->address().bytes();
  return {bytes.begin(), bytes.end()};
}

void GlooPeer::connect(const std::string& address) {
  {
    const std::lock_guard lock(connect_mutex_);
    if (interrupted_) throw std::runtime_error("interrupted");
    call_ = calls(pair_->address().bytes(), address) ? Call::kCalling : Call::kCalled;
  }
  const auto ended = [this] {
    const std::lock_guard lock(connect_mutex_);
    call_ = Call::kNone;
    connect_ended_.notify_all();
  };
  try {
    pair_->connect(std::vector<char>(address.begin(), address.end()));
  } catch (...) {
    ended();
    throw;
  }
  ended();
}

void GlooPeer::interrupt() {
  std::unique_lock lock(connect_mutex_);
  interrupted_ = true;
  if (call_ == Call::kCalling) {
    // close() resets it, and the peer may be about to take it: see the destructor.
    connect_ended_.wait_for(lock, kAnswer, [this] { return call_ == Call::kNone; });
  }
  if (call_ != Call::kNone) pair_->close();
}

void GlooPeer::start(const Frame& hello) {
  const NoBrokenPipe quiet;
  for (uint64_t n = 0; n < kFrames; ++n) post_frame(n);
  for (uint64_t n = 0; n < kPayloads; ++n) post_payload(n);
  const std::lock_guard lock(mutex_);
  if (stopping_.load()) return;
  put(hello);  // first of all, also before what is sent because the peer's hello has come
  forgive();
  thread_ = std::thread([this] { receive(); });
  started_ = true;
}

void GlooPeer::stop() {
  std::thread ended;
  {
    const std::lock_guard lock(mutex_);
    stopping_.store(true);
    over_ = true;
    room_.notify_all();
    ended = std::move(thread_);
  }
  in_buffer_->abortWaitRecv();
  payload_buffer_->abortWaitRecv();
  if (ended.joinable()) ended.join();
}

// Slots of Gloo are numbers that both ends derive alike.
void GlooPeer::post_frame(uint64_t number) {
  const uint64_t way = static_cast<uint64_t>(rank_) * ranks_ + static_cast<uint64_t>(own_);
  in_buffer_->recv(rank_, way * 2, number % kFrames * kCell, kCell);
}

void GlooPeer::post_payload(uint64_t number) {
  const uint64_t way = static_cast<uint64_t>(rank_) * ranks_ + static_cast<uint64_t>(own_);
  payload_buffer_->recv(rank_, way * 2 + 1, number % kPayloads * segment_.chunk_bytes(), segment_.chunk_bytes());
}

void GlooPeer::send(const Frame& frame, Patience patience) {
  std::unique_lock lock(mutex_);
  const uint64_t limit = patience == Patience::kWaits ? kWindow : kFrames;
  const auto has_room = [&] { return sent_ - acknowledged_.load() < limit; };
  if (patience == Patience::kWaits) room_.wait(lock, [&] { return over_ || given_up_ || has_room(); });
  if (over_ || !started_ || !has_room()) return;
  try {
    put(frame);
  } catch (const std::exception&) {
    lock.unlock();
    end();
  }
}

void GlooPeer::put(const Frame& frame) {
  std::byte* cell = out_.data() + sent_ % kFrames * kCell;
  Frame sent = frame;
  sent.received = received_.load();
  told_.store(sent.received);
  std::memcpy(cell, &sent, sizeof(sent));
  const uint64_t behind = frame.bytes <= kInline ? frame.bytes : 0;
  if (behind != 0) std::memcpy(cell + sizeof(frame), segment_.base() + frame.where, behind);
  const uint64_t way = static_cast<uint64_t>(own_) * ranks_ + static_cast<uint64_t>(rank_);
  const NoBrokenPipe quiet;
  out_buffer_->send(rank_, way * 2, sent_ % kFrames * kCell, sizeof(frame) + behind);
  if (behind != frame.bytes) segment_buffer_->send(rank_, way * 2 + 1, frame.where, frame.bytes);
  ++sent_;
  if (frame.kind == Frame::kLeft) left_at_ = sent_;
}

void GlooPeer::end() {
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    over_ = true;
    room_.notify_all();
  }
  sink_.lost(rank_);
}

bool GlooPeer::drain(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return room_.wait_until(lock, deadline, [&] { return over_ || !started_ || acknowledged_.load() >= left_at_; });
}

void GlooPeer::give_up() {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  room_.notify_all();
}

GlooPeer::Clock::duration GlooPeer::silence() const {
  return Clock::now().time_since_epoch() - Clock::duration(heard_at_.load());
}

void GlooPeer::forgive() {
  heard_at_.store(Clock::now().time_since_epoch().count());
}

void GlooPeer::receive() {
  const NoBrokenPipe quiet;
  try {
    for (uint64_t number = 0; in_buffer_->waitRecv(nullptr, kForever); ++number) {
      forgive();
      if (!take(number)) {
        if (!stopping_.load()) sink_.broken(rank_);
        return;
      }
      post_frame(number);
    }
  } catch (const std::exception&) {
    if (!stopping_.load()) end();
  }
}

bool GlooPeer::take(uint64_t number) {
  const std::byte* cell = in_.data() + number % kFrames * kCell;
  Frame frame;
  std::memcpy(&frame, cell, sizeof(frame));
  if (frame.layout != Frame::kLayout || (number == 0) != (frame.kind == Frame::kHello)) return false;
  if (frame.bytes != 0) {
    if (!sink_.may_write(rank_, frame)) return false;
    if (frame.bytes <= kInline) {
      std::memcpy(segment_.base() + frame.where, cell + sizeof(frame), frame.bytes);
    } else if (!fetch_payload(frame)) {
      return false;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    acknowledged_.store(std::max(acknowledged_.load(), frame.received));
    received_.store(number + 1);
    room_.notify_all();
  }
  if (!sink_.apply(rank_, frame)) return false;
  acknowledge(frame.kind == Frame::kLeft);
  return true;
}

bool GlooPeer::fetch_payload(const Frame& frame) {
  if (frame.bytes > segment_.chunk_bytes() || !payload_buffer_->waitRecv(nullptr, kForever)) return false;
  std::memcpy(segment_.base() + frame.where, payloads_.data() + payloads_taken_ % kPayloads * segment_.chunk_bytes(),
              frame.bytes);
  post_payload(payloads_taken_++);
  return true;
}

void GlooPeer::acknowledge(bool at_once) {
  if (!at_once && received_.load() - told_.load() < kTell) return;
  Frame frame;
  frame.kind = Frame::kAlive;
  send(frame, Patience::kTries);
}

}  // namespace pliant::accelerator
