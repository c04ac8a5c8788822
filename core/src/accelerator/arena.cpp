// Gaps and pieces of an arena, and what enqueued work a gap still waits for.
#include "pliant/arena.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/arena_gaps.hpp"
#include "accelerator/state.hpp"
#include "base/inside.hpp"

namespace pliant {

namespace {

/// That are kept, reached or not.
constexpr size_t kMostUses = 64;

uint64_t rounded_up(uint64_t bytes, uint64_t to) {
  if (bytes > UINT64_MAX - to) return UINT64_MAX - UINT64_MAX % to;
  return (bytes + to - 1) / to * to;
}

}  // namespace

struct Arena::State {
  /// The event is there from the beginning: giving back must not fail for want of one.
  struct Piece {
    uint64_t size = 0;
    std::shared_ptr<Event> done;
    Stream::State* used_on = nullptr;  ///< last, where `done` is recorded already
  };
  /// Work enqueued on a stream that used this range before it was given back.
  struct Use {
    uint64_t begin = 0;
    uint64_t end = 0;
    Stream::State* stream = nullptr;  ///< only compared
    std::shared_ptr<Event> done;
  };

  State(const Accelerator& accelerator, int32_t on, uint64_t wanted, MemoryKind kind)
      : owner(accelerator),
        device(on),
        memory(accelerator, on, rounded_up(wanted, Buffer::kPageAlignment), kind, Buffer::kPageAlignment),
        gaps(memory.bytes()) {}

  /// Waits for the work of all that was given back.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The offset of what is then taken: in the first gap that holds it, seen from that side.
  uint64_t take(uint64_t bytes, const Stream::State& stream, ArenaSide side);
  /// The same at `begin`.
  uint64_t take_at(uint64_t begin, uint64_t bytes, const Stream::State& stream);
  void give_back(uint64_t begin, Stream::State& last);
  void end_use(uint64_t begin, Stream::State& last);

  const Accelerator owner;
  const int32_t device;
  const Buffer memory;
  detail::ArenaGaps gaps;
  std::map<uint64_t, Piece> pieces;            ///< by offset
  std::deque<Use> uses;                        ///< of ranges that lie in gaps, in the order of their events
  std::vector<std::shared_ptr<Event>> events;  ///< to record again

 private:
  /// That a buffer of so many bytes takes.
  static uint64_t size_of(uint64_t bytes) { return std::max(kAlignment, rounded_up(bytes, kAlignment)); }
  uint64_t take_free(uint64_t begin, uint64_t size, const Stream::State& stream);
  void wait_for_uses(uint64_t begin, uint64_t end, const Stream::State& stream);
  /// What has run needs no wait. Where pieces lie does not depend on it. Looks only once there is much: each look is a
  /// call of the device's driver, and takes the host of a virtual clock to the time of what it finds over.
  void forget_reached();
  void keep(std::shared_ptr<Event> done);
  [[nodiscard]] std::shared_ptr<Event> event();
};

Arena::State::~State() {
  try {
    for (const Use& use : uses) use.done->synchronize();
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): its stream tells of it; nothing runs any more
  }
}

uint64_t Arena::State::take(uint64_t bytes, const Stream::State& stream, ArenaSide side) {
  const uint64_t size = size_of(bytes);
  if (const std::optional<uint64_t> begin = gaps.find(size, side)) return take_free(*begin, size, stream);
  throw Error(Status::kResourceExhausted,
              "the arena of " + std::to_string(memory.bytes()) + " bytes has no room for a buffer of " +
                  std::to_string(bytes) + ": " + std::to_string(gaps.bytes()) + " are free, " +
                  std::to_string(gaps.largest()) + " of them in one piece; make it larger or free buffers earlier",
              Origin::kRun);
}

uint64_t Arena::State::take_at(uint64_t begin, uint64_t bytes, const Stream::State& stream) {
  const uint64_t size = size_of(bytes);
  if (begin % kAlignment != 0) {
    throw Error(Status::kInvalidArgument, "byte " + std::to_string(begin) + " of an arena is not a multiple of " +
                                              std::to_string(kAlignment) + ", where its buffers begin");
  }
  if (gaps.has(begin, size)) return take_free(begin, size, stream);
  throw Error(Status::kResourceExhausted,
              "the " + std::to_string(bytes) + " bytes from byte " + std::to_string(begin) + " of the arena of " +
                  std::to_string(memory.bytes()) + " bytes are not free",
              Origin::kRun);
}

uint64_t Arena::State::take_free(uint64_t begin, uint64_t size, const Stream::State& stream) {
  std::shared_ptr<Event> done = event();
  wait_for_uses(begin, begin + size, stream);
  pieces.emplace(begin, Piece{size, std::move(done), nullptr});
  gaps.take(begin, size);
  return begin;
}

