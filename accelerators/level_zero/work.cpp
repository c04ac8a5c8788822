// Decides where work runs, and cuts what must be staged into pieces.
#include "work.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "pliant/sdk/arithmetic.hpp"
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

void copy_on_device(Stream::Turn& turn, Copies copies) {
  if (copies.empty()) return;
  turn.on_device([copies = std::move(copies)](const Api& api, ze_command_list_handle_t list) {
    for (const pliant_copy& one : copies) {
      check(api.zeCommandListAppendMemoryCopy(list, one.to, one.from, one.bytes, nullptr, 0, nullptr),
            "zeCommandListAppendMemoryCopy");
    }
  });
}

void copy_on_host(Stream::Turn& turn, Copies copies) {
  if (copies.empty()) return;
  turn.on_host([all = std::move(copies)](bool broken) {
    if (broken) return;
    for (const pliant_copy& one : all) std::memcpy(one.to, one.from, one.bytes);
  });
}

/// One side is out of the CPU's reach, the other out of the device's.
void copy_staged(Stream::Turn& turn, const pliant_copy& copy, bool to_device, uint64_t piece) {
  std::byte* staging = turn.staging();
  for (uint64_t offset = 0; offset < copy.bytes; offset += piece) {
    const uint64_t bytes = std::min(piece, copy.bytes - offset);
    const pliant_copy first{staging, at(copy.from, offset), bytes};
    const pliant_copy second{at(copy.to, offset), staging, bytes};
    if (to_device) {
      copy_on_host(turn, {first});
      copy_on_device(turn, {second});
    } else {
      copy_on_device(turn, {first});
      copy_on_host(turn, {second});
    }
  }
}

/// An operand of work that the CPU does: itself where the CPU reaches it, else a piece of it in staging memory.
class Operand {
 public:
  Operand(const UsmMemory& memory, const Stream& stream, const void* pointer, uint64_t bytes, const char* what)
      : pointer_(pointer), staged_(bytes != 0 && !memory.reach_of(stream.device(), pointer, bytes, what).host) {}
  [[nodiscard]] bool staged() const { return staged_; }
  void set_slot(std::byte* slot) { slot_ = slot; }
  /// Where the CPU finds what lies `offset` bytes in.
  [[nodiscard]] const std::byte* on_host(uint64_t offset) const { return staged_ ? slot_ : at(pointer_, offset); }
  [[nodiscard]] pliant_copy fetch(uint64_t offset, uint64_t bytes) const {
    return {slot_, at(pointer_, offset), bytes};
  }

 private:
  const void* pointer_;
  bool staged_;
  std::byte* slot_ = nullptr;
};

/// A target of such work.
class Target {
 public:
  Target(const UsmMemory& memory, const Stream& stream, void* pointer, uint64_t bytes)
      : pointer_(pointer),
        staged_(bytes != 0 && !memory.reach_of(stream.device(), pointer, bytes, "the target").host) {}
  [[nodiscard]] bool staged() const { return staged_; }
  void set_slot(std::byte* slot) { slot_ = slot; }
  [[nodiscard]] std::byte* on_host(uint64_t offset) const { return staged_ ? slot_ : at(pointer_, offset); }
  [[nodiscard]] pliant_copy store(uint64_t offset, uint64_t bytes) const {
    return {at(pointer_, offset), slot_, bytes};
  }

 private:
  void* pointer_;
  bool staged_;
  std::byte* slot_ = nullptr;
};

/// Gives each staged operand its slot; the elements of at most `element_bytes` that fit into one, all where none is
/// staged.
uint64_t share_staging(Stream::Turn& turn, const Stream& stream, std::vector<Operand>& sources, Target& target,
                       uint64_t element_bytes, uint64_t count) {
  uint64_t staged = target.staged() ? 1 : 0;
  for (const Operand& one : sources) staged += one.staged() ? 1 : 0;
  if (staged == 0) return count;
  const uint64_t slot_bytes = stream.staging_bytes() / staged / 64 * 64;
  std::byte* slot = turn.staging();
  if (target.staged()) target.set_slot(std::exchange(slot, slot + slot_bytes));
  for (Operand& one : sources) {
    if (one.staged()) one.set_slot(std::exchange(slot, slot + slot_bytes));
  }
  return slot_bytes / element_bytes;
}

void fetch_staged(Stream::Turn& turn, const std::vector<Operand>& sources, uint64_t offset, uint64_t bytes) {
  Copies copies;
  for (const Operand& one : sources) {
    if (one.staged()) copies.push_back(one.fetch(offset, bytes));
  }
  copy_on_device(turn, std::move(copies));
}

void store_staged(Stream::Turn& turn, const Target& target, uint64_t offset, uint64_t bytes) {
  if (!target.staged()) return;
  copy_on_device(turn, {target.store(offset, bytes)});
}

