// What a rendezvous answers, held against pliant/abi/rendezvous.h. For hosts, which refuse what breaks it, and for
// tests of rendezvous.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "pliant/abi/rendezvous.h"

namespace pliant::sdk {

/// What is wrong with the answer to a join of `local_workers` after generation `last`, 0 for none; "" for nothing.
[[nodiscard]] inline std::string generation_fault(const pliant_generation& made, int64_t last, int32_t local_workers) {
  if (made.generation <= last) {
    return "the generation did not increase: " + std::to_string(made.generation) + " after " + std::to_string(last);
  }
  if (made.node_count < 1 || made.group_rank < 0 || made.group_rank >= made.node_count) {
    return "the group rank is outside the nodes: " + std::to_string(made.group_rank) + " of " +
           std::to_string(made.node_count);
  }
  if (made.first_rank < 0 || made.world_size < local_workers || made.first_rank > made.world_size - local_workers) {
    return "this node's workers do not fit into the world size: " + std::to_string(local_workers) +
           " workers, the first of them rank " + std::to_string(made.first_rank) + " of " +
           std::to_string(made.world_size);
  }
  if (made.node_count == 1 && made.world_size != local_workers) {
    return "the only node has " + std::to_string(local_workers) + " workers, but the world size is " +
           std::to_string(made.world_size);
  }
  if (made.master_port < 1 || made.master_port > 65535) {
    return "the master port is outside 1..65535: " + std::to_string(made.master_port);
  }
  if (made.master_addr[0] == '\0' || std::memchr(made.master_addr, '\0', sizeof(made.master_addr)) == nullptr) {
    return "the master address is empty or not terminated";
  }
  return {};
}

}  // namespace pliant::sdk
