// Communicator: the group of ranks as a handle. Collectives are enqueued on streams and run in the order of the calls.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

#include "kernel/collectives.hpp"
#include "kernel/faults.hpp"
#include "kernel/stream.hpp"

namespace pliant::accelerator {

class Communicator {
 public:
  /// Begins joining. `made`: see Group. Throws what Group throws.
  Communicator(const pliant_comm_id& id, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made,
               std::shared_ptr<Faults> faults);
  /// Aborts what is still running here and leaves.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int32_t world_size() const;
  void wait_ready(int32_t timeout_ms);
  void abort();
  void enqueue(const Call& call, Stream& stream);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // enqueued work outlives the handle
  pid_t owner_;
};

}  // namespace pliant::accelerator
