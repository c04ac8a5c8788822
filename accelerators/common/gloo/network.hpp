// Where ranks on other machines are found: the interface that the operator names, and the id of a communicator across
// machines, which carries the address of a rendezvous and the secret that admits to it.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "common/processes/process.hpp"
#include "pliant/abi/collectives.h"

namespace pliant::accelerator {

/// An IPv4 or IPv6 address with its port.
struct NetworkAddress {
  sockaddr_storage bytes = {};

  [[nodiscard]] bool is_set() const { return bytes.ss_family != AF_UNSPEC; }
  [[nodiscard]] socklen_t size() const;
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  [[nodiscard]] uint16_t port() const;
  [[nodiscard]] bool is_loopback() const;
  /// Without the port, as inet_pton reads it.
  [[nodiscard]] std::string host() const;
  /// With the port: "10.0.0.3:4711", "[fd00::3]:4711".
  [[nodiscard]] std::string text() const;
};

struct NetworkSettings {
  NetworkAddress own;  ///< of the interface, port 0; not set: this device joins ranks of one machine only
  int64_t peer_timeout_seconds = 30;  ///< 0: silence is no death

  /// The address of `interface`, which is a name or an address of this machine. Throws PLIANT_INVALID_ARGUMENT that
  /// lists those there are.
  static NetworkAddress resolve(const std::string& interface);
};

/// A view of the id's bytes.
struct NetworkId {
  uint32_t magic;
  int32_t world_size;
  uint64_t chunk_bytes;
  uint64_t secret[4];
  uint16_t family;  ///< AF_INET or AF_INET6
  uint16_t port;    ///< as in sockaddr_in
  uint32_t scope;   ///< of IPv6
  uint8_t host[16];
  uint32_t layout;  ///< kSegmentLayout of the maker: ranks write into each other's segments

  static bool is_one(const pliant_comm_id& id);
  /// Throws PLIANT_FAILED_PRECONDITION for an id of another layout, PLIANT_INVALID_ARGUMENT for another world size, and
  /// when `network` has no interface to join by, or one that cannot reach the address of the id.
  static NetworkId read(const pliant_comm_id& id, int32_t world_size, const NetworkSettings& network);
  /// The first word of the secret, which tells ids apart.
  static uint64_t nonce(const pliant_comm_id& id);
  /// Begins to listen on the interface and fills in `id`. Throws PLIANT_RESOURCE_EXHAUSTED.
  static UniqueFd reserve(int32_t world_size, uint64_t chunk_bytes, const NetworkSettings& network, pliant_comm_id& id);
  [[nodiscard]] NetworkAddress address() const;
  [[nodiscard]] bool admits(const uint64_t (&shown)[4]) const;
};
static_assert(sizeof(NetworkId) <= sizeof(pliant_comm_id));

}  // namespace pliant::accelerator
