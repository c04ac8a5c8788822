// Passes handles on: their bytes and descriptors in datagrams, one rank at a time, so that nobody waits on a socket:
// who waits for a peer waits in a collective, which ends when that peer dies or anyone aborts.
#include "collectives/peers/peer_memory.hpp"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

namespace pliant::collectives {

using sdk::Failure;

namespace {

using Name = std::array<char, 8>;

/// Of an abstract socket: its name begins with a zero byte.
struct Address {
  explicit Address(const Name& name) {
    raw.sun_family = AF_UNIX;
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + ::strnlen(name.data(), name.size()));
    std::memcpy(raw.sun_path + 1, name.data(), name.size());
  }
  sockaddr_un raw{};
  socklen_t length = 0;
};

int open_socket() {
  return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/// A descriptor that came with a message, or -1.
int descriptor_of(msghdr& message) {
  int found = -1;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    std::memcpy(&found, CMSG_DATA(head), sizeof(found));
  }
  return found;
}

uint64_t drawn() {
  uint64_t word = 0;
  if (::getrandom(&word, sizeof(word), 0) != static_cast<ssize_t>(sizeof(word))) {
    throw Failure(PLIANT_INTERNAL, std::string("getrandom: ") + std::strerror(errno));
  }
  return word;
}

/// Differs between pid namespaces of one machine; 0 where /proc is not there.
uint64_t pid_namespace() {
  struct stat seen {};
  return ::stat("/proc/self/ns/pid", &seen) == 0 ? seen.st_ino : 0;
}

}  // namespace

struct PeerMemory::Card {
  uint64_t able;  ///< 1: has a stage
  uint64_t pid;
  uint64_t pid_namespace;
  uint64_t instance;  ///< address of the accelerator's instance
  uint64_t stage;     ///< its address, for ranks that are threads of one process
  uint64_t secret;    ///< in each letter of this rank
  Name socket;
};

struct PeerMemory::Letter {
  uint64_t secret;
  pliant_ipc_handle handle;
};

bool PeerMemory::is_there(const Called& device, int32_t device_index) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  device.slots.must(&pliant_accelerator::device_properties, device_index, &properties);
  if ((properties.capabilities & PLIANT_CAP_EXCHANGE_MEMORY) == 0) return false;
  return static_cast<bool>(device.ipc);
}

PeerMemory::PeerMemory(const Called& device, int32_t device_index, int32_t rank, int32_t world_size, uint64_t bytes)
    : device_index_(device_index),
      rank_(rank),
      world_size_(world_size),
      ipc_(device.ipc),
      own_(device.slots, device_index, PLIANT_MEMORY_EXCHANGE, bytes),
      secret_(drawn()),
      peers_(static_cast<size_t>(world_size)) {
  socket_ = open_socket();
  // Bound without a name it gets one that nobody else has.
  sockaddr_un bound{};
  bound.sun_family = AF_UNIX;
  socklen_t length = sizeof(bound);
  if (socket_ >= 0 && ::bind(socket_, reinterpret_cast<sockaddr*>(&bound), sizeof(sa_family_t)) == 0 &&
      ::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &length) == 0) {
    const size_t letters = length - offsetof(sockaddr_un, sun_path) - 1;
    std::memcpy(name_.data(), bound.sun_path + 1, std::min(letters, name_.size()));
  }
  peers_[static_cast<size_t>(rank_)].stage = static_cast<std::byte*>(own_.get());
}

PeerMemory::~PeerMemory() {
  let_go();
}

std::byte* PeerMemory::slot(int32_t rank, uint64_t number) const {
  return peers_[static_cast<size_t>(rank)].stage + number % kSlots * kSlotBytes;
}

PeerMemory::Card PeerMemory::own_card() const {
  return {name_[0] != 0,
          static_cast<uint64_t>(::getpid()),
          pid_namespace(),
          reinterpret_cast<uint64_t>(ipc_.self()),
          reinterpret_cast<uint64_t>(own_.get()),
          secret_,
          name_};
}

bool PeerMemory::is_here(const Card& peer) const {
  const Card own = own_card();
  return peer.pid == own.pid && peer.pid_namespace == own.pid_namespace && peer.instance == own.instance;
}

void PeerMemory::decline(int32_t world_size, const Gather& gather) {
  const Card blank{};
  std::vector<Card> all(static_cast<size_t>(world_size));
  gather(&blank, all.data(), sizeof(Card));
}

