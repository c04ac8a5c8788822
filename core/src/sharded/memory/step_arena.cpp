#include "sharded/memory/step_arena.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sharded/shards/exchange.hpp"

namespace pliant::sharded {
namespace {

/// kLeastFloats of Runtime.
constexpr uint64_t kLeastBlock = 64;

/// Without the blocks that gradient_room() has for casts, which lie elsewhere unless there is no room.
std::vector<GradientRoom> room_of_pieces(const ModelTables& model, const StepArena::Of& of) {
  const std::vector<uint64_t> owned = most_owned_at(model, of.world_size);
  if (of.micro_batches > 1) return gradient_room(model, owned, of.world_size, of.reduce, of.micro_batches);
  std::vector<GradientRoom> made;
  for (size_t i = 0; i < owned.size(); ++i) {
    made.push_back({model.parameters()[i].elements * bytes_of(of.reduce),
                    received_elements(owned[i], of.world_size) * bytes_of(of.reduce)});
  }
  return made;
}

constexpr uint64_t whole_pages(uint64_t bytes) {
  return (bytes + Buffer::kPageAlignment - 1) / Buffer::kPageAlignment * Buffer::kPageAlignment;
}

}  // namespace

// Runtime::take_gradient_room and put: what arrives lies behind gradients where passes are over several micro-batches.
StepArena::StepArena(const ModelTables& model, const Of& of, std::function<Moment()> now)
    : model_(model),
      of_(of),
      now_(std::move(now)),
      rooms_(room_of_pieces(model, of)),
      held_(model.parameters().size()),
      gaps_(whole_pages(of.budget)) {}

// Runtime::take.
StepArena::Piece StepArena::take(uint64_t bytes, On stream, const WholePlace& place) {
  const Piece made = take_free(bytes, stream, place);
  if (made.size > 0 || bytes == 0 || lingering_.empty()) return made;
  retire();
  return take_free(bytes, stream, place);
}

// WholeMemory::take.
StepArena::Piece StepArena::take_free(uint64_t bytes, On stream, const WholePlace& place) {
  const uint64_t size = WholeMemory::taken_by(bytes);
  if (size == 0 || size > of_.budget - taken_) return {};
  std::optional<uint64_t> begin = place.byte;
  if (!begin) begin = gaps_.find(size, place.side);
  if (!begin || !gaps_.has(*begin, size)) return {};
  gaps_.take(*begin, size);
  taken_ += size;
  const Piece made{*begin, size};
  wait_for_uses(made, stream);
  return made;
}

// Arena::State::wait_for_uses.
void StepArena::wait_for_uses(const Piece& piece, On stream) {
  const uint64_t end = piece.begin + piece.size;
  const auto first =
      std::partition_point(uses_.begin(), uses_.end(), [&piece](const Use& use) { return use.end <= piece.begin; });
  auto last = first;
  for (; last != uses_.end() && last->begin < end; ++last) {
    if (stream == On::kProgram) waits_.push_back(last->until);
  }
  if (first == last) return;
  const Use before{first->begin, piece.begin, first->until};
  const Use behind{end, std::prev(last)->end, std::prev(last)->until};
  auto left = first;
  if (before.begin < before.end) *left++ = before;
  if (behind.begin >= behind.end) {
    uses_.erase(left, last);
  } else if (left == last) {  // one that is cut in two
    uses_.insert(left, behind);
  } else {
    *left++ = behind;
    uses_.erase(left, last);
  }
}

void StepArena::add_use(const Use& use) {
  const auto after =
      std::partition_point(uses_.begin(), uses_.end(), [&use](const Use& other) { return other.begin < use.begin; });
  uses_.insert(after, use);
}

void StepArena::give_back(Piece& piece, Moment until) {
  const auto [begin, size] = std::exchange(piece, {});
  if (size == 0) return;
  gaps_.give_back(begin, size);
  taken_ -= size;
  add_use({begin, begin + size, until});
}

void StepArena::begin_pass() {
  is_backward_ = false;
  for (Held& one : held_) one.is_reduced = false;
}

void StepArena::gather(const pliant_action& action) {
  const auto byte = action.place == PLIANT_ANY_PLACE ? std::nullopt : std::optional<uint64_t>(action.place);
  held_[action.parameter].value =
      take(model_.parameter(action.parameter).elements * bytes_of(of_.whole), On::kExchange, {byte, ArenaSide::kBegin});
}

void StepArena::release(uint32_t parameter) {
  give_back(held_[parameter].value, now_());
}

void StepArena::take_gradients(std::span<const uint32_t> used) {
  if (!std::exchange(is_backward_, true)) {
    for (uint32_t parameter = 0; parameter < held_.size(); ++parameter) {
      if (model_.parameter(parameter).external) take_gradient(parameter);
    }
  }
  for (const uint32_t parameter : used) take_gradient(parameter);
}

void StepArena::take_gradient(uint32_t parameter) {
  Held& one = held_[parameter];
  if (model_.parameter(parameter).frozen || one.is_reduced || one.gradient.size > 0) return;
  one.gradient = take(rooms_[parameter].gradient, On::kProgram);
}

void StepArena::retire() {
  for (Piece& piece : lingering_) give_back(piece, linger_until_);
  lingering_.clear();
}

// Runtime::put.
void StepArena::send(uint32_t parameter, bool is_last) {
  take_gradient(parameter);
  on_way_.push_back(take(rooms_[parameter].received, On::kExchange));
  if (!is_last) return;
  held_[parameter].is_reduced = true;
  on_way_.push_back(std::exchange(held_[parameter].gradient, {}));
}

void StepArena::added(bool lingers) {
  const Moment until = now_();
  if (lingers) {
    lingering_.swap(on_way_);
    linger_until_ = until;
    return;
  }
  for (Piece& piece : on_way_) give_back(piece, until);
  on_way_.clear();
}

uint64_t StepArena::float_block(uint64_t most, size_t rooms) {
  constexpr WholePlace kSide{std::nullopt, ArenaSide::kBegin};
  std::vector<Piece> taken;
  for (uint64_t block = most;; block = std::max(block / 2, kLeastBlock)) {
    while (taken.size() < rooms) {
      const Piece made = take(block * sizeof(float), On::kExchange, kSide);
      if (made.size == 0) break;
      taken.push_back(made);
    }
    const bool suffices = taken.size() == rooms || block <= kLeastBlock;
    if (suffices) {  // were_cast() says until when
      for (const Piece& piece : taken) {
        gaps_.give_back(piece.begin, piece.size);
        taken_ -= piece.size;
        cast_.push_back(piece);
      }
      return block;
    }
    if (taken.empty()) continue;
    const Moment until = now_();
    for (Piece& piece : taken) give_back(piece, until);
    taken.clear();
  }
}

void StepArena::were_cast() {
  if (cast_.empty()) return;
  const Moment until = now_();
  for (const Piece& piece : cast_) {
    wait_for_uses(piece, On::kExchange);
    add_use({piece.begin, piece.begin + piece.size, until});
  }
  cast_.clear();
}

}  // namespace pliant::sharded
