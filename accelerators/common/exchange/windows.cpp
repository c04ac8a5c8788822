// Maps windows, and finds where buffers lie in them.
#include "common/exchange/windows.hpp"

#include <exception>
#include <utility>

namespace pliant::accelerator {

bool Windows::map(const ExchangeMemory& memory, const std::vector<ExchangeMemory::Card>& cards, int32_t rank,
                  const void* own, uint64_t bytes) {
  Window made{&memory, cards[static_cast<size_t>(rank)], own, bytes, {}};
  latest_.reset();
  try {
    for (const ExchangeMemory::Card& card : cards) made.of_rank.push_back(ExchangeMemory::open(card));
  } catch (const std::exception&) {  // then slots serve, for all ranks
    return false;
  }
  latest_.emplace(std::move(made));
  return true;
}

void Windows::keep(bool all_could) {
  if (latest_ && all_could) windows_.push_back(std::move(*latest_));
  latest_.reset();
}

std::optional<Windows::Place> Windows::place_of(const void* pointer, uint64_t bytes) const {
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& one = windows_[i];
    const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(one.own);
    if (offset >= one.bytes || bytes > one.bytes - offset) continue;
    // Freed memory's address may be another's by now.
    if (one.memory->is_there(one.own, one.card)) return Place{i, offset};
  }
  return std::nullopt;
}

}  // namespace pliant::accelerator