/// The device reaches every operand, and the CPU does not reach all.
bool on_device_alone(const UsmMemory& memory, const Stream& stream, void* to, uint64_t to_bytes,
                     std::span<const void* const> from, uint64_t from_bytes) {
  Reach all = memory.reach_of(stream.device(), to, to_bytes, "the target");
  for (const void* one : from) {
    const Reach reach = memory.reach_of(stream.device(), one, from_bytes, "a source");
    all.device = all.device && reach.device;
    all.host = all.host && reach.host;
  }
  return all.device && !all.host;
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
    const Reach to = memory.reach_of(stream.device(), one.to, one.bytes, "the target");
    const Reach from = memory.reach_of(stream.device(), one.from, one.bytes, "the source");
    if (to.device && from.device) {
      on_device.push_back(one);
    } else if (to.host && from.host) {
      on_host.push_back(one);
    } else {
      staged.push_back({one, to.device});
    }
  }
  Stream::Turn turn(stream);
  copy_on_device(turn, std::move(on_device));
  copy_on_host(turn, std::move(on_host));
  for (const Staged& one : staged) copy_staged(turn, one.copy, one.to_device, stream.staging_bytes());
}

void enqueue_fill(const UsmMemory& memory, void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
  if (bytes == 0) return;
  const Reach reach = memory.reach_of(stream.device(), to, bytes, "the target");
  Stream::Turn turn(stream);
  if (reach.device) {
    turn.on_device([=](const Api& api, ze_command_list_handle_t list) {
      check(api.zeCommandListAppendMemoryFill(list, to, &byte, sizeof(byte), bytes, nullptr, 0, nullptr),
            "zeCommandListAppendMemoryFill");
    });
  } else {
    turn.on_host([=](bool broken) {
      if (!broken) std::memset(to, byte, bytes);
    });
  }
}

void enqueue_reduce(const UsmMemory& memory, KernelLibrary* kernels, void* to, std::span<const void* const> from,
                    sdk::Elements elements, sdk::ReduceOp op, double scale, Stream& stream) {
  if (elements.count == 0) return;
  if (kernels != nullptr && on_device_alone(memory, stream, to, elements.bytes(), from, elements.bytes())) {
    return kernels->reduce(to, from, elements, op, scale, stream);
  }
  std::vector<Operand> sources;
  for (const void* one : from) sources.emplace_back(memory, stream, one, elements.bytes(), "a source");
  Target target(memory, stream, to, elements.bytes());
  const uint64_t size = size_of(elements.dtype);
  Stream::Turn turn(stream);
  const uint64_t piece = share_staging(turn, stream, sources, target, size, elements.count);
  for (uint64_t begin = 0; begin < elements.count; begin += piece) {
    const uint64_t count = std::min(piece, elements.count - begin);
    fetch_staged(turn, sources, begin * size, count * size);
    std::vector<const void*> inputs;
    for (const Operand& one : sources) inputs.push_back(one.on_host(begin * size));
    std::byte* out = target.on_host(begin * size);
    turn.on_host([=, all = std::move(inputs)](bool broken) {
      if (!broken) sdk::reduce(elements.dtype, op, all, scale, count, out, nullptr);
    });
    store_staged(turn, target, begin * size, count * size);
  }
}

void enqueue_cast(const UsmMemory& memory, KernelLibrary* kernels, void* to, sdk::DType to_type, const void* from,
                  sdk::Elements elements, Stream& stream) {
  if (elements.count == 0) return;
  const uint64_t from_size = size_of(elements.dtype);
  const uint64_t to_size = size_of(to_type);
  if (kernels != nullptr &&
      on_device_alone(memory, stream, to, elements.count * to_size, {&from, 1}, elements.bytes())) {
    return kernels->cast(to, to_type, from, elements, stream);
  }
  std::vector<Operand> source{Operand(memory, stream, from, elements.bytes(), "the source")};
  Target target(memory, stream, to, elements.count * to_size);
  Stream::Turn turn(stream);
  const uint64_t piece = share_staging(turn, stream, source, target, std::max(from_size, to_size), elements.count);
  for (uint64_t begin = 0; begin < elements.count; begin += piece) {
    const uint64_t count = std::min(piece, elements.count - begin);
    fetch_staged(turn, source, begin * from_size, count * from_size);
    const std::byte* in = source.front().on_host(begin * from_size);
    std::byte* out = target.on_host(begin * to_size);
    turn.on_host([=](bool broken) {
      if (!broken) sdk::cast(elements.dtype, in, to_type, out, count);
    });
    store_staged(turn, target, begin * to_size, count * to_size);
  }
}

}  // namespace pliant::level_zero
