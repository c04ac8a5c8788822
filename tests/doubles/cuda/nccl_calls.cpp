// Calls of the software NCCL: sends, receives and collectives, one by one or in groups.
#include <atomic>
#include <map>
#include <utility>

#include "nccl_rank.hpp"

namespace {

using namespace pliant;
using namespace pliant::cuda;
using accelerator::Call;
using accelerator::CallKind;
using soft_nccl::of;
using soft_nccl::Operation;

std::atomic<int64_t> copy_engine_gathers{0};

thread_local int group_depth = 0;
thread_local std::map<NcclComm, Operation> grouped;

sdk::DType type_of(int type) {
  switch (type) {
    case 2:
      return sdk::DType::kI32;
    case 4:
      return sdk::DType::kI64;
    case 6:
      return sdk::DType::kF16;
    case 7:
      return sdk::DType::kF32;
    case 8:
      return sdk::DType::kF64;
    case 9:
      return sdk::DType::kBF16;
    default:
      return sdk::DType::kU8;
  }
}
sdk::ReduceOp op_of(int op) {
  return op == 0 ? sdk::ReduceOp::kSum : op == 2 ? sdk::ReduceOp::kMax : sdk::ReduceOp::kMin;
}

uint64_t ranks_of(NcclComm comm) {
  const auto rank = of(comm);
  return rank ? static_cast<uint64_t>(rank->world_size()) : 0;
}

NcclResult flush(NcclComm comm, Operation operation) {
  const auto rank = of(comm);
  return rank ? rank->enqueue(std::move(operation)) : kNcclInvalidArgument;
}

/// `send_bytes` and `recv_bytes` are those of the buffers.
NcclResult add(NcclComm comm, cudaStream_t stream, Call call, uint64_t send_bytes, uint64_t recv_bytes) {
  Operation one;
  Operation& operation = group_depth > 0 ? grouped[comm] : one;
  operation.stream = stream;
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  const bool takes_all = call.kind == CallKind::kReduceScatter;
  if (!call.is_message()) {  // of which ranks have different ones
    const int64_t offset = rank->window_offset(takes_all ? call.send : call.recv);
    if (offset >= 0 && call.kind == CallKind::kAllGather && rank->uses_copy_engines()) ++copy_engine_gathers;
    operation.offsets.push_back(offset);
  }
  for (const bool sends : {true, false}) {
    const void* pointer = sends ? call.send : call.recv;
    if (pointer == nullptr) continue;
    soft_cuda_range range;
    if (soft_cuda_reach(pointer, sends ? send_bytes : recv_bytes, range) != cudaSuccess) return kNcclInvalidArgument;
    if (sends) {
      call.send = range.inside;
    } else {
      call.recv = range.inside;
    }
    operation.uses.push_back(std::move(range));
  }
  operation.calls.push_back(std::move(call));
  return group_depth > 0 ? kNcclSuccess : flush(comm, std::move(one));
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

/// All-gathers that went by copy engines, of all ranks of this process, ever: asked by tests.
int64_t pliant_soft_nccl_copy_engine_gathers() {
  return copy_engine_gathers;
}

NcclResult ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, NcclComm comm,
                         cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream,
             {.kind = CallKind::kAllReduce, .send = send, .recv = recv, .elements = elements, .op = op_of(op)},
             elements.bytes(), elements.bytes());
}
NcclResult ncclAllGather(const void* send, void* recv, size_t count, int type, NcclComm comm, cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream, {.kind = CallKind::kAllGather, .send = send, .recv = recv, .elements = elements},
             elements.bytes(), elements.bytes() * ranks_of(comm));
}
NcclResult ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, NcclComm comm,
                         cudaStream_t stream) {
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  const sdk::Elements elements{count, type_of(type)};
  const void* from = rank->rank() == root ? send : nullptr;
  return add(comm, stream,
             {.kind = CallKind::kBroadcast, .send = from, .recv = recv, .elements = elements, .rank = root},
             elements.bytes(), elements.bytes());
}
NcclResult ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, NcclComm comm,
                             cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream,
             {.kind = CallKind::kReduceScatter, .send = send, .recv = recv, .elements = elements, .op = op_of(op)},
             elements.bytes() * ranks_of(comm), elements.bytes());
}
NcclResult ncclSend(const void* buffer, size_t count, int type, int peer, NcclComm comm, cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream, {.kind = CallKind::kSend, .send = buffer, .elements = elements, .rank = peer},
             elements.bytes(), 0);
}
NcclResult ncclRecv(void* buffer, size_t count, int type, int peer, NcclComm comm, cudaStream_t stream) {
  const sdk::Elements elements{count, type_of(type)};
  return add(comm, stream, {.kind = CallKind::kRecv, .recv = buffer, .elements = elements, .rank = peer}, 0,
             elements.bytes());
}
NcclResult ncclGroupStart() {
  ++group_depth;
  return kNcclSuccess;
}
NcclResult ncclGroupEnd() {
  if (group_depth == 0) return kNcclInvalidUsage;
  if (--group_depth > 0) return kNcclSuccess;
  NcclResult result = kNcclSuccess;
  std::map<NcclComm, Operation> ended;
  std::swap(ended, grouped);
  for (auto& [comm, operation] : ended) {
    const NcclResult one = flush(comm, std::move(operation));
    if (result == kNcclSuccess || (result == kNcclInProgress && one != kNcclSuccess)) result = one;
  }
  return result;
}

#pragma GCC visibility pop
}  // extern "C"
