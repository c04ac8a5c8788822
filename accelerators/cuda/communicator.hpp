// Communicator: collectives of NCCL in the order of the calls, whatever streams they are on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "common/exchange/call_group.hpp"
#include "membership.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/pieces.hpp"

namespace pliant::cuda {

/// One call of NCCL, with all that it needs.
struct NcclCall {
  CallNote note;
  std::function<NcclResult(const NcclApi& nccl, NcclComm comm, cudaStream_t stream)> go;
  int32_t self_sends = 0;           ///< 1: a message to this rank itself
  int32_t self_receives = 0;        ///< 1: a message from it
  std::function<void()> then = {};  ///< when NCCL is through with it, before it has run
  [[nodiscard]] bool is_message() const {
    return note.kind == accelerator::CallKind::kSend || note.kind == accelerator::CallKind::kRecv;
  }
};

class Communicator {
 public:
  /// `watch` outlives it.
  Communicator(const NcclApi& nccl, const DevicePtr& device, accelerator::ProcessWatch& watch, const pliant_comm_id& id,
               int32_t rank, int32_t world_size);
  /// Begins to make one of `old`, which ends, without some of its ranks.
  Communicator(Communicator& old, std::span<const int32_t> without);
  /// Begins to make one of more ranks: of `old`, which takes no more calls, or for a rank that joins where that is
  /// NULL.
  Communicator(const NcclApi& nccl, const DevicePtr& device, accelerator::ProcessWatch& watch, Communicator* old,
               const pliant_comm_id& id, int32_t rank, int32_t world_size);
  /// Aborts what is still running here and leaves.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int32_t rank() const { return member_->rank(); }
  [[nodiscard]] int32_t world_size() const { return member_->world_size(); }
  void wait_ready(int32_t timeout_ms);
  void abort();
  /// All have joined, and what was enqueued here has ended.
  [[nodiscard]] bool query();
  [[nodiscard]] pliant_comm_id make_grow_id();

  void all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream);
  void all_gather(const void* send, void* recv, sdk::Elements elements, Stream& stream);
  void reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, Stream& stream);
  void broadcast(void* buffer, sdk::Elements elements, int32_t root, Stream& stream);
  void barrier(Stream& stream);
  void all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype, Stream& stream);
  void send(const void* buffer, sdk::Elements elements, int32_t peer, Stream& stream);
  void recv(void* buffer, sdk::Elements elements, int32_t peer, Stream& stream);
  void gather_pieces(const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype, Stream& stream);
  void scatter_pieces(const void* send, void* recv, sdk::PieceTable pieces, std::span<const uint8_t> adds,
                      sdk::DType dtype, Stream& stream);
  /// `on_none`: NCCL has taken the memory and makes no window between these devices.
  void register_window(void* pointer, uint64_t bytes, std::function<void()> on_none, Stream& stream);
  void begin_group();
  void end_group();

 private:
  using CallGroup = accelerator::CallGroup<NcclCall, Stream>;
  void enqueue(NcclCall call, Stream& stream);
  void enqueue_all(std::vector<NcclCall> calls, Stream& stream);

  std::shared_ptr<Membership> member_;  // enqueued work outlives the handle
  std::mutex calling_;                  ///< tickets follow the order on the streams
  CallGroup group_;
  const pid_t owner_;
};

}  // namespace pliant::cuda
