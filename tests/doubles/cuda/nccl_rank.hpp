// NcclCommHandle: one rank of a communicator of the software NCCL, and how its entry points find it.
//
//   PLIANT_SOFT_NCCL_VERSION    22809
//   PLIANT_SOFT_NCCL_BUSY_POLLS how often a call that was begun is still in progress when it is asked for; 2
//   PLIANT_SOFT_NCCL_WINDOWS    0: memory is taken and no window made, as between devices that do not reach each other
//   PLIANT_SOFT_NCCL_DEAF       1: that a rank died or gave up is never noticed, as it may be within a machine
//   NCCL_MULTI_RANK_GPU_ENABLE  1: two ranks may share a device; else each of them fails, and the others wait
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../../../accelerators/cuda/nccl_api.hpp"
#include "common/cpu_device/communicator.hpp"
#include "enqueue.hpp"

namespace soft_nccl {

/// Of the environment.
int64_t setting(const char* name, int64_t otherwise);

/// What goes to a stream at once: a call, or a group of them.
struct Operation {
  std::vector<pliant::accelerator::Call> calls;
  std::vector<int64_t> offsets;  ///< in a window, of the buffer of each collective, which all ranks have; -1: in none
  std::vector<soft_cuda_range> uses;
  cudaStream_t stream = nullptr;
};

}  // namespace soft_nccl

namespace pliant::cuda {

/// One rank of a communicator.
struct NcclCommHandle : std::enable_shared_from_this<NcclCommHandle> {
  /// `cta_policy`: of the config.
  NcclCommHandle(const NcclId& id, int rank, int world_size, int device, int cta_policy)
      : id_(id), rank_(rank), world_size_(world_size), device_(device), cta_policy_(cta_policy), joiner_([this] {
          join();
        }) {}
  ~NcclCommHandle();
  NcclCommHandle(const NcclCommHandle&) = delete;
  NcclCommHandle& operator=(const NcclCommHandle&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world_size() const { return world_size_; }

  /// Ends all waits, and waits until nothing of this rank runs.
  void end();
  /// Ends all that runs; what is left may shrink.
  void revoke();
  /// The id of the communicator without some ranks; the same on all that stay.
  [[nodiscard]] NcclId id_without(const int* leaving, int count) const;
  /// The id of the next communicator that grows out of this one; the same on all its ranks.
  [[nodiscard]] NcclId id_grown() const;
  /// Nothing runs, and it was not ended.
  [[nodiscard]] bool is_quiet();
  /// All that was enqueued has run.
  void leave();

  NcclResult state();
  const char* last_error();
  NcclResult enqueue(soft_nccl::Operation operation);

  /// Begins to make a window, in the order of the calls; `out` is written when it is made.
  NcclResult register_window(const void* memory, uint64_t bytes, NcclWindow* out);
  /// Where in its window the buffer begins; -1: in none.
  [[nodiscard]] int64_t window_offset(const void* buffer);
  /// Collectives of windows go by copy engines.
  [[nodiscard]] bool uses_copy_engines() const { return cta_policy_ == 2; }

 private:
  void join();
  /// As NCCL, which lets only those ranks fail that share a device.
  void compare_devices();
  /// As a rank whose kernels write where its own buffer lies. Throws when another's lies elsewhere.
  void compare_offsets(const std::vector<int64_t>& offsets);
  /// Under the mutex.
  void note(const sdk::Failure& failure);
  /// On a stream's thread, in the order of the calls.
  void run(const soft_nccl::Operation& operation, uint64_t ticket);

  const NcclId id_;
  const int rank_;
  const int world_size_;
  const int device_;
  const int cta_policy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<accelerator::Communicator> communicator_;
  accelerator::Stream stream_{nullptr, 0};
  NcclResult error_ = kNcclSuccess;
  std::string words_;
  bool has_own_device_ = false;
  bool ended_ = false;
  bool revoked_ = false;
  int running_ = 0;
  int64_t busy_polls_ = 0;
  uint64_t tickets_ = 0;
  uint64_t turn_ = 0;
  struct Window {
    const std::byte* memory;
    uint64_t bytes;
  };
  std::vector<Window> windows_;
  int registering_ = 0;
  std::vector<std::thread> registrars_;
  std::thread joiner_;
};

}  // namespace pliant::cuda

namespace soft_nccl {

/// NULL when there is none, or none any more.
std::shared_ptr<pliant::cuda::NcclCommHandle> of(pliant::cuda::NcclComm comm);

}  // namespace soft_nccl
