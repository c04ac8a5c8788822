// Rendezvous: the agent's way to the other nodes of its job, over a rendezvous plugin.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "pliant/config.hpp"
#include "plugin/plugin.hpp"

namespace pliant {

/// One incarnation of the worker group, as this node sees it.
struct Generation {
  int64_t number = 0;      ///< 1, 2, ...; rises at every join
  int32_t group_rank = 0;  ///< of this node, 0 .. node_count - 1
  int32_t node_count = 1;
  int32_t first_rank = 0;  ///< rank of this node's first worker
  int32_t world_size = 0;  ///< workers over all nodes
  std::string master_addr;
  int32_t master_port = 0;  ///< free for the workers' own use when join returned
};

/// join and watch from one thread; leave from any.
class Rendezvous {
 public:
  /// `config` was opened with the need "rendezvous".
  static Result<Rendezvous> open(const Config& config);

  /// Forms the next generation. May block; leave() ends it with kAborted. kPlugin when the plugin breaks its contract.
  Result<Generation> join(std::string_view run_id, int32_t local_workers);
  /// Waits up to timeout_ms; true when other nodes came or went and a new join is due. leave() ends it with kAborted.
  Result<bool> watch(int32_t timeout_ms);
  void leave() noexcept;

 private:
  explicit Rendezvous(plugin::Instance instance) : instance_(std::move(instance)) {}
  plugin::Instance instance_;
  int64_t last_ = 0;
};

}  // namespace pliant
