// Communicator: the group of ranks as a handle. Collectives are enqueued on streams and run in the order of the calls.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "common/cpu/faults.hpp"
#include "common/cpu/stream.hpp"
#include "common/exchange/call_group.hpp"
#include "common/exchange/collectives.hpp"
#include "common/gloo/network.hpp"

namespace pliant::accelerator {

class Communicator {
 public:
  /// Begins joining. `made`: see Group. Throws what transport_of and Group throw.
  Communicator(const pliant_comm_id& id, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made,
               const NetworkSettings& network, std::shared_ptr<Faults> faults);
  /// Aborts what is still running here and leaves.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int32_t world_size() const;
  [[nodiscard]] int32_t rank() const;
  void wait_ready(int32_t timeout_ms);
  void abort();
  /// In a group: kept for its end. Throws PLIANT_INVALID_ARGUMENT for a message to this rank itself outside a group,
  /// and in a group for another stream than that of its first call.
  void enqueue(Call call, Stream& stream);
  /// Throw PLIANT_FAILED_PRECONDITION when there is a group already, or none. end_group: also PLIANT_INVALID_ARGUMENT
  /// when this rank sends itself more or fewer messages than it receives; the group is over then and nothing enqueued.
  void begin_group();
  void end_group();

 private:
  struct Shared;
  /// Enqueues run(shared, ticket), which keeps its turn among the calls by `ticket`.
  template <class Run>
  void in_turn(Stream& stream, Run run);

  std::shared_ptr<Shared> shared_;  // enqueued work outlives the handle
  CallGroup<Call, Stream> group_;
  pid_t owner_;
};

}  // namespace pliant::accelerator
