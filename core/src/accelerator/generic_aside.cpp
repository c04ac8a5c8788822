// Finds them by their addresses.
#include "accelerator/generic_aside.hpp"

#include <algorithm>
#include <functional>

namespace pliant::detail {

using Message = GenericCollectives::Comm::Message;

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
  if (copies_.empty()) return;
  const Called& device = shared_.device;
  pliant_error ignored = plugin::fresh_error();
  static_cast<void>(device.slots().stream_synchronize(device.instance.self(), on_, &ignored));
  for (void* copy : copies_)
    device.slots().free(device.instance.self(), shared_.device_index, PLIANT_MEMORY_DEVICE, copy);
}

void Aside::put(std::vector<Message>& messages) {
  for (Message& sent : messages) {
    const auto overwrites = [&](const Message& one) { return !one.is_send && overlap(one, sent); };
    if (sent.is_send && std::any_of(messages.begin(), messages.end(), overwrites)) put_one(sent);
  }
}

void Aside::put_one(Message& sent) {
  const uint64_t bytes = sent.elements.bytes();
  void* made = nullptr;
  copies_.reserve(copies_.size() + 1);
  shared_.device(shared_.device.slots().alloc, shared_.device_index, PLIANT_MEMORY_DEVICE, bytes, &made);
  copies_.push_back(made);
  shared_.copy({{made, sent.buffer, bytes}}, on_);
  sent.buffer = made;
}

}  // namespace pliant::detail
