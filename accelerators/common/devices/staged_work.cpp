// Cuts what must be staged into pieces: fetched by the device, worked on by the CPU, stored by the device.
#include "common/devices/staged_work.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "common/cpu/arithmetic.hpp"

namespace pliant::devices {
namespace {

using Copies = std::vector<pliant_copy>;

/// An operand itself where the CPU reaches it, else a piece of it in staging memory.
template <class Byte>
class Operand {
 public:
  using Pointer = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;

  Operand(const Lane& lane, Pointer pointer, uint64_t bytes, const char* what)
      : own_(static_cast<Byte*>(pointer)), staged_(bytes != 0 && !lane.reach_of(pointer, bytes, what).host) {}
  [[nodiscard]] bool is_staged() const { return staged_; }
  void set_slot(std::byte* slot) { slot_ = slot; }
  [[nodiscard]] std::byte* slot() const { return slot_; }
  [[nodiscard]] Byte* own(uint64_t offset) const { return own_ + offset; }
  /// Where the CPU finds what lies `offset` bytes in.
  [[nodiscard]] Byte* on_host(uint64_t offset) const { return staged_ ? slot_ : own(offset); }

 private:
  Byte* own_;
  bool staged_;
  std::byte* slot_ = nullptr;
};
using Source = Operand<const std::byte>;
using Target = Operand<std::byte>;

/// Gives each staged operand its slot. How many elements of at most `element_bytes` fit into one: all, where none is
/// staged.
uint64_t share_staging(Lane& lane, std::vector<Source>& sources, Target& target, uint64_t element_bytes,
                       uint64_t count) {
  uint64_t staged = target.is_staged() ? 1 : 0;
  for (const Source& one : sources) staged += one.is_staged() ? 1 : 0;
  if (staged == 0) return count;
  const uint64_t slot_bytes = lane.staging_bytes() / staged / 64 * 64;
  std::byte* slot = lane.staging();
  if (target.is_staged()) target.set_slot(std::exchange(slot, slot + slot_bytes));
  for (Source& one : sources) {
    if (one.is_staged()) one.set_slot(std::exchange(slot, slot + slot_bytes));
  }
  return slot_bytes / element_bytes;
}

void fetch_staged(Lane& lane, const std::vector<Source>& sources, uint64_t offset, uint64_t bytes) {
  Copies copies;
  for (const Source& one : sources) {
    if (one.is_staged()) copies.push_back({one.slot(), one.own(offset), bytes});
  }
  if (!copies.empty()) lane.copy_on_device(std::move(copies));
}

void store_staged(Lane& lane, const Target& target, uint64_t offset, uint64_t bytes) {
  if (target.is_staged()) lane.copy_on_device({{target.own(offset), target.slot(), bytes}});
}

}  // namespace

void copy_on_host(Lane& lane, Copies copies) {
  if (copies.empty()) return;
  lane.on_host([all = std::move(copies)](bool broken) {
    if (broken) return;
    for (const pliant_copy& one : all) std::memcpy(one.to, one.from, one.bytes);
  });
}

void reduce(Lane& lane, void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op,
            double scale) {
  std::vector<Source> sources;
  for (const void* one : from) sources.emplace_back(lane, one, elements.bytes(), "a source");
  Target target(lane, to, elements.bytes(), "the target");
  const uint64_t size = size_of(elements.dtype);
  const uint64_t piece = share_staging(lane, sources, target, size, elements.count);
  for (uint64_t begin = 0; begin < elements.count; begin += piece) {
    const uint64_t count = std::min(piece, elements.count - begin);
    fetch_staged(lane, sources, begin * size, count * size);
    std::vector<const void*> inputs;
    for (const Source& one : sources) inputs.push_back(one.on_host(begin * size));
    std::byte* out = target.on_host(begin * size);
    lane.on_host([=, all = std::move(inputs)](bool broken) {
      if (!broken) accelerator::reduce(elements.dtype, op, all, scale, count, out, nullptr);
    });
    store_staged(lane, target, begin * size, count * size);
  }
}

void cast(Lane& lane, void* to, sdk::DType to_type, const void* from, sdk::Elements elements) {
  const uint64_t from_size = size_of(elements.dtype);
  const uint64_t to_size = size_of(to_type);
  std::vector<Source> source{Source(lane, from, elements.bytes(), "the source")};
  Target target(lane, to, elements.count * to_size, "the target");
  const uint64_t piece = share_staging(lane, source, target, std::max(from_size, to_size), elements.count);
  for (uint64_t begin = 0; begin < elements.count; begin += piece) {
    const uint64_t count = std::min(piece, elements.count - begin);
    fetch_staged(lane, source, begin * from_size, count * from_size);
    const std::byte* in = source.front().on_host(begin * from_size);
    std::byte* out = target.on_host(begin * to_size);
    lane.on_host([=](bool broken) {
      if (!broken) accelerator::cast(elements.dtype, in, to_type, out, count);
    });
    store_staged(lane, target, begin * to_size, count * to_size);
  }
}

}  // namespace pliant::devices
