// Decides where work runs, and cuts what must be staged into pieces.
#include "work.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/devices/stream_lane.hpp"
#include "result.hpp"

namespace pliant::level_zero {
namespace {

using Copies = std::vector<pliant_copy>;

const std::byte* at(const void* pointer, uint64_t offset) {
  return static_cast<const std::byte*>(pointer) + offset;
}
std::byte* at(void* pointer, uint64_t offset) {
  return static_cast<std::byte*>(pointer) + offset;
}

void submit_copies(const Api& api, std::span<const pliant_copy> copies, ze_command_list_handle_t list) {
  for (const pliant_copy& one : copies) {
    check(api.zeCommandListAppendMemoryCopy(list, one.to, one.from, one.bytes, nullptr, 0, nullptr),
          "zeCommandListAppendMemoryCopy");
  }
}

using StreamLane = devices::StreamLane<UsmMemory, Stream, submit_copies>;

/// One side is out of the CPU's reach, the other out of the device's.
void copy_staged(StreamLane& lane, const pliant_copy& copy, bool to_device) {
  std::byte* staging = lane.staging();
  const uint64_t piece = lane.staging_bytes();
  for (uint64_t offset = 0; offset < copy.bytes; offset += piece) {
    const uint64_t bytes = std::min(piece, copy.bytes - offset);
    const pliant_copy first{staging, at(copy.from, offset), bytes};
    const pliant_copy second{at(copy.to, offset), staging, bytes};
    if (to_device) {
      devices::copy_on_host(lane, {first});
      lane.copy_on_device({second});
    } else {
      lane.copy_on_device({first});
      devices::copy_on_host(lane, {second});
    }
  }
}

}  // namespace

void enqueue_copies(const UsmMemory& memory, std::span<const pliant_copy> copies, Stream& stream) {
  struct Staged {
    pliant_copy copy;
    bool to_device;
  };
  Copies on_device;
  Copies on_host;
  std::vector<Staged> staged;
  for (const pliant_copy& one : copies) {
    if (one.bytes == 0) continue;
    const devices::Reach to = memory.reach_of(stream.device(), one.to, one.bytes, "the target");
    const devices::Reach from = memory.reach_of(stream.device(), one.from, one.bytes, "the source");
    if (to.device && from.device) {
      on_device.push_back(one);
    } else if (to.host && from.host) {
      on_host.push_back(one);
    } else {
      staged.push_back({one, to.device});
    }
  }
  StreamLane lane(memory, stream);
  if (!on_device.empty()) lane.copy_on_device(std::move(on_device));
  devices::copy_on_host(lane, std::move(on_host));
  for (const Staged& one : staged) copy_staged(lane, one.copy, one.to_device);
}

void enqueue_fill(const UsmMemory& memory, void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  const devices::Reach reach = memory.reach_of(stream.device(), to, bytes, "the target");
  StreamLane lane(memory, stream);
  if (reach.device) {
    lane.turn().on_device([=](const Api& api, ze_command_list_handle_t list) {
      check(api.zeCommandListAppendMemoryFill(list, to, &byte, sizeof(byte), bytes, nullptr, 0, nullptr),
            "zeCommandListAppendMemoryFill");
    });
  } else {
    lane.on_host([=](bool broken) {
      if (!broken) std::memset(to, byte, bytes);
    });
  }
}

void enqueue_reduce(const UsmMemory& memory, KernelLibrary* kernels, void* to, std::span<const void* const> from,
                    sdk::Elements elements, sdk::ReduceOp op, double scale, Stream& stream) {
  devices::enqueue_reduce<StreamLane>(memory, kernels, to, from, elements, op, scale, stream);
}

void enqueue_digest(const UsmMemory& memory, KernelLibrary* kernels, uint64_t* to, const void* from, uint64_t blocks,
                    Stream& stream) {
  devices::enqueue_digest<StreamLane>(memory, kernels, to, from, blocks, stream);
}

void enqueue_adamw(const UsmMemory& memory, KernelLibrary* kernels, const pliant_adamw_update& update,
                   const sdk::AdamWArrays& arrays, Stream& stream) {
  devices::enqueue_adamw<StreamLane>(memory, kernels, update, arrays, stream);
}

void enqueue_norms(const UsmMemory& memory, KernelLibrary* kernels, double* to, const float* from, uint64_t count,
                   Stream& stream) {
  devices::enqueue_norms<StreamLane>(memory, kernels, to, from, count, stream);
}

void enqueue_cast(const UsmMemory& memory, KernelLibrary* kernels, void* to, sdk::DType to_type, const void* from,
                  sdk::Elements elements, Stream& stream) {
  devices::enqueue_cast<StreamLane>(memory, kernels, to, to_type, from, elements, stream);
}

}  // namespace pliant::level_zero
