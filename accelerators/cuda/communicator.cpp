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

/// ncclDataType_t and ncclRedOp_t.
int type_of(sdk::DType dtype) {
  switch (dtype) {
    case sdk::DType::kU8:
      return 1;
    case sdk::DType::kI32:
      return 2;
    case sdk::DType::kI64:
      return 4;
    case sdk::DType::kF16:
      return 6;
    case sdk::DType::kF32:
      return 7;
    case sdk::DType::kF64:
      return 8;
    case sdk::DType::kBF16:
      return 9;
  }
  return 1;
}
int op_of(sdk::ReduceOp op) {
  return op == sdk::ReduceOp::kSum ? 0 : op == sdk::ReduceOp::kMax ? 2 : 3;
}

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

Communicator::Communicator(const NcclApi& nccl, const DevicePtr& device, const pliant_comm_id& id, int32_t rank,
                           int32_t world_size)
    : owner_(::getpid()) {
  NcclId with{};
  std::memcpy(with.bytes, id.bytes, sizeof(with.bytes));
  const auto make = [init = nccl.init, with, rank, world_size](NcclComm* made, NcclConfig* config) {
    return init(made, world_size, with, rank, config);
  };
  member_ = std::make_shared<Membership>(nccl, device, make, rank, world_size);
}

Communicator::Communicator(Communicator& old, std::span<const int32_t> without) : owner_(::getpid()) {
  const std::shared_ptr<Membership> before = old.member_;
  before->fail({PLIANT_ABORTED, "the communicator of rank " + std::to_string(old.rank()) + " has shrunk to another"});
  const auto lower =
      std::count_if(without.begin(), without.end(), [&](int32_t leaving) { return leaving < old.rank(); });
  const auto make = [before, leaving = std::vector<int>(without.begin(), without.end())](
                        NcclComm* made, NcclConfig* config) { return before->shrink(leaving, made, config); };
  member_ =
      std::make_shared<Membership>(before->nccl(), before->device(), make, old.rank() - static_cast<int32_t>(lower),
                                   old.world_size() - static_cast<int32_t>(without.size()));
}

Communicator::Communicator(const NcclApi& nccl, const DevicePtr& device, Communicator* old, const pliant_comm_id& id,
                           int32_t rank, int32_t world_size)
    : owner_(::getpid()) {
  NcclId with{};
  std::memcpy(with.bytes, id.bytes, sizeof(with.bytes));
  if (old == nullptr) {
    const auto make = [grow = nccl.grow, with, rank, world_size](NcclComm* made, NcclConfig* config) {
      return grow(nullptr, world_size, &with, rank, made, config);
    };
    member_ = std::make_shared<Membership>(nccl, device, make, rank, world_size);
    return;
  }
  const std::shared_ptr<Membership> before = old->member_;
  before->retire();
  const auto make = [before, with, world_size](NcclComm* made, NcclConfig* config) {
    return before->grow(world_size, with, made, config);
  };
  member_ = std::make_shared<Membership>(nccl, before->device(), make, rank, world_size);
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
  member_->fail({PLIANT_ABORTED, "the communicator of rank " + std::to_string(rank()) + " was aborted"});
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
  std::stable_partition(ended.calls.begin(), ended.calls.end(), [](const NcclCall& call) { return !call.is_message; });
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
    std::unique_ptr<TurnAtNccl> turn;
  };
  auto job = std::make_shared<Job>();
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
    return member->issue([&](NcclComm comm) { return go_all(member->nccl(), job->calls, comm, handle); });
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

void Communicator::all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream) {
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            return nccl.all_reduce(send, recv, elements.count, type_of(elements.dtype), op_of(op), comm, handle);
          }},
          stream);
}

void Communicator::all_gather(const void* send, void* recv, sdk::Elements elements, Stream& stream) {
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            return nccl.all_gather(send, recv, elements.count, type_of(elements.dtype), comm, handle);
          }},
          stream);
}

void Communicator::reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                                  Stream& stream) {
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            return nccl.reduce_scatter(send, recv, elements.count, type_of(elements.dtype), op_of(op), comm, handle);
          }},
          stream);
}

void Communicator::broadcast(void* buffer, sdk::Elements elements, int32_t root, Stream& stream) {
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            return nccl.broadcast(buffer, buffer, elements.count, type_of(elements.dtype), root, comm, handle);
          }},
          stream);
}

void Communicator::barrier(Stream& stream) {
  void* word = member_->word();
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            return nccl.all_reduce(word, word, 1, type_of(sdk::DType::kI32), 0, comm, handle);
          }},
          stream);
}

void Communicator::all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype,
                                Stream& stream) {
  const uint64_t width = size_of(dtype);
  enqueue({[=, own = rank(), all = std::vector<uint64_t>(counts.begin(), counts.end())](
               const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            // NCCL knows broadcasts in a group, one of each rank, as a gathering of uneven parts.
            NcclResult first = nccl.group_start();
            auto* to = static_cast<std::byte*>(recv);
            for (size_t r = 0; r < all.size(); ++r) {
              if (all[r] == 0) continue;
              const void* from = static_cast<int32_t>(r) == own ? send : to;
              const NcclResult result =
                  nccl.broadcast(from, to, all[r], type_of(dtype), static_cast<int>(r), comm, handle);
              if (first == kNcclSuccess && result != kNcclInProgress) first = result;
              to += all[r] * width;
            }
            const NcclResult ended = nccl.group_end();
            return first == kNcclSuccess ? ended : first;
          }},
          stream);
}

void Communicator::register_window(void* pointer, uint64_t bytes, std::function<void()> on_none, Stream& stream) {
  constexpr int kSymmetric = 1;
  auto window = std::make_shared<NcclWindow>(nullptr);
  NcclCall call;
  call.go = [=](const NcclApi& nccl, NcclComm comm, cudaStream_t) {
    return nccl.window_register(comm, pointer, bytes, window.get(), kSymmetric);
  };
  call.then = [window, told = std::move(on_none)] {
    if (*window == nullptr) told();
  };
  member_->keep(window);  // NCCL itself ends the window with the communicator
  enqueue(std::move(call), stream);
}

void Communicator::send(const void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.send(buffer, elements.count, type_of(elements.dtype), peer, comm, handle);
           },
           peer == rank() ? 1 : 0, 0, true},
          stream);
}

void Communicator::recv(void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
  enqueue({[=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.recv(buffer, elements.count, type_of(elements.dtype), peer, comm, handle);
           },
           0, peer == rank() ? 1 : 0, true},
          stream);
}

}  // namespace pliant::cuda
