// What the software NCCL needs of the software CUDA runtime: work of its own on streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

/// A range of memory as the runtime itself sees it.
struct soft_cuda_range {
  void* inside = nullptr;
  std::shared_ptr<void> holder;
};

/// Refuses plain memory, and ranges that leave their allocation.
cudaError_t soft_cuda_reach(const void* pointer, uint64_t bytes, soft_cuda_range& out);
/// Runs `work` in stream order on the stream's thread.
cudaError_t soft_cuda_enqueue(cudaStream_t stream, std::vector<soft_cuda_range> uses, std::function<void()> work);
