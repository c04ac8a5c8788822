// ShardMemory: stamps are kept here and, for others, written behind the values.
#include "sharded/memory/shard_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "pliant/error.hpp"

namespace pliant::sharded {
namespace {

int32_t chunks_in(const std::vector<OwnedRun>& runs) {
  return runs.empty() ? 0 : runs.back().slot + runs.back().chunks.count;
}

}  // namespace

ShardArray::ShardArray(const ShardPlace& place, const FlatLayout& layout, std::vector<OwnedRun> runs)
    : place_(place),
      layout_(layout),
      runs_(std::move(runs)),
      value_bytes_(value_bytes(layout, chunks_in(runs_))),
      digests_(static_cast<size_t>(chunks_in(runs_))) {
  // Files may be read into it directly; memory that is passed on begins where its allocation does.
  memory_ = place_.can_pass
                ? Buffer(place_.accelerator, place_.device, value_bytes_ + stamp_bytes(), MemoryKind::kExchange)
                : Buffer(place_.accelerator, place_.device, value_bytes_, MemoryKind::kDevice, Buffer::kPageAlignment);
  if (place_.can_pass && !place_.is_here) {
    stage_ = Buffer(place_.accelerator, place_.device, stamp_bytes(), MemoryKind::kPinned);
    staged_.emplace(place_.accelerator, place_.device);
  }
  head_.elements = layout_.elements();
  head_.chunk_elements = layout_.chunk_elements();
  head_.chunks = digests_.size();
  write(true);
}

ShardArray::~ShardArray() {
  if (!staged_) return;
  try {
    staged_->synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the device is lost, and its memory with it
  }
}

void ShardArray::begin_change() {
  head_.step = kNoStep;
  if (!place_.can_pass) return;
  if (place_.is_here) return write_here(false);
  place_.stream.fill(stamp_at() + offsetof(StampHead, step), 0xFF, sizeof(head_.step));
  staged_->record(place_.stream);
}

void ShardArray::end_change(int64_t step) {
  head_.step = step;
  ++head_.changes;
  head_.is_digested = 0;
  write(false);
}

void ShardArray::end_change(int64_t step, data::ArrayDigests& taker, std::span<const OwnedRun> changed) {
  if (head_.is_digested == 0) return end_change(step);
  for (const OwnedRun& run : changed) {
    take_digests(taker, layout_, run.chunks, at_slot(run.slot),
                 std::span(digests_).subspan(static_cast<size_t>(run.slot), static_cast<size_t>(run.chunks.count)));
  }
  head_.step = step;
  ++head_.changes;
  write(true);
}

void ShardArray::move_on(int64_t step) {
  head_.step = step;
  write(false);
}

void ShardArray::know_digests(std::vector<uint64_t> known) {
  digests_ = std::move(known);
  head_.is_digested = 1;
  digested_step_ = head_.step;
  write(true);
}

const std::vector<uint64_t>& ShardArray::digests(data::ArrayDigests& taker) {
  if (head_.is_digested != 0) return digests_;
  for (const OwnedRun& run : runs_) {
    take_digests(taker, layout_, run.chunks, at_slot(run.slot),
                 std::span(digests_).subspan(static_cast<size_t>(run.slot), static_cast<size_t>(run.chunks.count)));
  }
  head_.is_digested = 1;
  digested_step_ = head_.step;
  write(true);
  return digests_;
}

std::vector<uint64_t> ShardArray::digests_of(data::ArrayDigests& taker, ChunkRange chunks, int32_t slot) const {
  std::vector<uint64_t> taken(static_cast<size_t>(chunks.count));
  if (head_.is_digested != 0) {
    std::copy_n(digests_.begin() + slot, chunks.count, taken.begin());
  } else {
    take_digests(taker, layout_, chunks, at_slot(slot), taken);
  }
  return taken;
}

std::optional<int32_t> ShardArray::first_other(data::ArrayDigests& taker, std::span<const OwnedRun> runs) const {
  if (head_.is_digested == 0) return std::nullopt;
  std::vector<uint64_t> taken;
  for (const OwnedRun& run : runs) {
    taken.resize(static_cast<size_t>(run.chunks.count));
    take_digests(taker, layout_, run.chunks, at_slot(run.slot), taken);
    const auto [now, then] = std::mismatch(taken.begin(), taken.end(), digests_.begin() + run.slot);
    if (now != taken.end()) return run.slot + static_cast<int32_t>(now - taken.begin());
  }
  return std::nullopt;
}

ChunkId ShardArray::chunk_at(int32_t slot) const {
  const auto after =
      std::find_if(runs_.rbegin(), runs_.rend(), [slot](const OwnedRun& run) { return run.slot <= slot; });
  return advanced(after->chunks.first, slot - after->slot);
}

detail::MemoryHandle ShardArray::handle() const {
  if (!place_.can_pass) {
    throw Error(Status::kUnimplemented,
                "other processes cannot map the shards of this one: the device has no memory for that");
  }
  return {place_.accelerator, place_.device, memory_.pointer()};
}

void ShardArray::write_entries(std::byte* to) const {
  for (const OwnedRun& run : runs_) {
    for (int32_t i = 0; i < run.chunks.count; ++i) {
      const size_t slot = static_cast<size_t>(run.slot) + static_cast<size_t>(i);
      const StampEntry entry{static_cast<int64_t>(advanced(run.chunks.first, i)), digests_[slot]};
      std::memcpy(to + slot * sizeof(StampEntry), &entry, sizeof(entry));
    }
  }
}

void ShardArray::write(bool entries) {
  head_.check = head_.seal();
  if (!place_.can_pass) return;
  if (place_.is_here) return write_here(entries);
  staged_->synchronize();  // what was staged before has gone
  auto* const stage = static_cast<std::byte*>(stage_.pointer());
  std::memcpy(stage, &head_, sizeof(head_));
  if (entries && !digests_.empty()) {
    write_entries(stage + sizeof(head_));
    place_.stream.copy(stamp_at() + sizeof(head_), stage + sizeof(head_), stamp_bytes() - sizeof(head_));
  }
  place_.stream.copy(stamp_at(), stage, sizeof(head_));
  staged_->record(place_.stream);
}

// The step goes first and comes last, whatever the compiler and the CPU would rather do.
void ShardArray::write_here(bool entries) {
  auto* const there = reinterpret_cast<StampHead*>(stamp_at());
  const std::atomic_ref<int64_t> step(there->step);
  step.exchange(kNoStep);  // what follows is not written before
  if (entries) write_entries(stamp_at() + sizeof(StampHead));
  StampHead without = head_;
  without.step = kNoStep;
  std::memcpy(there, &without, sizeof(without));
  step.store(head_.step);
}

ShardMemory::ShardMemory(const Accelerator& accelerator, int32_t device, Stream& stream, std::vector<std::string> names)
    : accelerator_(accelerator),
      place_{accelerator_, device, stream, accelerator.properties(device).host_visible,
             accelerator.properties(device).exchange_memory},
      names_(std::move(names)),
      taker_(accelerator, device, stream, place_.is_here) {}

void ShardMemory::make(const FlatLayout& layout, const Ownership& ownership, int32_t rank) {
  arrays_.clear();
  for (size_t i = 0; i < names_.size(); ++i) {
    arrays_.push_back(make_array(layout, ownership, rank));
    place_.stream.fill(arrays_.back()->values(), 0, arrays_.back()->bytes());
  }
  place_.stream.synchronize();
}

std::unique_ptr<ShardArray> ShardMemory::make_array(const FlatLayout& layout, const Ownership& ownership,
                                                    int32_t rank) const {
  return std::make_unique<ShardArray>(place_, layout, ownership.runs_of(rank));
}

int64_t ShardMemory::step() const {
  return arrays_.empty() || arrays_.front() == nullptr ? kNoStep : arrays_.front()->step();
}

void ShardMemory::begin_change() {
  for (const auto& array : arrays_) array->begin_change();
}

void ShardMemory::end_change(int64_t step) {
  for (const auto& array : arrays_) array->end_change(step);
}

void ShardMemory::move_on(int64_t step) {
  for (const auto& array : arrays_) array->move_on(step);
}

void ShardMemory::require_unchanged() {
  for (size_t i = 0; i < arrays_.size(); ++i) {
    if (const std::optional<int32_t> slot = arrays_[i]->first_other(taker_)) throw_changed(i, *slot);
  }
}

void ShardMemory::require_unchanged(size_t array, std::span<const OwnedRun> runs) {
  if (const std::optional<int32_t> slot = arrays_[array]->first_other(taker_, runs)) throw_changed(array, *slot);
}

void ShardMemory::throw_changed(size_t array, int32_t slot) const {
  throw Error(Status::kDataLoss, fmt::format("chunk {} of {} of this rank has changed since step {} began without an "
                                             "update: the program overwrote it, or memory of this machine is faulty",
                                             static_cast<int32_t>(arrays_[array]->chunk_at(slot)), names_[array],
                                             arrays_[array]->digested_step()));
}

std::vector<uint64_t> ShardMemory::digests() {
  std::vector<uint64_t> sums;
  for (const auto& array : arrays_) {
    const std::vector<uint64_t>& of_chunks = array->digests(taker_);
    sums.push_back(std::accumulate(of_chunks.begin(), of_chunks.end(), uint64_t{0}));
  }
  return sums;
}

}  // namespace pliant::sharded
