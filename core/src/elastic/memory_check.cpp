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
    if (is_readable(memory, bytes)) return {};
    return {"is memory that neither the accelerator nor this process has: it was freed, or the pointer is wrong",
            false};
  }
  Finding finding{{}, !is_on_device(info->kind)};
  const auto first = reinterpret_cast<uintptr_t>(memory);
  const auto base = reinterpret_cast<uintptr_t>(info->base);
  const bool in_range = base != 0 && first >= base && first - base < info->bytes;
  if (is_on_device(info->kind) && info->device >= 0 && info->device != device_) {
    finding.refusal = fmt::format("is memory of device {}, this rank computes on device {}", info->device, device_);
  } else if (in_range && bytes > info->bytes - (first - base)) {
    finding.refusal =
        fmt::format("leaves its allocation: {} bytes from byte {} of {}", bytes, first - base, info->bytes);
  }
  return finding;
}

}  // namespace pliant::elastic
