// Finds them by their addresses.
#include "collectives/transport/aside.hpp"

#include <algorithm>
#include <functional>

namespace pliant::collectives {

namespace {

bool overlap(const Message& a, const Message& b) {
  if (a.elements.count == 0 || b.elements.count == 0) return false;
  const auto* const first = static_cast<const std::byte*>(a.buffer);
  const auto* const second = static_cast<const std::byte*>(b.buffer);
  const std::less<> before;
  return before(first, second + b.elements.bytes()) && before(second, first + a.elements.bytes());
}

}  // namespace

Aside::~Aside() {
  if (!copies_.empty()) static_cast<void>(steps_.device().slots.ask(&pliant_accelerator::stream_synchronize, on_));
}

void Aside::put(std::vector<Message>& messages) {
  for (Message& sent : messages) {
    const auto overwrites = [&](const Message& one) { return !one.is_send && overlap(one, sent); };
    if (sent.is_send && std::any_of(messages.begin(), messages.end(), overwrites)) put_one(sent);
  }
}

void Aside::put_one(Message& sent) {
  const uint64_t bytes = sent.elements.bytes();
  copies_.emplace_back(steps_.device().slots, device_index_, PLIANT_MEMORY_DEVICE, bytes);
  void* const made = copies_.back().get();
  steps_.copy({{made, sent.buffer, bytes}}, on_);
  sent.buffer = made;
}

}  // namespace pliant::collectives