void Arena::State::give_back(uint64_t begin, Stream::State& last) {
  const auto piece = pieces.find(begin);
  const uint64_t size = piece->second.size;
  try {
    forget_reached();
    if (piece->second.used_on == nullptr) end_use(begin, last);
    uses.push_back({begin, begin + size, piece->second.used_on, std::move(piece->second.done)});
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch): the device is lost, and no work will touch it
  }
  pieces.erase(piece);
  gaps.give_back(begin, size);
}

void Arena::State::end_use(uint64_t begin, Stream::State& last) {
  Piece& piece = pieces.at(begin);
  detail::inside(owner).call(&pliant_accelerator::event_record, detail::inside(*piece.done).handle, last.handle);
  piece.used_on = &last;
}

void Arena::State::wait_for_uses(uint64_t begin, uint64_t end, const Stream::State& stream) {
  const auto lies_outside = [=](const Use& use) { return use.end <= begin || use.begin >= end; };
  for (const Use& use : uses) {
    if (lies_outside(use) || use.stream == &stream) continue;
    detail::inside(owner).call(&pliant_accelerator::stream_wait_event, stream.handle, detail::inside(*use.done).handle);
  }
  std::deque<Use> left;
  for (Use& use : uses) {
    if (lies_outside(use)) {
      left.push_back(std::move(use));
      continue;
    }
    if (use.begin < begin) left.push_back({use.begin, begin, use.stream, use.done});
    if (use.end > end) left.push_back({end, use.end, use.stream, use.done});
    keep(std::move(use.done));
  }
  uses = std::move(left);
}

void Arena::State::forget_reached() {
  if (uses.size() < kMostUses) return;
  while (!uses.empty() && uses.front().done->is_reached()) {
    keep(std::move(uses.front().done));
    uses.pop_front();
  }
}

void Arena::State::keep(std::shared_ptr<Event> done) {
  if (done.use_count() == 1) events.push_back(std::move(done));
}

std::shared_ptr<Event> Arena::State::event() {
  if (events.empty()) return std::make_shared<Event>(owner, device);
  std::shared_ptr<Event> made = std::move(events.back());
  events.pop_back();
  return made;
}

Arena::Arena(const Accelerator& accelerator, int32_t device, uint64_t bytes, MemoryKind kind)
    : state_(std::make_shared<State>(accelerator, device, bytes, kind)) {}
Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;
Arena& Arena::operator=(Arena&&) noexcept = default;

void Arena::register_with(Communicator& communicator, Stream& stream) {
  communicator.register_window(pointer(), bytes(), stream);
}

void* Arena::pointer() const {
  return state_->memory.pointer();
}
uint64_t Arena::bytes() const {
  return state_->memory.bytes();
}
uint64_t Arena::free_bytes() const {
  return state_->gaps.bytes();
}
uint64_t Arena::largest_free_bytes() const {
  return state_->gaps.largest();
}

ArenaBuffer::ArenaBuffer(Arena& arena, Stream& stream, uint64_t bytes, uint64_t begin)
    : arena_(detail::shared_inside(arena)),
      stream_(&detail::inside(stream)),
      pointer_(static_cast<std::byte*>(arena.pointer()) + begin),
      bytes_(bytes) {}

ArenaBuffer::ArenaBuffer(Arena& arena, Stream& stream, uint64_t bytes, ArenaSide side)
    : ArenaBuffer(arena, stream, bytes, detail::inside(arena).take(bytes, detail::inside(stream), side)) {}

ArenaBuffer ArenaBuffer::at(Arena& arena, Stream& stream, uint64_t offset, uint64_t bytes) {
  return {arena, stream, bytes, detail::inside(arena).take_at(offset, bytes, detail::inside(stream))};
}

ArenaBuffer::~ArenaBuffer() {
  if (pointer_ != nullptr) give_back_on(*stream_);
}

ArenaBuffer::ArenaBuffer(ArenaBuffer&& other) noexcept
    : arena_(std::move(other.arena_)),
      stream_(other.stream_),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

ArenaBuffer& ArenaBuffer::operator=(ArenaBuffer&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(stream_, other.stream_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void ArenaBuffer::give_back(Stream& last) {
  if (pointer_ != nullptr) give_back_on(detail::inside(last));
}

void ArenaBuffer::end_use(Stream& last) {
  if (pointer_ != nullptr) arena_->end_use(offset(), detail::inside(last));
}

uint64_t ArenaBuffer::offset() const {
  const auto* const begin = static_cast<const std::byte*>(arena_->memory.pointer());
  return static_cast<uint64_t>(static_cast<const std::byte*>(pointer_) - begin);
}

void ArenaBuffer::give_back_on(Stream::State& last) {
  arena_->give_back(offset(), last);
  pointer_ = nullptr;
  arena_.reset();
  bytes_ = 0;
}

}  // namespace pliant
