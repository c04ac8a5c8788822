// The calls of NCCL: what each is to the other ranks, and how it is made.
#include <numeric>
#include <utility>

#include "communicator.hpp"

namespace pliant::cuda {

using accelerator::CallKind;

namespace {

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

}  // namespace

void Communicator::all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream) {
  enqueue({{CallKind::kAllReduce, elements.dtype, op, 0, elements.count},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.all_reduce(send, recv, elements.count, type_of(elements.dtype), op_of(op), comm, handle);
           }},
          stream);
}

void Communicator::all_gather(const void* send, void* recv, sdk::Elements elements, Stream& stream) {
  enqueue({{CallKind::kAllGather, elements.dtype, sdk::ReduceOp::kSum, 0, elements.count},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.all_gather(send, recv, elements.count, type_of(elements.dtype), comm, handle);
           }},
          stream);
}

void Communicator::reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                                  Stream& stream) {
  enqueue({{CallKind::kReduceScatter, elements.dtype, op, 0, elements.count},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.reduce_scatter(send, recv, elements.count, type_of(elements.dtype), op_of(op), comm, handle);
           }},
          stream);
}

void Communicator::broadcast(void* buffer, sdk::Elements elements, int32_t root, Stream& stream) {
  enqueue({{CallKind::kBroadcast, elements.dtype, sdk::ReduceOp::kSum, root, elements.count},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.broadcast(buffer, buffer, elements.count, type_of(elements.dtype), root, comm, handle);
           }},
          stream);
}

void Communicator::barrier(Stream& stream) {
  void* word = member_->word();
  enqueue({{},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.all_reduce(word, word, 1, type_of(sdk::DType::kI32), 0, comm, handle);
           }},
          stream);
}

void Communicator::all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype,
                                Stream& stream) {
  const uint64_t width = size_of(dtype);
  const uint64_t all = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  enqueue({{CallKind::kAllGatherV, dtype, sdk::ReduceOp::kSum, accelerator::digest(counts), all},
           [=, own = rank(), of_rank = std::vector<uint64_t>(counts.begin(), counts.end())](
               const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             // NCCL knows broadcasts in a group, one of each rank, as a gathering of uneven parts.
             NcclResult first = nccl.group_start();
             auto* to = static_cast<std::byte*>(recv);
             for (size_t r = 0; r < of_rank.size(); ++r) {
               if (of_rank[r] == 0) continue;
               const void* from = static_cast<int32_t>(r) == own ? send : to;
               const NcclResult result =
                   nccl.broadcast(from, to, of_rank[r], type_of(dtype), static_cast<int>(r), comm, handle);
               if (first == kNcclSuccess && result != kNcclInProgress) first = result;
               to += of_rank[r] * width;
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
  call.note = {CallKind::kWindow, sdk::DType::kU8, sdk::ReduceOp::kSum, 0, bytes};
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
  enqueue({{CallKind::kSend, elements.dtype, sdk::ReduceOp::kSum, peer, elements.count},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.send(buffer, elements.count, type_of(elements.dtype), peer, comm, handle);
           },
           peer == rank() ? 1 : 0,
           0},
          stream);
}

void Communicator::recv(void* buffer, sdk::Elements elements, int32_t peer, Stream& stream) {
  enqueue({{CallKind::kRecv, elements.dtype, sdk::ReduceOp::kSum, peer, elements.count},
           [=](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             return nccl.recv(buffer, elements.count, type_of(elements.dtype), peer, comm, handle);
           },
           0,
           peer == rank() ? 1 : 0},
          stream);
}

}  // namespace pliant::cuda
