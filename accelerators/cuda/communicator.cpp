// Puts calls of NCCL onto streams.
#include "communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "result.hpp"

namespace pliant::cuda {
namespace {

using sdk::Failure;

/// All as one: NCCL joins what lies between the two into one piece of work.
NcclResult go_all(const NcclApi& nccl, const std::vector<NcclCall>& calls, NcclComm comm, cudaStream_t stream) {
  if (calls.size() == 1) return calls.front().go(nccl, comm, stream);
  NcclResult first = nccl.group_start();
  for (const NcclCall& call : calls) {
    const NcclResult result = call.go(nccl, comm, stream);
    if (first == kNcclSuccess && result != kNcclInProgress) first = result;
  }
  const NcclResult ended = nccl.group_end();
  return first == kNcclSuccess ? ended : first;
}

/// One turn at NCCL. Ends when it goes.
class TurnAtNccl {
 public:
  explicit TurnAtNccl(std::shared_ptr<Membership> member) : member_(std::move(member)) {}
  ~TurnAtNccl() { member_->end_turn(); }
  TurnAtNccl(const TurnAtNccl&) = delete;
  TurnAtNccl& operator=(const TurnAtNccl&) = delete;

 private:
  const std::shared_ptr<Membership> member_;
};

}  // namespace

Communicator::Communicator(const NcclApi& nccl, const DevicePtr& device, accelerator::ProcessWatch& watch,
                           const pliant_comm_id& id, int32_t rank, int32_t world_size)
    : owner_(::getpid()) {
  NcclId with{};
  std::memcpy(with.bytes, id.bytes, sizeof(with.bytes));
  const auto make = [init = nccl.init, with, rank, world_size](NcclComm* made, NcclConfig* config) {
    return init(made, world_size, with, rank, config);
  };
  member_ = std::make_shared<Membership>(nccl, device, watch, make, rank, world_size);
}

Communicator::Communicator(Communicator& old, std::span<const int32_t> without) : owner_(::getpid()) {
  const std::shared_ptr<Membership> before = old.member_;
  before->fail({PLIANT_ABORTED, "the communicator of rank " + std::to_string(old.rank()) + " has shrunk to another"},
               accelerator::FailureCause::kAborted);
  const auto lower =
      std::count_if(without.begin(), without.end(), [&](int32_t leaving) { return leaving < old.rank(); });
  const auto make = [before, leaving = std::vector<int>(without.begin(), without.end())](
                        NcclComm* made, NcclConfig* config) { return before->shrink(leaving, made, config); };
  member_ = std::make_shared<Membership>(before->nccl(), before->device(), before->watch(), make,
                                         old.rank() - static_cast<int32_t>(lower),
                                         old.world_size() - static_cast<int32_t>(without.size()));
}

Communicator::Communicator(const NcclApi& nccl, const DevicePtr& device, accelerator::ProcessWatch& watch,
                           Communicator* old, const pliant_comm_id& id, int32_t rank, int32_t world_size)
    : owner_(::getpid()) {
  NcclId with{};
  std::memcpy(with.bytes, id.bytes, sizeof(with.bytes));
  if (old == nullptr) {
    const auto make = [grow = nccl.grow, with, rank, world_size](NcclComm* made, NcclConfig* config) {
      return grow(nullptr, world_size, &with, rank, made, config);
    };
    member_ = std::make_shared<Membership>(nccl, device, watch, make, rank, world_size);
    return;
  }
  const std::shared_ptr<Membership> before = old->member_;
  before->retire();
  const auto make = [before, with, world_size](NcclComm* made, NcclConfig* config) {
    return before->grow(world_size, with, made, config);
  };
  member_ = std::make_shared<Membership>(nccl, before->device(), watch, make, rank, world_size);
}

Communicator::~Communicator() {
  if (::getpid() != owner_) {
    // In a forked child its thread is not there: nothing may be touched.
    static_cast<void>(new (std::nothrow) std::shared_ptr<Membership>(std::move(member_)));
    return;
  }
  member_->leave();
}

void Communicator::wait_ready(int32_t timeout_ms) {
  member_->wait_ready(timeout_ms);
}

pliant_comm_id Communicator::make_grow_id() {
  const NcclId made = member_->make_grow_id();
  pliant_comm_id id{};
  std::memcpy(id.bytes, made.bytes, sizeof(id.bytes));
  return id;
}

void Communicator::abort() {
  member_->fail({PLIANT_ABORTED, "the communicator of rank " + std::to_string(rank()) + " was aborted"},
                accelerator::FailureCause::kAborted);
}

bool Communicator::query() {
  return member_->is_done();
}

void Communicator::enqueue(NcclCall call, Stream& stream) {
  if (group_.keep(call, stream)) return;
  accelerator::require_other_peer(call.self_sends + call.self_receives != 0, rank());
  std::vector<NcclCall> calls;
  calls.push_back(std::move(call));
  enqueue_all(std::move(calls), stream);
}

void Communicator::begin_group() {
  group_.begin();
}

void Communicator::end_group() {
  CallGroup::Kept ended = group_.end();
  if (ended.calls.empty()) return;
  int32_t sends = 0;
  int32_t receives = 0;
  for (const NcclCall& call : ended.calls) {
    sends += call.self_sends;
    receives += call.self_receives;
  }
  accelerator::require_pairs(rank(), sends, receives);
  std::stable_partition(ended.calls.begin(), ended.calls.end(),
                        [](const NcclCall& call) { return !call.is_message(); });
  enqueue_all(std::move(ended.calls), *ended.stream);
}

void Communicator::enqueue_all(std::vector<NcclCall> calls, Stream& stream) {
  const std::lock_guard lock(calling_);
  Stream::Turn turn(stream);
  const uint64_t ticket = member_->take_ticket();
  const bool direct = turn.is_direct() && member_->is_due(ticket);
  const auto failures = stream.failures();
  const auto events = stream.events();
  struct Job {
    std::vector<NcclCall> calls;
    std::vector<CallNote> notes;
    std::unique_ptr<TurnAtNccl> turn;
  };
  auto job = std::make_shared<Job>();
  job->notes.reserve(calls.size());
  for (const NcclCall& call : calls) job->notes.push_back(call.note);
  job->calls = std::move(calls);
  job->turn = std::make_unique<TurnAtNccl>(member_);

  const auto finish = [member = member_, job, failures, events](cudaStream_t handle, uint64_t number) {
    auto mark = std::make_shared<Mark>(events, false);
    mark->submit(handle);
    member->add(failures, number, std::move(mark));
    for (const NcclCall& call : job->calls) {
      if (call.then) call.then();
    }
    job->turn.reset();
  };
  const auto issue = [member = member_, job](cudaStream_t handle) {
    return member->issue(job->notes, [&](NcclComm comm) { return go_all(member->nccl(), job->calls, comm, handle); });
  };
  /// A failure is the stream's, and the communicator's.
  const auto told = [member = member_, failures, job](uint64_t number, const auto& work) {
    try {
      work();
    } catch (const Failure& failure) {
      failures->put(failure, number);
      member->fail(failure);
      job->turn.reset();
    }
  };
  const uint64_t number = turn.number() + 1;
  const auto settle_later = [=, member = member_](const Api&, cudaStream_t handle) {
    told(number, [&] {
      member->settle();
      finish(handle, number);
    });
  };
  if (!direct) {
    turn.on_thread([=, member = member_](const Api& api, cudaStream_t handle) {
      told(number, [&] {
        member->await_turn(ticket);
        if (issue(handle)) return settle_later(api, handle);
        finish(handle, number);
      });
    });
    return;
  }
  bool settles = false;
  turn.on_device([&](const Api&, cudaStream_t handle) {
    told(number, [&] {
      member_->await_turn(ticket);  // its turn it is: throws what has failed
      settles = issue(handle);
      if (!settles) finish(handle, number);
    });
  });
  if (settles) turn.on_thread(settle_later);
}

}  // namespace pliant::cuda
