// Decides where work runs, and cuts what must be staged into pieces.
#include "work.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/devices/stream_lane.hpp"
#include "copies.hpp"
#include "result.hpp"

namespace pliant::cuda {
namespace {

using Copies = std::vector<pliant_copy>;

using StreamLane = devices::StreamLane<CudaMemory, Stream, submit_copies>;

/// Between the device and plain memory, which CUDA reads or writes when it is asked to, not in stream order: so it is
/// asked when all work before has run.
void copy_pageable(Stream::Turn& turn, const Copies& copies) {
  for (const pliant_copy& one : copies) {
    turn.on_host([](bool) {});
    turn.on_thread([one](const Api& api, cudaStream_t stream) {
      check(api, api.cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
      check(api, api.cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    });
  }
}

}  // namespace

void enqueue_copies(const CudaMemory& memory, std::span<const pliant_copy> copies, Stream& stream) {
  Copies on_device;
  Copies on_host;
  Copies mixed;
  for (const pliant_copy& one : copies) {
    if (one.bytes == 0) continue;
    const devices::Reach to = memory.reach_of(stream.device(), one.to, one.bytes, "the target");
    const devices::Reach from = memory.reach_of(stream.device(), one.from, one.bytes, "the source");
    if (to.host && from.host) {
      on_host.push_back(one);  // CUDA would copy them before it returns
    } else {
      (to.device && from.device ? on_device : mixed).push_back(one);
    }
  }
  StreamLane lane(memory, stream);
  if (!on_device.empty()) lane.copy_on_device(std::move(on_device));
  devices::copy_on_host(lane, std::move(on_host));
  copy_pageable(lane.turn(), mixed);
}

void enqueue_fill(const CudaMemory& memory, void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  const devices::Reach reach = memory.reach_of(stream.device(), to, bytes, "the target");
  StreamLane lane(memory, stream);
  if (!reach.host) {
    lane.turn().on_device([=](const Api& api, cudaStream_t handle) {
      check(api, api.cudaMemsetAsync(to, byte, bytes, handle), "cudaMemsetAsync");
    });
  } else {
    lane.on_host([=](bool broken) {
      if (!broken) std::memset(to, byte, bytes);
    });
  }
}

void enqueue_reduce(const CudaMemory& memory, KernelLibrary* kernels, void* to, std::span<const void* const> from,
                    sdk::Elements elements, sdk::ReduceOp op, double scale, Stream& stream) {
  devices::enqueue_reduce<StreamLane>(memory, kernels, to, from, elements, op, scale, stream);
}

void enqueue_digest(const CudaMemory& memory, KernelLibrary* kernels, uint64_t* to, const void* from, uint64_t blocks,
                    Stream& stream) {
  devices::enqueue_digest<StreamLane>(memory, kernels, to, from, blocks, stream);
}

void enqueue_adamw(const CudaMemory& memory, KernelLibrary* kernels, const pliant_adamw_update& update,
                   const sdk::AdamWArrays& arrays, Stream& stream) {
  devices::enqueue_adamw<StreamLane>(memory, kernels, update, arrays, stream);
}

void enqueue_norms(const CudaMemory& memory, KernelLibrary* kernels, double* to, const float* from, uint64_t count,
                   Stream& stream) {
  devices::enqueue_norms<StreamLane>(memory, kernels, to, from, count, stream);
}

void enqueue_cast(const CudaMemory& memory, KernelLibrary* kernels, void* to, sdk::DType to_type, const void* from,
                  sdk::Elements elements, Stream& stream) {
  devices::enqueue_cast<StreamLane>(memory, kernels, to, to_type, from, elements, stream);
}

}  // namespace pliant::cuda
