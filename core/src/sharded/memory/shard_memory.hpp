// ShardMemory: the arrays of what a rank owns, weights and states of the optimizer, each with its stamp.
//
// The arrays lie in memory that another process can map, where the accelerator has such; the stamp lies behind the
// values then (shard_stamp.hpp), so that whoever maps an array sees whole values of one step or that they change.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/passed_memory.hpp"
#include "data/array_digests.hpp"
#include "pliant/accelerator.hpp"
#include "sharded/shards/ownership.hpp"
#include "sharded/shards/shard_stamp.hpp"

namespace pliant::sharded {

/// Where arrays lie and on what their stamps are written.
struct ShardPlace {
  const Accelerator& accelerator;
  int32_t device = 0;
  Stream& stream;         ///< what changes values is ordered by it
  bool is_here = false;   ///< the CPU reaches the device's memory
  bool can_pass = false;  ///< other processes can map it
};

/// One array: the values of the chunks that a rank owns, in ascending order.
class ShardArray {
 public:
  /// Values are anything, of no step. `place` outlives this.
  ShardArray(const ShardPlace& place, const FlatLayout& layout, std::vector<OwnedRun> runs);
  ~ShardArray();
  ShardArray(const ShardArray&) = delete;
  ShardArray& operator=(const ShardArray&) = delete;

  /// Of so many chunks: of the values, and with the stamp where there is one.
  [[nodiscard]] static uint64_t value_bytes(const FlatLayout& layout, int32_t chunks) {
    return static_cast<uint64_t>(chunks) * static_cast<uint64_t>(layout.chunk_elements()) * sizeof(float);
  }
  [[nodiscard]] static uint64_t most_bytes(const FlatLayout& layout, int32_t chunks) {
    return value_bytes(layout, chunks) + sizeof(StampHead) + static_cast<uint64_t>(chunks) * sizeof(StampEntry);
  }

  [[nodiscard]] float* values() const { return static_cast<float*>(memory_.pointer()); }
  /// Of the values.
  [[nodiscard]] uint64_t bytes() const { return value_bytes_; }
  /// Of the values and the stamp.
  [[nodiscard]] uint64_t bytes_taken() const { return memory_.bytes(); }
  /// kNoStep from begin_change to end_change, and at first.
  [[nodiscard]] int64_t step() const { return head_.step; }

  /// Before values change. Work on the stream of the place, from here on, may change them.
  void begin_change();
  /// All changes are made, or enqueued on that stream.
  void end_change(int64_t step);
  /// The same where nothing has changed but the chunks of `changed`, of this array, and their work has run: of these
  /// digests are taken anew, of the others they stay, where any were taken. O(bytes of these).
  void end_change(int64_t step, data::ArrayDigests& taker, std::span<const OwnedRun> changed);
  /// The values are of another step, and as they were: digests that were taken stay.
  void move_on(int64_t step);
  /// By place in the array. Taken once after a change: O(bytes) then, and O(1) after it.
  const std::vector<uint64_t>& digests(data::ArrayDigests& taker);
  /// They are known, by place, as those of the owners that the values came from.
  void know_digests(std::vector<uint64_t> known);
  /// By place, where they were taken, or known, since the last change; nullptr otherwise.
  [[nodiscard]] const std::vector<uint64_t>* known_digests() const {
    return head_.is_digested != 0 ? &digests_ : nullptr;
  }
  /// Those of chunks side by side, the first at place `slot`. Takes no others.
  [[nodiscard]] std::vector<uint64_t> digests_of(data::ArrayDigests& taker, ChunkRange chunks, int32_t slot) const;
  /// The first place whose chunk has other values than its digest says, where that was taken since the last change.
  /// O(bytes).
  [[nodiscard]] std::optional<int32_t> first_other(data::ArrayDigests& taker) const {
    return first_other(taker, runs_);
  }
  /// The same of some of its chunks. O(bytes of them).
  [[nodiscard]] std::optional<int32_t> first_other(data::ArrayDigests& taker, std::span<const OwnedRun> runs) const;
  /// The step whose values the digests were first taken of, or known: nothing but end_change has changed these since.
  [[nodiscard]] int64_t digested_step() const { return digested_step_; }
  /// The chunk at that place.
  [[nodiscard]] ChunkId chunk_at(int32_t slot) const;
  /// For another process. Throws kUnimplemented where there is no memory for it.
  [[nodiscard]] detail::MemoryHandle handle() const;