std::unique_ptr<PeerMemory> PeerMemory::agree(const Called& device, const Place& place, bool can,
                                              const Gather& gather) {
  std::unique_ptr<PeerMemory> made;
  try {
    if (can && is_there(device, place.device_index)) {
      made = std::make_unique<PeerMemory>(device, place.device_index, place.rank, place.world_size);
    }
  } catch (const Failure&) {  // none left: pinned memory serves
  }
  if (made == nullptr) {
    decline(place.world_size, gather);
  } else if (!made->join(gather)) {
    made = nullptr;
  }
  return made;
}

bool PeerMemory::join(const Gather& gather) {
  const Card own = own_card();
  std::vector<Card> cards(static_cast<size_t>(world_size_));
  gather(&own, cards.data(), sizeof(Card));
  if (std::any_of(cards.begin(), cards.end(), [](const Card& card) { return card.able == 0; })) return false;
  uint8_t well = 1;
  std::vector<uint8_t> all_well(cards.size());
  for (int32_t r = 0; r < world_size_; ++r) {
    if (r == rank_) {
      try {
        for (const Card& card : cards) {
          if (!is_here(card)) send_to(card);
        }
      } catch (const Failure&) {  // the others find no letter
        well = 0;
      }
    }
    gather(&well, all_well.data(), sizeof(well));  // from here on what r has sent is there
    const Card& card = cards[static_cast<size_t>(r)];
    peers_[static_cast<size_t>(r)].name = card.socket;
    if (r == rank_) continue;
    if (is_here(card)) {
      // Of this process. NOLINTNEXTLINE(performance-no-int-to-ptr): it came as a number, as the others' do
      peers_[static_cast<size_t>(r)].stage = reinterpret_cast<std::byte*>(card.stage);
    } else if (!receive_from(r, card)) {
      well = 0;
    }
  }
  gather(&well, all_well.data(), sizeof(well));
  if (std::all_of(all_well.begin(), all_well.end(), [](uint8_t one) { return one == 1; })) return true;
  let_go();
  gather(&well, all_well.data(), sizeof(well));  // no stage is freed before all have let go
  return false;
}

void PeerMemory::send_to(const Card& peer) const {
  Letter letter{secret_, {}};
  ipc_.must(&pliant_ipc::export_memory, device_index_, own_.get(), &letter.handle);
  Address to(peer.socket);
  iovec bytes{&letter, sizeof(letter)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &to.raw;
  message.msg_namelen = to.length;
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (letter.handle.descriptor >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &letter.handle.descriptor, sizeof(int));
  }
  const ssize_t sent = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  const int why = errno;
  if (letter.handle.descriptor >= 0) ::close(letter.handle.descriptor);
  if (sent != static_cast<ssize_t>(sizeof(letter))) {
    throw Failure(PLIANT_INTERNAL, std::string("a handle could not be sent: ") + std::strerror(why));
  }
}

bool PeerMemory::receive_from(int32_t peer, const Card& card) {
  for (;;) {
    Letter letter{};
    iovec bytes{&letter, sizeof(letter)};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    const ssize_t got = ::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return false;
    const int descriptor = descriptor_of(message);
    bool taken = false;
    // Anyone may write to a name; only the peer knows its secret.
    const bool genuine = got == static_cast<ssize_t>(sizeof(letter)) && letter.secret == card.secret;
    if (genuine) {
      letter.handle.descriptor = descriptor;
      taken = map(peers_[static_cast<size_t>(peer)], letter.handle);
    }
    if (descriptor >= 0) ::close(descriptor);
    if (genuine) return taken;
  }
}

bool PeerMemory::map(Peer& peer, const pliant_ipc_handle& handle) const {
  try {
    peer.imported = sdk::ImportedMemory(ipc_, device_index_, handle);
  } catch (const Failure&) {
    return false;
  }
  peer.stage = static_cast<std::byte*>(peer.imported.get());
  return true;
}

void PeerMemory::let_go() {
  for (Peer& peer : peers_) {
    peer.imported.reset();
  }
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

bool PeerMemory::is_let_go() const {
  const int probe = open_socket();
  if (probe < 0) return false;
  bool held = false;
  for (size_t r = 0; r < peers_.size(); ++r) {
    if (r == static_cast<size_t>(rank_) || peers_[r].name[0] == 0) continue;
    const Address to(peers_[r].name);
    held = held || ::connect(probe, reinterpret_cast<const sockaddr*>(&to.raw), to.length) == 0;
  }
  ::close(probe);
  return !held;
}

}  // namespace pliant::collectives
