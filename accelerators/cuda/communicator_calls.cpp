// The calls of NCCL: what each is to the other ranks, and how it is made.
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

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

/// Calls that NCCL takes as one piece of work.
class GroupOfCalls {
 public:
  explicit GroupOfCalls(const NcclApi& nccl) : nccl_(nccl), first_(nccl.group_start()) {}
  void note(NcclResult result) {
    if (first_ == kNcclSuccess && result != kNcclInProgress) first_ = result;
  }
  /// The first failure. To be called.
  [[nodiscard]] NcclResult end() {
    const NcclResult ended = nccl_.group_end();
    return first_ == kNcclSuccess ? ended : first_;
  }

 private:
  const NcclApi& nccl_;
  NcclResult first_;
};

/// NCCL knows broadcasts in a group, one of each rank, as a gathering of uneven parts. `own`: this rank.
NcclCall gathering(CallKind kind, const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype, int32_t own) {
  const CallNote note{kind, dtype, sdk::ReduceOp::kSum, accelerator::digest(pieces), pieces.total()};
  return {note, [=, all = std::move(pieces)](const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
            const uint64_t width = size_of(dtype);
            GroupOfCalls group(nccl);
            for (int32_t r = 0; r < all.world_size(); ++r) {
              for (const sdk::PieceTable::Piece& one : all.of(r)) {
                std::byte* const to = static_cast<std::byte*>(recv) + one.offset * width;
                const bool is_there = r != own || send == nullptr;
                const void* const from = is_there ? to : static_cast<const std::byte*>(send) + one.packed * width;
                group.note(nccl.broadcast(from, to, one.count, type_of(dtype), static_cast<int>(r), comm, handle));
              }
            }
            return group.end();
          }};
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
  enqueue(gathering(CallKind::kAllGatherV, send, recv, sdk::PieceTable::in_rank_order(counts), dtype, rank()), stream);
}

void Communicator::gather_pieces(const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype,
                                 Stream& stream) {
  enqueue(gathering(CallKind::kGatherPieces, send, recv, std::move(pieces), dtype, rank()), stream);
}

void Communicator::scatter_pieces(const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                                  sdk::DType dtype, Stream& stream) {
  const CallNote note{CallKind::kScatterPieces, dtype, sdk::ReduceOp::kSum, accelerator::digest(pieces, adds),
                      pieces.total()};
  enqueue({note,
           [=, own = rank(), all = std::move(pieces), of_rank = std::vector<uint8_t>(adds.begin(), adds.end())](
               const NcclApi& nccl, NcclComm comm, cudaStream_t handle) {
             const uint64_t width = size_of(dtype);
             GroupOfCalls group(nccl);
             for (int32_t r = 0; r < all.world_size(); ++r) {
               if (r == own) continue;
               if (of_rank[static_cast<size_t>(own)] != 0) {
                 for (const sdk::PieceTable::Piece& one : all.of(r)) {
                   group.note(nccl.send(static_cast<const std::byte*>(send) + one.offset * width, one.count,
                                        type_of(dtype), r, comm, handle));
                 }
               }
               if (of_rank[static_cast<size_t>(r)] != 0) {
                 const uint64_t room = sdk::place_among_others(r, own) * all.owned(own);
                 for (const sdk::PieceTable::Piece& one : all.of(own)) {
                   group.note(nccl.recv(static_cast<std::byte*>(recv) + (room + one.packed) * width, one.count,
                                        type_of(dtype), r, comm, handle));
                 }
               }
             }
             return group.end();
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
