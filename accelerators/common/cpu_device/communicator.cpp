// Keeps collectives in the order of their calls, whatever streams they are on.
#include "common/cpu_device/communicator.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <span>
#include <string>

#include "common/exchange/messages.hpp"
#include "common/gloo/transport_of.hpp"
#include "common/processes/this_process.hpp"

namespace pliant::accelerator {

namespace {

constexpr sdk::DType kNanoseconds = sdk::DType::kI64;

/// Of the larger of the two buffers of a rank.
uint64_t bytes_of(const Call& call, int32_t world_size) {
  const bool every_rank = call.kind == CallKind::kAllGather || call.kind == CallKind::kReduceScatter;
  if (call.kind == CallKind::kBarrier || call.kind == CallKind::kWindow) return 0;
  if (call.pieces != nullptr) return call.pieces->total() * sdk::size_of(call.elements.dtype);
  return call.elements.bytes() * (every_rank ? static_cast<uint64_t>(world_size) : 1);
}

}  // namespace

struct Communicator::Shared {
  Shared(const pliant_comm_id& id, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made,
         const NetworkSettings& network, std::shared_ptr<Faults> interference)
      : group(*transport_of(id, world_size, network), rank, world_size, std::move(made)),
        collectives(group),
        messages(group),
        faults(std::move(interference)) {
    if (faults) faults->joined(rank);
    if (faults && faults->keeps_time()) messages.keep_time(*faults);
  }

  /// All ranks tell each other when they could begin by the clock of a test double; the last one's time counts. Through
  /// the same memory as the call itself.
  void keep_time(const Call& call) {
    std::vector<uint64_t> ready(static_cast<size_t>(group.world_size()));
    const uint64_t own = std::max(faults->ready_ns(), messages.link_free_ns());
    collectives.run({.kind = CallKind::kAllGather, .send = &own, .recv = ready.data(), .elements = {1, kNanoseconds}});
    messages.take_link(
        faults->transferred(*std::max_element(ready.begin(), ready.end()), bytes_of(call, group.world_size())));
  }

  /// Only calls on several streams ever wait for each other.
  void wait_for_turn(uint64_t ticket) {
    struct Waiting {
      explicit Waiting(std::atomic<int32_t>& where) : count(where) { count.fetch_add(1); }
      ~Waiting() { count.fetch_sub(1); }
      std::atomic<int32_t>& count;
    } const waiting(waiting_for_turn);
    group.wait([&] { return turn.load() == ticket; });
  }

  /// Collectives first, then all messages.
  void run(std::span<const Call> calls, uint64_t ticket) {
    struct Done {
      ~Done() {
        shared.turn.store(number + 1);
        if (shared.waiting_for_turn.load() != 0) shared.group.wake();
      }
      Shared& shared;
      uint64_t number;
    } const done{*this, ticket};
    group.wait_ready(-1);
    if (turn.load() != ticket) wait_for_turn(ticket);
    if (faults && faults->loses(group.rank(), ticket + 1)) group.fail({FailureCause::kInjected, group.rank(), 0});
    const auto first_message = std::find_if(calls.begin(), calls.end(), [](const Call& c) { return c.is_message(); });
    for (auto call = calls.begin(); call != first_message; ++call) {
      if (faults && faults->keeps_time()) keep_time(*call);
      collectives.run(*call);
    }
    if (first_message != calls.end()) messages.run({first_message, calls.end()});
  }

  Group group;
  Collectives collectives;
  Messages messages;
  const std::shared_ptr<Faults> faults;
  std::mutex calling;                ///< tickets follow the order on the streams
  std::atomic<uint64_t> tickets{0};  ///< calls so far
  std::atomic<uint64_t> turn{0};     ///< the call that may run; all before are finished
  std::atomic<int32_t> waiting_for_turn{0};
};

Communicator::Communicator(const pliant_comm_id& id, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made,
                           const NetworkSettings& network, std::shared_ptr<Faults> faults)
    : shared_(std::make_shared<Shared>(id, rank, world_size, std::move(made), network, std::move(faults))),
      owner_(this_process()) {}

Communicator::~Communicator() {
  if (this_process() != owner_) {
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

int32_t Communicator::rank() const {
  return shared_->group.rank();
}

void Communicator::wait_ready(int32_t timeout_ms) {
  require_own(owner_, "communicator");
  shared_->group.wait_ready(timeout_ms);
}

void Communicator::abort() {
  if (this_process() != owner_) return;
  shared_->group.abort();
}

void Communicator::enqueue(Call call, Stream& stream) {
  require_own(owner_, "communicator");
  if (group_.keep(call, stream)) return;
  require_other_peer(call.is_message() && call.rank == rank(), rank());
  in_turn(stream, [kept = std::move(call)](Shared& shared, uint64_t ticket) { shared.run({&kept, 1}, ticket); });
}

void Communicator::begin_group() {
  group_.begin();
}

void Communicator::end_group() {
  CallGroup<Call, Stream>::Kept ended = group_.end();
  if (ended.calls.empty()) return;
  const auto own = [&](CallKind kind) {
    return std::count_if(ended.calls.begin(), ended.calls.end(),
                         [&](const Call& call) { return call.kind == kind && call.rank == rank(); });
  };
  require_pairs(rank(), own(CallKind::kSend), own(CallKind::kRecv));
  std::stable_partition(ended.calls.begin(), ended.calls.end(), [](const Call& call) { return !call.is_message(); });
  in_turn(*ended.stream,
          [kept = std::move(ended.calls)](Shared& shared, uint64_t ticket) { shared.run(kept, ticket); });
}

template <class Run>
void Communicator::in_turn(Stream& stream, Run run) {
  const std::lock_guard lock(shared_->calling);
  const uint64_t ticket = shared_->tickets.load();
  stream.enqueue([shared = shared_, run = std::move(run), ticket] { run(*shared, ticket); },
                 {.kind = WorkKind::kCollective});
  shared_->tickets.store(ticket + 1);
}

}  // namespace pliant::accelerator
