// Opens NCCL and finds its functions.
#include "nccl_api.hpp"

#include <dlfcn.h>

namespace pliant::cuda {
namespace {

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

std::string NcclApi::open(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = ::dlerror();
    return "NCCL cannot be opened (" + std::string(why == nullptr ? file : why) +
           "); install it (libnccl2) or name its file in the option nccl";
  }
  std::string missing;
  const auto find = [&](auto& slot, const char* name) {
    slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(::dlsym(library, name));
    if (slot == nullptr) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  find(get_version, "ncclGetVersion");
  if (get_version != nullptr && get_version(&version) == kNcclSuccess && version < kOldest) {
    return file + " is NCCL " + nccl_version_text(version) + ", and at least " + nccl_version_text(kOldest) +
           " is needed; install a newer one";
  }
  find(error_string, "ncclGetErrorString");
  find(last_error, "ncclGetLastError");
  find(unique_id, "ncclGetUniqueId");
  find(init, "ncclCommInitRankConfig");
  find(async_error, "ncclCommGetAsyncError");
  find(finalize, "ncclCommFinalize");
  find(destroy, "ncclCommDestroy");
  find(abort, "ncclCommAbort");
  find(all_reduce, "ncclAllReduce");
  find(all_gather, "ncclAllGather");
  find(reduce_scatter, "ncclReduceScatter");
  find(broadcast, "ncclBroadcast");
  find(send, "ncclSend");
  find(recv, "ncclRecv");
  find(group_start, "ncclGroupStart");
  find(group_end, "ncclGroupEnd");
  if (!missing.empty()) return file + " is not a usable NCCL: it lacks " + missing;
  find(revoke, "ncclCommRevoke");
  find(shrink, "ncclCommShrink");
  if (revoke == nullptr || shrink == nullptr) {
    revoke = nullptr;
    shrink = nullptr;
  }
  find(grow_id, "ncclCommGetUniqueId");
  find(grow, "ncclCommGrow");
  if (grow_id == nullptr || grow == nullptr) {
    grow_id = nullptr;
    grow = nullptr;
  }
  find(mem_alloc, "ncclMemAlloc");
  find(mem_free, "ncclMemFree");
  find(window_register, "ncclCommWindowRegister");
  if (mem_alloc == nullptr || mem_free == nullptr || window_register == nullptr) {
    mem_alloc = nullptr;
    mem_free = nullptr;
    window_register = nullptr;
  }
  return "";
}

NcclConfig NcclApi::config() const {
  constexpr int kCtaPolicyZero = 2;
  NcclConfig made;
  const bool has_policy = version >= kZeroCta;
  made.size = has_policy ? sizeof(NcclConfig) : offsetof(NcclConfig, traffic_class);
  made.version = static_cast<unsigned>(has_policy ? kZeroCta : kOldest);
  if (has_policy) made.cta_policy = kCtaPolicyZero;
  return made;
}

}  // namespace pliant::cuda
