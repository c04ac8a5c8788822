// NcclApi: the functions of NCCL, found at run time. Declared here, so that the plugin builds without NCCL's header.
#pragma once

#include <cuda_runtime_api.h>

#include <climits>
#include <cstddef>
#include <string>

namespace pliant::cuda {

using NcclComm = struct NcclCommHandle*;
struct NcclId {
  char bytes[128];
};
using NcclWindow = struct NcclWindowHandle*;
/// NCCL's config as of 2.28. For an older library it ends where that of 2.18 did; `size` and `version` tell.
struct NcclConfig {
  size_t size = 0;
  unsigned magic = 0xcafebeef;
  unsigned version = 0;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
  int traffic_class = INT_MIN;
  const char* comm_name = nullptr;
  int collnet_enable = INT_MIN;
  int cta_policy = INT_MIN;
  int shrink_share = INT_MIN;
  int nvls_ctas = INT_MIN;
  int channels_per_net_peer = INT_MIN;
  int nvlink_centric_sched = INT_MIN;
};
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclUnhandledCudaError = 1,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7
};

struct NcclApi {
  static constexpr int kOldest = 21800;
  /// The oldest with NCCL_CTA_POLICY_ZERO.
  static constexpr int kZeroCta = 22800;

  NcclResult (*get_version)(int*) = nullptr;
  const char* (*error_string)(NcclResult) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;
  NcclResult (*unique_id)(NcclId*) = nullptr;
  NcclResult (*init)(NcclComm*, int, NcclId, int, NcclConfig*) = nullptr;
  NcclResult (*async_error)(NcclComm, NcclResult*) = nullptr;
  NcclResult (*finalize)(NcclComm) = nullptr;
  NcclResult (*destroy)(NcclComm) = nullptr;
  NcclResult (*abort)(NcclComm) = nullptr;
  NcclResult (*all_reduce)(const void*, void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*all_gather)(const void*, void*, size_t, int, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*reduce_scatter)(const void*, void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*broadcast)(const void*, void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*send)(const void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  NcclResult (*recv)(void*, size_t, int, int, NcclComm, cudaStream_t) = nullptr;
  /// Both NULL before NCCL 2.28: a communicator that failed is then of no more use.
  NcclResult (*revoke)(NcclComm, int) = nullptr;
  NcclResult (*shrink)(NcclComm, int*, int, NcclComm*, NcclConfig*, int) = nullptr;
  /// Both NULL before NCCL 2.29. Of the old ranks the one that made the id passes it, the others NULL; all of them pass
  /// rank -1.
  NcclResult (*grow_id)(NcclComm, NcclId*) = nullptr;
  NcclResult (*grow)(NcclComm, int, const NcclId*, int, NcclComm*, NcclConfig*) = nullptr;
  /// All NULL before NCCL 2.27.
  NcclResult (*mem_alloc)(void**, size_t) = nullptr;
  NcclResult (*mem_free)(void*) = nullptr;
  NcclResult (*window_register)(NcclComm, void*, size_t, NcclWindow*, int) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;
  int version = 0;

  /// Opens the library, for good: NCCL has threads and does not survive being closed. "" or why it cannot be used.
  std::string open(const std::string& file);
  /// Not blocking, and collectives of windows go by copy engines where that is known; NCCL_CTA_POLICY in the
  /// environment is stronger.
  [[nodiscard]] NcclConfig config() const;
};

}  // namespace pliant::cuda
