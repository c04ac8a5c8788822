// StreamLane: a stream's turn for work that the CPU does for its device. Reductions, casts, digests, updates and norms,
// by the device's own kernels or by the CPU.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "common/cpu/optimizer.hpp"
#include "common/devices/staged_work.hpp"

namespace pliant::devices {

/// `kSubmitCopies` is called with the driver's functions, the copies and the driver's queue.
template <class OfMemory, class OfStream, auto kSubmitCopies>
class StreamLane final : public Lane {
 public:
  using Memory = OfMemory;
  using Stream = OfStream;

  StreamLane(const Memory& memory, Stream& stream) : memory_(memory), stream_(stream), turn_(stream) {}

  [[nodiscard]] Reach reach_of(const void* pointer, uint64_t bytes, const char* what) const override {
    return memory_.reach_of(stream_.device(), pointer, bytes, what);
  }
  void copy_on_device(std::vector<pliant_copy> copies) override {
    turn_.on_device([copies = std::move(copies)](const auto& api, auto queue) { kSubmitCopies(api, copies, queue); });
  }
  void on_host(HostWork work) override { turn_.on_host(std::move(work)); }
  [[nodiscard]] std::byte* staging() override { return turn_.staging(); }
  [[nodiscard]] uint64_t staging_bytes() const override { return stream_.staging_bytes(); }

  [[nodiscard]] typename Stream::Turn& turn() { return turn_; }

 private:
  const Memory& memory_;
  Stream& stream_;
  typename Stream::Turn turn_;
};

/// The device reaches all operands, and the CPU does not: the device's own kernels are to do it.
template <class Memory, class Device>
[[nodiscard]] bool is_for_device(const Memory& memory, const Device& device, const void* to, uint64_t to_bytes,
                                 std::span<const void* const> from, uint64_t from_bytes) {
  Reach all = memory.reach_of(device, to, to_bytes, "the target");
  for (const void* one : from) {
    const Reach reach = memory.reach_of(device, one, from_bytes, "a source");
    all = {all.device && reach.device, all.host && reach.host};
  }
  return all.device && !all.host;
}

/// `kernels` is NULL where none can be launched.
template <class OwnLane, class Kernels>
void enqueue_reduce(const typename OwnLane::Memory& memory, Kernels* kernels, void* to,
                    std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
                    typename OwnLane::Stream& stream) {
  if (elements.count == 0) return;
  if (kernels != nullptr && is_for_device(memory, stream.device(), to, elements.bytes(), from, elements.bytes())) {
    return kernels->reduce(to, from, elements, op, scale, stream);
  }
  OwnLane lane(memory, stream);
  devices::reduce(lane, to, from, elements, op, scale);
}

/// `kernels` is NULL where none can be launched.
template <class OwnLane, class Kernels>
void enqueue_cast(const typename OwnLane::Memory& memory, Kernels* kernels, void* to, sdk::DType to_type,
                  const void* from, sdk::Elements elements, typename OwnLane::Stream& stream) {
  if (elements.count == 0) return;
  if (kernels != nullptr &&
      is_for_device(memory, stream.device(), to, elements.count * size_of(to_type), {&from, 1}, elements.bytes())) {
    return kernels->cast(to, to_type, from, elements, stream);
  }
  OwnLane lane(memory, stream);
  devices::cast(lane, to, to_type, from, elements);
}

/// `kernels` is NULL where none can be launched.
template <class OwnLane, class Kernels>
void enqueue_digest(const typename OwnLane::Memory& memory, Kernels* kernels, uint64_t* to, const void* from,
                    uint64_t blocks, typename OwnLane::Stream& stream) {
  if (blocks == 0) return;
  const Reach target = memory.reach_of(stream.device(), to, blocks * sizeof(uint64_t), "the target");
  const Reach source = memory.reach_of(stream.device(), from, blocks * sdk::kDigestBlockBytes, "the source");
  if (target.host && source.host) {
    OwnLane lane(memory, stream);
    return lane.on_host([=](bool broken) {
      if (!broken) sdk::digest_blocks(to, from, blocks);
    });
  }
  if (kernels == nullptr || !target.device || !source.device) {
    throw sdk::Failure(PLIANT_UNIMPLEMENTED,
                       "this device has no kernel for digests; copy the memory and compute them on the CPU");
  }
  kernels->digest_blocks(to, from, blocks, stream);
}

/// `kernels` is NULL where none can be launched.
template <class OwnLane, class Kernels>
void enqueue_adamw(const typename OwnLane::Memory& memory, Kernels* kernels, const pliant_adamw_update& update,
                   const sdk::AdamWArrays& arrays, typename OwnLane::Stream& stream) {
  if (arrays.count == 0) return;
  const uint64_t bytes = arrays.count * sizeof(float);
  Reach all{true, true};
  const auto reach = [&](const float* array, const char* what) {
    const Reach one = memory.reach_of(stream.device(), array, bytes, what);
    all = {all.device && one.device, all.host && one.host};
  };
  reach(arrays.weights, "the array of weights");
  reach(arrays.gradient, "the gradient");
  reach(arrays.first_moment, "the first moment");
  reach(arrays.second_moment, "the second moment");
  if (all.host) {
    OwnLane lane(memory, stream);
    return lane.on_host([=](bool broken) {
      if (!broken) accelerator::adamw(update, arrays);
    });
  }
  if (kernels == nullptr || !all.device) {
    throw sdk::Failure(PLIANT_UNIMPLEMENTED,
                       "this device has no kernel for AdamW updates; copy the arrays and update them on the CPU");
  }
  kernels->adamw(update, arrays, stream);
}

/// `kernels` is NULL where none can be launched.
template <class OwnLane, class Kernels>
void enqueue_norms(const typename OwnLane::Memory& memory, Kernels* kernels, double* to, const float* from,
                   uint64_t count, typename OwnLane::Stream& stream) {
  if (count == 0) return;
  const Reach target = memory.reach_of(stream.device(), to, sdk::norm_chunks(count) * sizeof(double), "the target");
  const Reach source = memory.reach_of(stream.device(), from, count * sizeof(float), "the source");
  if (target.host && source.host) {
    OwnLane lane(memory, stream);
    return lane.on_host([=](bool broken) {
      if (!broken) accelerator::squared_norms(to, from, count);
    });
  }
  if (kernels == nullptr || !target.device || !source.device) {
    throw sdk::Failure(PLIANT_UNIMPLEMENTED,
                       "this device has no kernel for squared norms; copy the elements and compute them on the CPU");
  }
  kernels->squared_norms(to, from, count, stream);
}

}  // namespace pliant::devices
