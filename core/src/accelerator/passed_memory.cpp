// Handles and mappings over the slots of pliant.ipc/0.
#include "accelerator/passed_memory.hpp"

#include <unistd.h>

#include <string>
#include <utility>

#include "accelerator/state.hpp"
#include "base/inside.hpp"

namespace pliant::detail {
namespace {

sdk::Calls<pliant_ipc> ipc_of(const Accelerator& accelerator) {
  const plugin::Instance& instance = inside(accelerator).instance;
  const auto* const table = or_throw(instance.extension<pliant_ipc>(PLIANT_IPC));
  if (table == nullptr) {
    throw Error(Status::kUnimplemented, "accelerator \"" + std::string(instance.plugin().record().name) +
                                            "\" cannot share memory between processes");
  }
  return {*table, instance.self()};
}

}  // namespace

MemoryHandle::MemoryHandle(const Accelerator& accelerator, int32_t device, const void* allocated) {
  raw_.descriptor = -1;
  const sdk::Calls<pliant_ipc> ipc = ipc_of(accelerator);
  inside(accelerator).told([&] { ipc.must(&pliant_ipc::export_memory, device, allocated, &raw_); });
}

MemoryHandle::~MemoryHandle() {
  if (raw_.descriptor >= 0) ::close(raw_.descriptor);
}

MemoryHandle::MemoryHandle(MemoryHandle&& other) noexcept : raw_(other.raw_) {
  other.raw_.descriptor = -1;
}

MemoryHandle& MemoryHandle::operator=(MemoryHandle&& other) noexcept {
  std::swap(raw_, other.raw_);
  return *this;
}

ImportedMemory::ImportedMemory(const Accelerator& accelerator, int32_t device, const pliant_ipc_handle& handle)
    : accelerator_(accelerator),
      memory_(inside(accelerator).told([&] { return sdk::ImportedMemory(ipc_of(accelerator), device, handle); })) {}

}  // namespace pliant::detail
