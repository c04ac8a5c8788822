// Goes to the rendezvous, connects to all peers, and listens meanwhile whether one of them is lost.
#include "common/gloo/joining.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "common/gloo/api.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

using Clock = std::chrono::steady_clock;

/// How long a rank that gives up may take to reach those who would wait for it.
constexpr std::chrono::seconds kLastWords{1};

}  // namespace

GlooJoining::GlooJoining(const NetworkId& id, int32_t rank, Peers& peers, std::function<void(FailureCause)> failed)
    : id_(id), rank_(rank), peers_(peers), failed_(std::move(failed)) {}

GlooJoining::~GlooJoining() {
  stop();
}

void GlooJoining::start() {
  try {
    joining_ = std::thread([this] { join(); });
  } catch (const std::system_error& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no thread to join the other ranks: ") + refused.what());
  }
}

void GlooJoining::stop() {
  stop_.store(true);
  knock_.knock();
  if (joining_.joinable()) joining_.join();
}

void GlooJoining::greeted() {
  ++greetings_;
  knock_.knock();
}

void GlooJoining::tell(FailureCause cause) {
  uint64_t none = 0;
  if (failure_.compare_exchange_strong(none, cause.packed())) knock_.knock();
}

void GlooJoining::push_failure(NoteChannel& channel) {
  const uint64_t failure = failure_.load();
  if (failure == 0 || failure_pushed_) return;
  failure_pushed_ = true;
  channel.push(Note::of(FailureCause::unpack(failure), rank_));
}

void GlooJoining::fail(FailureCause cause) {
  if (!stop_.load()) failed_(cause);
}

void GlooJoining::say_last_words(NoteChannel& channel) {
  push_failure(channel);
  const auto give_up = Clock::now() + kLastWords;
  while (channel.pump() && (channel.events() & POLLOUT) != 0 && Clock::now() < give_up) {
    pollfd polled{channel.fd(), POLLOUT, 0};
    ::poll(&polled, 1, static_cast<int>(std::chrono::milliseconds(kLastWords).count()));
  }
}

std::optional<NoteChannel> GlooJoining::reach_rendezvous() {
  const NetworkAddress there = id_.address();
  UniqueFd fd(::socket(there.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int reason = 0;
  if (!fd || (::connect(fd.get(), there.raw(), there.size()) != 0 && errno != EINPROGRESS)) reason = errno;
  std::optional<Clock::time_point> give_up;
  while (reason == 0) {
    if (stop_.load() && !give_up) give_up = Clock::now() + kLastWords;
    const auto left = give_up ? std::chrono::ceil<std::chrono::milliseconds>(*give_up - Clock::now()).count() : -1;
    pollfd polled[2] = {{knock_.fd(), POLLIN, 0}, {fd.get(), POLLOUT, 0}};
    const int ready = ::poll(polled, 2, give_up ? static_cast<int>(std::max<int64_t>(left, 0)) : -1);
    if (ready < 0) continue;  // a signal
    if (ready == 0) return std::nullopt;
    if (polled[1].revents == 0) {
      knock_.clear();
      continue;
    }
    socklen_t size = sizeof(reason);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &reason, &size);
    break;
  }
  if (reason == 0) return NoteChannel(std::move(fd), RendezvousServer::most_body(id_.world_size));
  fail({FailureCause::kUnreachable, -1, reason});
  return std::nullopt;
}

void GlooJoining::join() {
  std::optional<NoteChannel> channel = reach_rendezvous();
  if (channel) {
    Note hello{Note::kHello, rank_, std::string(reinterpret_cast<const char*>(id_.secret), sizeof(id_.secret))};
    size_t width = 0;
    for (const auto& peer : peers_) width = peer ? peer->address().size() : width;
    for (const auto& peer : peers_) hello.body += peer ? peer->address() : std::string(width, '\0');
    channel->push(hello);
  }
  bool joining = channel.has_value();
  while (joining && !stop_.load()) {
    push_failure(*channel);
    if (!channel->pump()) {
      // What the rendezvous said last may be the reason.
      for (auto note = channel->next(); note && joining; note = channel->next()) joining = follow(*note);
      // Whom all have greeted needs it no more.
      if (joining && greetings_.load() + 1 != peers_.size()) fail({FailureCause::kMakerGone, -1, 0});
      break;
    }
    for (auto note = channel->next(); note && joining; note = channel->next()) joining = follow(*note);
    if (!joining) break;
    if (greetings_.load() + 1 == peers_.size()) {
      channel->push({Note::kDone, rank_});
      channel->pump();
      break;
    }
    pollfd polled[2] = {{knock_.fd(), POLLIN, 0}, {channel->fd(), channel->events(), 0}};
    if (::poll(polled, 2, -1) > 0 && polled[0].revents != 0) knock_.clear();
  }
  if (channel && stop_.load()) say_last_words(*channel);
  if (!connecting_.joinable()) return;
  if (greetings_.load() + 1 != peers_.size()) {
    // From the last to the first, against the way of connect_all(), so that it begins with no other.
    for (auto peer = peers_.rbegin(); peer != peers_.rend(); ++peer) {
      if (*peer) (*peer)->interrupt();
    }
  }
  connecting_.join();
}

bool GlooJoining::follow(const Note& note) {
  switch (note.kind) {
    case Note::kTable:
      if (!connecting_.joinable()) connecting_ = std::thread([this, table = note.body] { connect_all(table); });
      return true;
    case Note::kFailed:
      // Goes on: who ends its connections now would be taken for the one that was lost.
      if (const auto cause = note.cause()) fail(*cause);
      return true;
    case Note::kRefused:
      fail({FailureCause::kRankTaken, note.rank, 0});
      return false;
    default:
      return true;
  }
}

void GlooJoining::connect_all(const std::string& table) {
  const NoBrokenPipe quiet;
  const size_t width = table.size() / peers_.size();
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (!peers_[r]) continue;
    if (stop_.load()) return;
    try {
      peers_[r]->connect(table.substr(r * width, width));
      Frame hello;
      hello.kind = Frame::kHello;
      std::memcpy(hello.words, id_.secret, sizeof(hello.words));
      peers_[r]->start(hello);
      if (const uint64_t failure = failure_.load(); failure != 0) {
        Frame failed;
        failed.kind = Frame::kFailed;
        failed.words[0] = failure;
        peers_[r]->send(failed, GlooPeer::Patience::kTries);
      }
    } catch (const std::exception&) {
      return fail({FailureCause::kNotConnected, static_cast<int32_t>(r), rank_});
    }
  }
}

}  // namespace pliant::accelerator
