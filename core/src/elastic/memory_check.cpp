// What is told of memory before it is used.
#include "elastic/memory_check.hpp"

#include <fmt/format.h>

#include "base/readable.hpp"

namespace pliant::elastic {
namespace {

/// The CPU reads it only where all of the device's memory is host_visible, and nobody asks then.
bool is_on_device(MemoryKind kind) {
  return kind == MemoryKind::kDevice || kind == MemoryKind::kExchange || kind == MemoryKind::kWindow;
}

}  // namespace

MemoryCheck::Finding MemoryCheck::look_at(const void* memory, uint64_t bytes) const {
  const std::optional<PointerInfo> info = accelerator_.pointer_info(memory);
  if (!info) {
    Finding finding{.refusal = {}, .is_known = false};
    if (!is_readable(memory, bytes)) {
      finding.refusal = "is memory of neither the accelerator nor this process: it was freed, or the pointer is wrong";
      finding.is_for_cpu = false;
    }
    return finding;
  }
  Finding finding{{}, !is_on_device(info->kind)};
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const auto base = reinterpret_cast<uintptr_t>(info->base);
  const bool in_range = base != 0 && first >= base && first - base < info->bytes;
  if (is_on_device(info->kind) && info->device >= 0 && info->device != device_) {
    finding.refusal = fmt::format("is memory of device {}, but this rank computes on device {}", info->device, device_);
  } else if (in_range && bytes > info->bytes - (first - base)) {
    finding.refusal =
        fmt::format("exceeds its allocation: {} bytes from byte {} of {}", bytes, first - base, info->bytes);
  }
  return finding;
}

MemoryCheck::Finding MemoryCheck::look_at_all(const void* memory, uint64_t bytes, MemoryMap& map) const {
  Finding finding = look_at(memory, bytes);
  if (!finding.refusal.empty() || finding.is_known) return finding;
  const auto refusal = map.refusal_of(memory, bytes, MemoryMap::Access::kReadWrite);
  if (!refusal) return finding;
  finding.refusal =
      refusal->is_readable
          ? fmt::format(
                "is read-only memory from byte {} of {} on; a worker that joins or restores a snapshot must write it",
                refusal->at, bytes)
          : fmt::format("is memory with a hole: this process cannot read byte {} of {}", refusal->at, bytes);
  finding.is_for_cpu = refusal->is_readable;
  return finding;
}

}  // namespace pliant::elastic
