// Interfaces and addresses of this machine, and ids that others join by.
#include "common/gloo/network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "common/exchange/segment.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

constexpr uint32_t kNetworkMagic = 0x474c5031;  // "1PLG"

const sockaddr_in& v4(const NetworkAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.bytes);
}

const sockaddr_in6& v6(const NetworkAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.bytes);
}

/// Of an IPv6 address only those that mean the same on every machine of the network.
bool is_usable(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return false;
  if (entry.ifa_addr->sa_family == AF_INET) return true;
  return entry.ifa_addr->sa_family == AF_INET6 &&
         !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
}

NetworkAddress address_of(const ifaddrs& entry) {
  NetworkAddress made;
  std::memcpy(&made.bytes, entry.ifa_addr,
              entry.ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return made;
}

}  // namespace

socklen_t NetworkAddress::size() const {
  return bytes.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

uint16_t NetworkAddress::port() const {
  return ntohs(bytes.ss_family == AF_INET6 ? v6(*this).sin6_port : v4(*this).sin_port);
}

std::string NetworkAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* from = bytes.ss_family == AF_INET6 ? static_cast<const void*>(&v6(*this).sin6_addr)
                                                 : static_cast<const void*>(&v4(*this).sin_addr);
  return ::inet_ntop(bytes.ss_family, from, text.data(), text.size()) == nullptr ? "?" : text.data();
}

bool NetworkAddress::is_loopback() const {
  if (bytes.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&v6(*this).sin6_addr);
  return bytes.ss_family == AF_INET && ntohl(v4(*this).sin_addr.s_addr) >> 24U == 127;
}

std::string NetworkAddress::text() const {
  const std::string shown = bytes.ss_family == AF_INET6 ? "[" + host() + "]" : host();
  return shown + ":" + std::to_string(port());
}

NetworkAddress NetworkSettings::resolve(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0)
    throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                  std::string("cannot list the interfaces of this machine: ") + std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, ::freeifaddrs);
  std::string known;
  NetworkAddress found;
  for (const ifaddrs* entry = all.get(); entry != nullptr; entry = entry->ifa_next) {
    if (!is_usable(*entry)) continue;
    const NetworkAddress address = address_of(*entry);
    known += (known.empty() ? "" : ", ") + std::string(entry->ifa_name) + " (" + address.host() + ")";
    const bool named = interface == entry->ifa_name || interface == address.host();
    // Of several addresses of an interface the first IPv4 one.
    if (named && (!found.is_set() || (found.bytes.ss_family == AF_INET6 && address.bytes.ss_family == AF_INET)))
      found = address;
  }
  if (found.is_set()) return found;
  const std::string here = known.empty() ? "this machine has none that is up" : "this machine has: " + known;
  throw Failure(PLIANT_INVALID_ARGUMENT,
                interface.empty()
                    ? "transport = \"gloo\" needs the interface that reaches the other machines; " + here
                    : "interface = \"" + interface + "\" is no interface or address of this machine; " + here,
                interface.empty() ? "transport" : "interface");
}

bool NetworkId::is_one(const pliant_comm_id& id) {
  uint32_t magic = 0;
  std::memcpy(&magic, id.bytes, sizeof(magic));
  return magic == kNetworkMagic;
}

uint64_t NetworkId::nonce(const pliant_comm_id& id) {
  NetworkId made{};
  std::memcpy(&made, id.bytes, sizeof(made));
  return made.secret[0];
}

NetworkId NetworkId::read(const pliant_comm_id& id, int32_t world_size, const NetworkSettings& network) {
  NetworkId made{};
  std::memcpy(&made, id.bytes, sizeof(made));
  if (made.layout != kSegmentLayout) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "the communicator id comes from another version of this accelerator (memory layout " +
                      std::to_string(made.layout) + ", here " + std::to_string(kSegmentLayout) +
                      "); all ranks must run the same release");
  }
  sdk::require(made.world_size == world_size, "the communicator id is for world size " +
                                                  std::to_string(made.world_size) + ", not " +
                                                  std::to_string(world_size));
  sdk::require(made.family == AF_INET || made.family == AF_INET6, "this is no communicator id of this accelerator");
  sdk::require(network.own.is_set(),
               "the communicator id was made with transport = \"gloo\", but this rank has \"shared_memory\"; set the "
               "same transport on all ranks");
  sdk::require(world_size == 1 || network.own.bytes.ss_family == made.family,
               "the communicator id names " + made.address().text() + ", but this rank's interface has " +
                   network.own.host() + "; name interfaces of one address family on all ranks");
  sdk::require(world_size == 1 || network.own.is_loopback() == made.address().is_loopback(), [&] {
    const bool here = network.own.is_loopback();
    return "the communicator id names " + made.address().text() + ", but this rank's interface has " +
           network.own.host() + "; " + (here ? network.own.host() : made.address().host()) +
           " is reached on its own machine only: name the interfaces that join the machines, on all ranks";
  });
  return made;
}

UniqueFd NetworkId::reserve(int32_t world_size, uint64_t chunk_bytes, const NetworkSettings& network,
                            pliant_comm_id& id) {
  NetworkId made{};
  made.magic = kNetworkMagic;
  made.layout = kSegmentLayout;
  made.world_size = world_size;
  made.chunk_bytes = Segment::rounded_chunk(chunk_bytes, world_size);
  made.family = network.own.bytes.ss_family;
  if (::getrandom(made.secret, sizeof(made.secret), 0) != static_cast<ssize_t>(sizeof(made.secret))) {
    throw Failure(PLIANT_INTERNAL, std::string("getrandom: ") + std::strerror(errno));
  }
  UniqueFd fd;
  if (world_size > 1) {
    fd = UniqueFd(::socket(made.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    NetworkAddress bound = network.own;
    socklen_t size = sizeof(bound.bytes);
    if (!fd || ::bind(fd.get(), bound.raw(), bound.size()) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.bytes), &size) != 0) {
      throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                    "cannot listen for the other ranks on " + network.own.host() + ": " + std::strerror(errno));
    }
    if (made.family == AF_INET6) {
      made.port = v6(bound).sin6_port;
      made.scope = v6(bound).sin6_scope_id;
      std::memcpy(made.host, &v6(bound).sin6_addr, 16);
    } else {
      made.port = v4(bound).sin_port;
      std::memcpy(made.host, &v4(bound).sin_addr, 4);
    }
  }
  std::memset(id.bytes, 0, sizeof(id.bytes));
  std::memcpy(id.bytes, &made, sizeof(made));
  return fd;
}

NetworkAddress NetworkId::address() const {
  NetworkAddress made;
  if (family == AF_INET6) {
    sockaddr_in6 full{};
    full.sin6_family = AF_INET6;
    full.sin6_port = port;
    full.sin6_scope_id = scope;
    std::memcpy(&full.sin6_addr, host, 16);
    std::memcpy(&made.bytes, &full, sizeof(full));
  } else {
    sockaddr_in full{};
    full.sin_family = AF_INET;
    full.sin_port = port;
    std::memcpy(&full.sin_addr, host, 4);
    std::memcpy(&made.bytes, &full, sizeof(full));
  }
  return made;
}

bool NetworkId::admits(const uint64_t (&shown)[4]) const {
  uint64_t difference = 0;  // no early end: its time would tell how much was right
  for (size_t i = 0; i < 4; ++i) difference |= secret[i] ^ shown[i];
  return difference == 0;
}

}  // namespace pliant::accelerator
