// Windows: memory of each rank of a communicator that all its ranks can read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/cpu/exchange_memory.hpp"

namespace pliant::accelerator {

/// One thread at a time. No rank ever writes to memory of another: one that was stopped, and goes on when the others
/// have given up on it, spoils nothing of theirs.
class Windows {
 public:
  /// `cards` are those of the ranks, `bytes` the size of the window. Maps it for this `rank`; true when all could be.
  /// What was mapped serves only after keep().
  [[nodiscard]] bool map(const ExchangeMemory& memory, const std::vector<ExchangeMemory::Card>& cards, int32_t rank,
                         const void* own, uint64_t bytes);
  /// Whether all ranks could map what map() saw last; it is forgotten where one could not.
  void keep(bool all_could);

  /// A byte of one window, of every rank.
  struct Place {
    size_t window = 0;
    uint64_t offset = 0;
    /// For others to read; 0 is no place.
    [[nodiscard]] uint64_t packed() const { return (static_cast<uint64_t>(window) << 48U | offset) + 1; }
    bool operator==(const Place&) const = default;
    static Place unpack(uint64_t packed) { return {(packed - 1) >> 48U, (packed - 1) & ((uint64_t{1} << 48U) - 1)}; }
  };
  /// There is none; the same on every rank.
  [[nodiscard]] bool is_empty() const { return windows_.empty(); }
  /// Of the first byte; empty unless the whole range lies in one window, whose memory was not freed.
  [[nodiscard]] std::optional<Place> place_of(const void* pointer, uint64_t bytes) const;
  [[nodiscard]] const std::byte* at(const Place& place, int32_t rank) const {
    return windows_[place.window].of_rank[static_cast<size_t>(rank)].get() + place.offset;
  }

 private:
  struct Window {
    const ExchangeMemory* memory = nullptr;
    ExchangeMemory::Card card{};  ///< the own
    const void* own = nullptr;
    uint64_t bytes = 0;
    std::vector<std::shared_ptr<const std::byte>> of_rank;
  };
  std::vector<Window> windows_;
  std::optional<Window> latest_;
};

}  // namespace pliant::accelerator
