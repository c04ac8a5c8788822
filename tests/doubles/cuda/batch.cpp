// Copies in batches, in the form of CUDA 13 or, in the library soft_cudart_12, of CUDA 12.8.
#include <cstring>
#include <utility>
#include <vector>

#include "soft.hpp"

using namespace soft_cuda;

namespace {

struct Move {
  void* to;
  const void* from;
  size_t bytes;
};

/// One command for all of them, the last one first: CUDA promises no order.
cudaError_t push_batch(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                       const cudaMemcpyAttributes* attributes, const size_t* attribute_at, size_t attribute_count,
                       cudaStream_t stream) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (const cudaError_t now = usable(); now != cudaSuccess) return told(now);
  if (!all.settings.has_batches) return told(cudaErrorNotSupported);
  if (count == 0 || attribute_count != 1 || attribute_at[0] != 0 || stream == nullptr ||
      attributes[0].srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    all.violation("a batch of copies without valid attributes");
    return told(cudaErrorInvalidValue);
  }
  Command command;
  std::vector<Move> moves;
  for (size_t i = 0; i < count; ++i) {
    AllocationPtr target;
    AllocationPtr source;
    const cudaError_t first = all.find_range(to[i], bytes[i], target);
    const cudaError_t second = all.find_range(from[i], bytes[i], source);
    if (first != cudaSuccess || second != cudaSuccess) return told(cudaErrorInvalidValue);
    if (!target || !source) {
      all.violation("this double copies no plain memory in batches");
      return told(cudaErrorInvalidValue);
    }
    moves.push_back({State::inside(target, to[i]), State::inside(source, from[i]), bytes[i]});
    command.uses.push_back(target);
    command.uses.push_back(source);
  }
  command.work = [moves = std::move(moves)] {
    for (auto one = moves.rbegin(); one != moves.rend(); ++one) std::memmove(one->to, one->from, one->bytes);
  };
  ++all.batches;
  return told(all.push(*reinterpret_cast<Stream*>(stream), std::move(command)));
}

}  // namespace

extern "C" {

#ifdef PLIANT_SOFT_CUDA_12
__attribute__((visibility("default"))) cudaError_t soft_batch_12(void** to, void** from, size_t* bytes, size_t count,
                                                                 cudaMemcpyAttributes* attributes, size_t* attribute_at,
                                                                 size_t attribute_count, size_t* failed,
                                                                 cudaStream_t stream) __asm__("cudaMemcpyBatchAsync");
cudaError_t soft_batch_12(void** to, void** from, size_t* bytes, size_t count, cudaMemcpyAttributes* attributes,
                          size_t* attribute_at, size_t attribute_count, size_t* failed, cudaStream_t stream) {
  *failed = SIZE_MAX;
  return push_batch(to, from, bytes, count, attributes, attribute_at, attribute_count, stream);
}
#else
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                                 cudaMemcpyAttributes* attributes, size_t* attribute_at, size_t attribute_count,
                                 cudaStream_t stream) {
  return push_batch(to, from, bytes, count, attributes, attribute_at, attribute_count, stream);
}
#endif

}  // extern "C"
