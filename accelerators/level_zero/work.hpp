// Work of a stream: what the device's queues can do goes there, the rest runs on the CPU in stream order, by way of
// pinned memory where the CPU cannot reach the operands.
#pragma once

#include <cstdint>
#include <span>

#include "kernel_library.hpp"
#include "memory.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/optimizer.hpp"
#include "stream.hpp"

namespace pliant::level_zero {

void enqueue_copies(const UsmMemory& memory, std::span<const pliant_copy> copies, Stream& stream);
void enqueue_fill(const UsmMemory& memory, void* to, uint8_t byte, uint64_t bytes, Stream& stream);
/// `kernels` is NULL where none can be launched.
void enqueue_reduce(const UsmMemory& memory, KernelLibrary* kernels, void* to, std::span<const void* const> from,
                    sdk::Elements elements, sdk::ReduceOp op, double scale, Stream& stream);
void enqueue_digest(const UsmMemory& memory, KernelLibrary* kernels, uint64_t* to, const void* from, uint64_t blocks,
                    Stream& stream);
void enqueue_adamw(const UsmMemory& memory, KernelLibrary* kernels, const pliant_adamw_update& update,
                   const sdk::AdamWArrays& arrays, Stream& stream);
void enqueue_norms(const UsmMemory& memory, KernelLibrary* kernels, double* to, const float* from, uint64_t count,
                   Stream& stream);
void enqueue_cast(const UsmMemory& memory, KernelLibrary* kernels, void* to, sdk::DType to_type, const void* from,
                  sdk::Elements elements, Stream& stream);

}  // namespace pliant::level_zero
