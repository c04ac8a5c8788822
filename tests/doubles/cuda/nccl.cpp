// The software NCCL: a TEST DOUBLE of libnccl.so.2 on the software CUDA runtime. Ranks are threads or processes of this
// machine; what they exchange goes through the library of the accelerator `host`. Here: communicators that are made,
// asked and ended.
#include <sys/random.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "nccl_rank.hpp"

namespace {

using namespace pliant;
using namespace pliant::cuda;
using soft_nccl::of;
using soft_nccl::setting;

std::mutex handles_mutex;
std::map<NcclComm, std::shared_ptr<NcclCommHandle>>& handles() {
  static auto* const kAll = new std::map<NcclComm, std::shared_ptr<NcclCommHandle>>;
  return *kAll;
}
std::shared_ptr<NcclCommHandle> take(NcclComm comm) {
  const std::lock_guard lock(handles_mutex);
  const auto found = handles().find(comm);
  if (found == handles().end()) return nullptr;
  auto taken = found->second;
  handles().erase(found);
  return taken;
}

std::atomic<int64_t> renewals{0};

}  // namespace

namespace soft_nccl {

std::shared_ptr<NcclCommHandle> of(NcclComm comm) {
  const std::lock_guard lock(handles_mutex);
  const auto found = handles().find(comm);
  return found == handles().end() ? nullptr : found->second;
}

}  // namespace soft_nccl

extern "C" {
#pragma GCC visibility push(default)

/// Ranks that have made a communicator of an older one, ever: asked by tests.
int64_t pliant_soft_nccl_renewals() {
  return renewals;
}

NcclResult ncclGetVersion(int* version) {
  *version = static_cast<int>(setting("PLIANT_SOFT_NCCL_VERSION", 22809));
  return kNcclSuccess;
}
const char* ncclGetErrorString(NcclResult result) {
  return result == kNcclRemoteError ? "remote process exited or there was a network error" : "an error";
}
const char* ncclGetLastError(NcclComm comm) {
  const auto rank = of(comm);
  thread_local std::string words;
  words = rank ? rank->last_error() : "";
  return words.c_str();
}
NcclResult ncclGetUniqueId(NcclId* id) {
  *id = {};
  return ::getrandom(id->bytes, sizeof(uint64_t), 0) == sizeof(uint64_t) ? kNcclSuccess : kNcclSystemError;
}
NcclResult ncclCommInitRankConfig(NcclComm* out, int ranks, NcclId id, int rank, NcclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kNcclInvalidArgument;
  const bool has_policy = config->size > offsetof(NcclConfig, cta_policy);
  if (static_cast<int64_t>(config->version) > setting("PLIANT_SOFT_NCCL_VERSION", 22809)) return kNcclInvalidArgument;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return kNcclUnhandledCudaError;
  const auto made = std::make_shared<NcclCommHandle>(id, rank, ranks, device, has_policy ? config->cta_policy : 0);
  const std::lock_guard lock(handles_mutex);
  handles().emplace(made.get(), made);
  *out = made.get();
  return kNcclInProgress;
}
NcclResult ncclCommGetAsyncError(NcclComm comm, NcclResult* result) {
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  *result = rank->state();
  return kNcclSuccess;
}
NcclResult ncclCommFinalize(NcclComm comm) {
  return of(comm) ? kNcclSuccess : kNcclInvalidArgument;
}
NcclResult ncclCommDestroy(NcclComm comm) {
  const auto rank = take(comm);
  if (!rank) return kNcclInvalidArgument;
  rank->leave();
  return kNcclSuccess;
}
NcclResult ncclCommAbort(NcclComm comm) {
  const auto rank = take(comm);
  if (!rank) return kNcclInvalidArgument;
  rank->end();
  return kNcclSuccess;
}

#ifndef PLIANT_SOFT_NCCL_WITHOUT_SHRINK
NcclResult ncclCommRevoke(NcclComm comm, int flags) {
  const auto rank = of(comm);
  if (!rank || flags != 0) return kNcclInvalidArgument;
  rank->revoke();
  return kNcclSuccess;
}
NcclResult ncclCommShrink(NcclComm comm, int* without, int count, NcclComm* out, NcclConfig* config, int) {
  const auto rank = of(comm);
  if (!rank) return kNcclInvalidArgument;
  ++renewals;
  int lower = 0;
  for (int i = 0; i < count; ++i) lower += without[i] < rank->rank() ? 1 : 0;
  return ncclCommInitRankConfig(out, rank->world_size() - count, rank->id_without(without, count), rank->rank() - lower,
                                config);
}
#endif

#ifndef PLIANT_SOFT_NCCL_WITHOUT_GROW
NcclResult ncclCommGetUniqueId(NcclComm comm, NcclId* id) {
  const auto rank = of(comm);
  if (!rank || !rank->is_quiet()) return kNcclInvalidUsage;
  *id = rank->id_grown();
  return kNcclSuccess;
}
NcclResult ncclCommGrow(NcclComm comm, int ranks, const NcclId* id, int rank, NcclComm* out, NcclConfig* config) {
  if (comm == nullptr) {
    if (id == nullptr || rank < 0) return kNcclInvalidArgument;
    return ncclCommInitRankConfig(out, ranks, *id, rank, config);
  }
  const auto old = of(comm);
  if (!old || rank != -1 || ranks <= old->world_size()) return kNcclInvalidArgument;
  const NcclId grown = old->id_grown();
  if (id != nullptr && std::memcmp(id->bytes, grown.bytes, sizeof(grown.bytes)) != 0) return kNcclInvalidArgument;
  if (!old->is_quiet()) return kNcclInvalidUsage;
  ++renewals;
  return ncclCommInitRankConfig(out, ranks, grown, old->rank(), config);
}
#endif

#pragma GCC visibility pop
}  // extern "C"
