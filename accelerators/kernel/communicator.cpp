// Keeps collectives in the order of their calls, whatever streams they are on.
#include "kernel/communicator.hpp"

#include <unistd.h>

#include <atomic>
#include <mutex>
#include <new>

namespace pliant::accelerator {

struct Communicator::Shared {
  Shared(const pliant_comm_id& id, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made,
         std::shared_ptr<Faults> interference)
      : group(id, rank, world_size, std::move(made)), collectives(group), faults(std::move(interference)) {}

  void run(const Call& call, uint64_t ticket) {
    struct Done {
      ~Done() {
        shared.turn.store(number + 1);
        if (shared.tickets.load() > number + 1) shared.group.wake();
      }
      Shared& shared;
      uint64_t number;
    } const done{*this, ticket};
    group.wait_ready(-1);
    group.wait([&] { return turn.load() == ticket; });
    if (faults && faults->loses(group.rank(), ticket + 1)) group.fail({FailureCause::kInjected, group.rank(), 0});
    collectives.run(call);
  }

  Group group;
  Collectives collectives;
  const std::shared_ptr<Faults> faults;
  std::mutex calling;                ///< tickets follow the order on the streams
  std::atomic<uint64_t> tickets{0};  ///< calls so far
  std::atomic<uint64_t> turn{0};     ///< the call that may run; all before are finished
};

Communicator::Communicator(const pliant_comm_id& id, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made,
                           std::shared_ptr<Faults> faults)
    : shared_(std::make_shared<Shared>(id, rank, world_size, std::move(made), std::move(faults))), owner_(::getpid()) {}

Communicator::~Communicator() {
  if (::getpid() != owner_) {
    // In a forked child: the memory was not inherited and the rank is the parent's. Nothing may be touched.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Shared>(std::move(shared_)));
    return;
  }
  if (shared_->turn.load() < shared_->tickets.load())
    shared_->group.fail_here({FailureCause::kDestroyed, shared_->group.rank(), 0});
  shared_->group.leave();
}

int32_t Communicator::world_size() const {
  return shared_->group.world_size();
}

void Communicator::wait_ready(int32_t timeout_ms) {
  shared_->group.wait_ready(timeout_ms);
}

void Communicator::abort() {
  shared_->group.abort();
}

void Communicator::enqueue(const Call& call, Stream& stream) {
  const std::lock_guard lock(shared_->calling);
  const uint64_t ticket = shared_->tickets.load();
  stream.enqueue([shared = shared_, call, ticket] { shared->run(call, ticket); }, WorkKind::kCollective);
  shared_->tickets.store(ticket + 1);
}

}  // namespace pliant::accelerator
