// Hands addresses round. Whoever does not show the secret within a moment is sent away.
#include "common/gloo/rendezvous.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

constexpr uint32_t kRendezvousMagic = 0x52505031;
constexpr auto kPatience = std::chrono::seconds(10);
constexpr size_t kMostStrangers = 64;
/// Until guests are admitted again after the system had no descriptor for one.
constexpr int kBackOffMs = 20;

struct NoteHead {
  uint32_t magic;
  uint32_t kind;
  int32_t rank;
  uint32_t bytes;
};

}  // namespace

Note Note::of(const FailureCause& cause, int32_t rank) {
  const uint64_t word = cause.packed();
  return {kFailed, rank, std::string(reinterpret_cast<const char*>(&word), sizeof(word))};
}

std::optional<FailureCause> Note::cause() const {
  uint64_t word = 0;
  if (kind != kFailed || body.size() != sizeof(word)) return std::nullopt;
  std::memcpy(&word, body.data(), sizeof(word));
  return FailureCause::unpack(word);
}

Knock::Knock() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("cannot join: eventfd: ") + std::strerror(errno));
}

void Knock::knock() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof(one));
}

void Knock::clear() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
}

short NoteChannel::events() const {
  return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void NoteChannel::push(const Note& note) {
  const NoteHead head{kRendezvousMagic, note.kind, note.rank, static_cast<uint32_t>(note.body.size())};
  out_.append(reinterpret_cast<const char*>(&head), sizeof(head)).append(note.body);
}

bool NoteChannel::pump() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent < 0) return false;
    out_.erase(0, static_cast<size_t>(sent));
  }
  std::array<char, 4096> part;
  while (in_.size() < most_body_ + sizeof(NoteHead)) {
    const ssize_t got = ::recv(fd_.get(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return false;
    in_.append(part.data(), static_cast<size_t>(got));
  }
  NoteHead head{};
  if (in_.size() < sizeof(head)) return true;
  std::memcpy(&head, in_.data(), sizeof(head));
  return head.magic == kRendezvousMagic && head.bytes <= most_body_;
}

std::optional<Note> NoteChannel::next() {
  NoteHead head{};
  if (in_.size() < sizeof(head)) return std::nullopt;
  std::memcpy(&head, in_.data(), sizeof(head));
  if (in_.size() < sizeof(head) + head.bytes) return std::nullopt;
  Note made{head.kind, head.rank, in_.substr(sizeof(head), head.bytes)};
  in_.erase(0, sizeof(head) + head.bytes);
  return made;
}

uint64_t RendezvousServer::most_body(int32_t world_size) {
  return sizeof(NetworkId::secret) + static_cast<uint64_t>(world_size) * kMostAddress;
}

RendezvousServer::RendezvousServer(const NetworkId& id, std::shared_ptr<UniqueFd> listener)
    : id_(id),
      listener_(std::move(listener)),
      addresses_(static_cast<size_t>(id.world_size)),
      finished_(addresses_.size()) {
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (const std::system_error& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no thread for the rendezvous: ") + refused.what());
  }
}

RendezvousServer::~RendezvousServer() {
  stop_.knock();
  thread_.join();
}

bool RendezvousServer::all_done() const {
  return std::all_of(finished_.begin(), finished_.end(), [](bool done) { return done; });
}

void RendezvousServer::serve() {
  while (!all_done()) {
    const bool waits = Clock::now() < admit_from_;
    std::vector<pollfd> polled{{stop_.fd(), POLLIN, 0}, {listener_->get(), waits ? short{0} : short{POLLIN}, 0}};
    for (const Guest& guest : guests_) polled.push_back({guest.channel.fd(), guest.channel.events(), 0});
    const bool strangers = std::any_of(guests_.begin(), guests_.end(), [](const Guest& g) { return g.rank < 0; });
    const int patience_ms = waits ? kBackOffMs : strangers ? 1000 : -1;
    if (::poll(polled.data(), polled.size(), patience_ms) < 0) continue;  // a signal
    if (polled[0].revents != 0) return;
    size_t at = 2;
    for (Guest& guest : guests_) {
      if (polled[at++].revents != 0) hear(guest);
    }
    if (polled[1].revents != 0) admit_new();
    drop_strangers();
    hand_out();
    for (Guest& guest : guests_) {
      if (!guest.over && (guest.channel.events() & POLLOUT) != 0) hear(guest);
    }
    guests_.remove_if([](const Guest& guest) { return guest.over; });
  }
  guests_.clear();
  listener_.reset();
  set_drained();
}

void RendezvousServer::set_drained() {
  const std::lock_guard lock(mutex_);
  is_drained_ = true;
  drained_.notify_all();
}

void RendezvousServer::drain(Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  drained_.wait_until(lock, deadline, [this] { return is_drained_; });
}

void RendezvousServer::admit_new() {
  UniqueFd fd(::accept4(listener_->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd) {
    guests_.push_back({NoteChannel(std::move(fd), most_body(id_.world_size)), Clock::now()});
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    // The guest is still at the door, and would be announced again at once.
    admit_from_ = Clock::now() + std::chrono::milliseconds(kBackOffMs);
  }
}

void RendezvousServer::drop_strangers() {
  size_t strangers = 0;
  for (auto guest = guests_.rbegin(); guest != guests_.rend(); ++guest) {
    if (guest->rank >= 0) continue;
    const bool too_many = ++strangers > kMostStrangers + static_cast<size_t>(id_.world_size);
    if (too_many || Clock::now() - guest->since > kPatience) guest->over = true;
  }
}

void RendezvousServer::hear(Guest& guest) {
  const bool open = guest.channel.pump();
  for (auto note = guest.channel.next(); note; note = guest.channel.next()) {
    if (guest.rank < 0) {
      greet(guest, *note);
    } else if (note->kind == Note::kDone) {
      guest.done = true;
      finished_[static_cast<size_t>(guest.rank)] = true;
    } else if (note->cause()) {
      fail(*note);
    }
    if (guest.over) return;
  }
  if (open) return;
  guest.over = true;
  if (guest.rank >= 0 && !guest.done) {
    fail(Note::of({FailureCause::kDisconnected, guest.rank, 0}, guest.rank));
  }
}

void RendezvousServer::greet(Guest& guest, const Note& hello) {
  uint64_t shown[4] = {};
  const bool long_enough = hello.body.size() > sizeof(shown);
  if (long_enough) std::memcpy(shown, hello.body.data(), sizeof(shown));
  const bool valid =
      hello.kind == Note::kHello && long_enough && id_.admits(shown) && hello.rank >= 0 && hello.rank < id_.world_size;
  if (!valid) {
    guest.over = true;  // a stranger hears nothing
    return;
  }
  std::string& addresses = addresses_[static_cast<size_t>(hello.rank)];
  if (!addresses.empty()) {
    guest.channel.push({Note::kRefused, hello.rank});
    guest.channel.pump();
    guest.over = true;
    return;
  }
  addresses = hello.body.substr(sizeof(shown));
  guest.rank = hello.rank;
  if (failed_) guest.channel.push(*failed_);
}

void RendezvousServer::hand_out() {
  if (handed_out_ || std::any_of(addresses_.begin(), addresses_.end(), [](const auto& a) { return a.empty(); })) return;
  handed_out_ = true;
  const auto ranks = static_cast<size_t>(id_.world_size);
  for (Guest& guest : guests_) {
    if (guest.rank < 0) continue;
    Note table{Note::kTable, guest.rank};
    for (const std::string& all : addresses_) {
      const size_t width = all.size() / ranks;
      table.body += all.substr(static_cast<size_t>(guest.rank) * width, width);
    }
    guest.channel.push(table);
  }
}

void RendezvousServer::fail(const Note& failed) {
  if (failed_) return;
  failed_ = failed;
  set_drained();
  for (Guest& guest : guests_) {
    if (guest.rank >= 0 && guest.rank != failed.rank && !guest.over) guest.channel.push(failed);
  }
}

}  // namespace pliant::accelerator