 private:
  [[nodiscard]] std::byte* stamp_at() const { return static_cast<std::byte*>(memory_.pointer()) + value_bytes_; }
  [[nodiscard]] uint64_t stamp_bytes() const { return sizeof(StampHead) + digests_.size() * sizeof(StampEntry); }
  /// The values of the chunk at that place, and of those behind it.
  [[nodiscard]] const float* at_slot(int32_t slot) const { return values() + int64_t{slot} * layout_.chunk_elements(); }
  /// Writes the head behind the values, and the entries where they are new.
  void write(bool entries);
  void write_here(bool entries);
  void write_entries(std::byte* to) const;

  const ShardPlace& place_;
  const FlatLayout layout_;
  const std::vector<OwnedRun> runs_;
  const uint64_t value_bytes_;
  StampHead head_;
  std::vector<uint64_t> digests_;
  int64_t digested_step_ = kNoStep;
  Buffer memory_;  ///< values and, where it can be passed on, the stamp
  Buffer stage_;   ///< pinned: a stamp on its way to memory that the CPU does not reach
  std::optional<Event> staged_;
};

/// One thread at a time.
class ShardMemory {
 public:
  using Arrays = std::vector<std::unique_ptr<ShardArray>>;

  /// `names`: of the arrays. The stream outlives this.
  ShardMemory(const Accelerator& accelerator, int32_t device, Stream& stream, std::vector<std::string> names);
  ShardMemory(const ShardMemory&) = delete;
  ShardMemory& operator=(const ShardMemory&) = delete;

  /// New arrays of zeros, of no step, for what `rank` owns.
  void make(const FlatLayout& layout, const Ownership& ownership, int32_t rank);
  /// One array for what `rank` is to own, or none of it where it is -1. Values are anything.
  [[nodiscard]] std::unique_ptr<ShardArray> make_array(const FlatLayout& layout, const Ownership& ownership,
                                                       int32_t rank) const;
  /// Frees an array; there is none until adopt().
  void drop(size_t array) { arrays_[array].reset(); }
  /// Arrays of make_array, as many as there are names, in place of those before.
  void adopt(Arrays arrays) { arrays_ = std::move(arrays); }

  /// As many as there are names.
  [[nodiscard]] size_t count() const { return names_.size(); }
  [[nodiscard]] const std::string& name(size_t array) const { return names_[array]; }
  /// Once they are made.
  [[nodiscard]] ShardArray& array(size_t number) const { return *arrays_[number]; }
  [[nodiscard]] float* values(size_t number) const { return arrays_[number]->values(); }
  /// Of the values of one array.
  [[nodiscard]] uint64_t bytes() const { return arrays_.front()->bytes(); }
  /// With its stamp; 0 where it is not made.
  [[nodiscard]] uint64_t bytes_taken(size_t number) const {
    return number < arrays_.size() && arrays_[number] != nullptr ? arrays_[number]->bytes_taken() : 0;
  }

  /// The same for all arrays; kNoStep while they change, or where there are none.
  [[nodiscard]] int64_t step() const;
  void begin_change();
  void end_change(int64_t step);
  void move_on(int64_t step);
  /// Sums over the chunks, modulo 2^64, by array, of values that do not change. O(bytes) once after a change.
  [[nodiscard]] std::vector<uint64_t> digests();
  /// Throws kDataLoss, naming array and chunk, where values are not those whose digests were taken since the last
  /// change: nothing that writes them may have been enqueued. O(bytes), and O(1) where no digests were taken.
  void require_unchanged();
  /// The same of some chunks of one array. O(bytes of them).
  void require_unchanged(size_t array, std::span<const OwnedRun> runs);
  /// Takes digests of memory of this device.
  [[nodiscard]] data::ArrayDigests& taker() { return taker_; }

 private:
  [[noreturn]] void throw_changed(size_t array, int32_t slot) const;

  const Accelerator accelerator_;
  const ShardPlace place_;
  const std::vector<std::string> names_;
  data::ArrayDigests taker_;
  Arrays arrays_;
};

}  // namespace pliant::sharded
