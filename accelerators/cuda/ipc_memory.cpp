// Handles of CUDA, and whether what they name is still there: CUDA itself leaves undefined what an opened handle of
// freed memory shows.
#include "ipc_memory.hpp"

#include <unistd.h>

#include <cstring>
#include <string>

#include "result.hpp"

namespace pliant::cuda {

using sdk::Failure;

namespace {

void close_handle(const DeviceEntry& device, void* pointer) {
  if (::getpid() != device.owner) return;
  const OnDevice here(device.api, device.index);
  if (device.api.cudaIpcCloseMemHandle(pointer) != cudaSuccess) static_cast<void>(device.api.cudaGetLastError());
}

Failure gone(pid_t pid) {
  return {PLIANT_FAILED_PRECONDITION, "process " + std::to_string(pid) +
                                          " has freed the memory of this handle, or has ended; export current memory"};
}

}  // namespace

IpcMemory::~IpcMemory() {
  for (const auto& [at, one] : imported_) close_handle(*one.device, at.second);
  while (!exported_.empty()) retire(exported_.begin()->first);
}

pliant_ipc_handle IpcMemory::export_memory(const DeviceEntry& device, void* pointer) {
  const std::lock_guard lock(mutex_);
  auto found = exported_.find(pointer);
  if (found == exported_.end()) {
    const OnDevice here(device.api, device.index);
    Exported made{SharedPage(), {}, ::getpid()};
    check(device.api, device.api.cudaIpcGetMemHandle(&made.handle, pointer), "cudaIpcGetMemHandle");
    found = exported_.emplace(pointer, std::move(made)).first;
  }
  const Exported& one = found->second;
  HandleLabel label = HandleLabel::of(one.page.nonce());
  static_assert(sizeof(label.native) == sizeof(one.handle));
  std::memcpy(label.native, &one.handle, sizeof(label.native));
  return label.pack(one.page);
}

void IpcMemory::retire(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = exported_.find(pointer);
  if (found == exported_.end()) return;
  if (found->second.owner == ::getpid()) found->second.page.words().is_gone = 1;  // a fork has no say
  exported_.erase(found);
}

void* IpcMemory::import_memory(const DevicePtr& device, const pliant_ipc_handle& handle) {
  const HandleLabel label = HandleLabel::unpack(handle);
  const SharedPage page(handle.descriptor, label.own_nonce());
  if (page.words().is_gone != 0 || !accelerator::is_running(label.owner())) throw gone(label.owner().pid);
  const std::lock_guard lock(mutex_);
  for (auto& [at, one] : imported_) {
    if (one.nonce != label.own_nonce() || at.first != device->index) continue;
    ++one.count;
    return at.second;
  }
  cudaIpcMemHandle_t native;
  std::memcpy(&native, label.native, sizeof(native));
  void* at = nullptr;
  {
    const OnDevice here(device->api, device->index);
    const cudaError_t opened = device->api.cudaIpcOpenMemHandle(&at, native, cudaIpcMemLazyEnablePeerAccess);
    const bool went = opened != cudaSuccess && page.words().is_gone != 0;
    if (went) static_cast<void>(device->api.cudaGetLastError());
    if (went) throw gone(label.owner().pid);
    check(device->api, opened, "cudaIpcOpenMemHandle");
  }
  imported_.emplace(std::pair(device->index, at), Imported{device, label.own_nonce(), 1});
  return at;
}

void IpcMemory::release_memory(int32_t device, void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = imported_.find({device, pointer});
  if (found == imported_.end() || --found->second.count != 0) return;
  close_handle(*found->second.device, pointer);
  imported_.erase(found);
}

}  // namespace pliant::cuda
