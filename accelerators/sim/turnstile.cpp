// Decides whose turn it is.
#include "turnstile.hpp"

#include "injection.hpp"

namespace pliant::accelerator {

namespace {

/// Work that never waits for anything that is not of its own stream.
bool takes_turns(WorkKind kind) {
  return kind == WorkKind::kLocal || kind == WorkKind::kCopy || kind == WorkKind::kRecord;
}

}  // namespace

void Turnstile::enqueued(uint64_t stream, uint64_t index, WorkKind kind, std::function<bool()> passable) {
  const std::lock_guard lock(mutex_);
  streams_[stream].push_back({draw(seed_, Purpose::kOrder, stream, index), kind, std::move(passable)});
  moved_.notify_all();
}

bool Turnstile::turn_of(uint64_t stream) const {
  if (inside_) return false;
  const uint64_t drawn = streams_.at(stream).front().drawn;
  for (const auto& [other, queue] : streams_) {
    if (other == stream || queue.empty()) continue;
    const Work& next = queue.front();
    // A wait that is about to pass uncovers work that may come first, so it is let pass before anything is decided.
    if (next.kind == WorkKind::kEventWait && next.passable()) return false;
    if (takes_turns(next.kind) && next.drawn < drawn) return false;
  }
  return true;
}

void Turnstile::enter(uint64_t stream) {
  std::unique_lock lock(mutex_);
  if (!takes_turns(streams_.at(stream).front().kind)) return;
  moved_.wait(lock, [&] { return turn_of(stream); });
  inside_ = true;
}

void Turnstile::leave(uint64_t stream) {
  const std::lock_guard lock(mutex_);
  std::deque<Work>& queue = streams_.at(stream);
  if (takes_turns(queue.front().kind)) inside_ = false;
  queue.pop_front();
  moved_.notify_all();
}

}  // namespace pliant::accelerator
