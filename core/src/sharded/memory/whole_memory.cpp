#include "sharded/memory/whole_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/result.hpp"
#include "pliant/error.hpp"

namespace pliant::sharded {
namespace {

std::string words(const WholePurpose& what) {
  return fmt::format("{}{}{}", what.before, what.name, what.after);
}

}  // namespace

WholePiece::WholePiece(WholePiece&& other) noexcept
    : taken_(std::exchange(other.taken_, false)),
      of_gradient_(std::exchange(other.of_gradient_, false)),
      pointer_(std::exchange(other.pointer_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      books_(std::exchange(other.books_, nullptr)),
      own_(std::move(other.own_)),
      of_arena_(std::move(other.of_arena_)) {}

WholePiece& WholePiece::operator=(WholePiece&& other) noexcept {
  if (this == &other) return *this;
  reset();
  taken_ = std::exchange(other.taken_, false);
  of_gradient_ = std::exchange(other.of_gradient_, false);
  pointer_ = std::exchange(other.pointer_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  books_ = std::exchange(other.books_, nullptr);
  own_ = std::move(other.own_);
  of_arena_ = std::move(other.of_arena_);
  return *this;
}

void WholePiece::reset() noexcept {
  if (!std::exchange(taken_, false)) return;
  if (books_ != nullptr) {
    books_->taken_ -= bytes_;
    if (of_gradient_) books_->gradients_ -= bytes_;
    of_arena_.give_back(books_->stream_);
  }
  own_ = StreamBuffer();
  pointer_ = nullptr;
  bytes_ = 0;
}

void WholePiece::end_use() {
  if (taken_ && books_ != nullptr) of_arena_.end_use(books_->stream_);
}

uint64_t WholeMemory::taken_by(uint64_t bytes) {
  return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

WholeMemory::WholeMemory(const Accelerator& accelerator, int32_t device, Stream& stream, uint64_t budget)
    : stream_(stream), budget_(budget) {
  if (budget == 0) return;
  try {
    arena_.emplace(accelerator, device, budget);
  } catch (const Error& error) {
    if (error.status() != Status::kResourceExhausted) throw;
    throw Error(Status::kResourceExhausted,
                fmt::format("[coordinator] budget = {} is more than the free memory of the device ({}); lower it",
                            budget, error.message()),
                Origin::kInput);
  }
}

WholePiece WholeMemory::take(uint64_t bytes, const WholePurpose& what, const WholePlace& place, Stream& on) {
  WholePiece piece;
  piece.bytes_ = taken_by(bytes);
  piece.books_ = this;
  if (bytes > 0 && budget_ > 0) {
    const auto refuse = [&](const std::string& why) {
      throw Error(Status::kResourceExhausted,
                  fmt::format("[coordinator] budget = {} is too small: {} needs {} bytes{}", budget_, words(what),
                              piece.bytes_, why),
                  Origin::kInput)
          .about("budget");
    };
    if (piece.bytes_ > budget_ - std::min(budget_, taken_)) {
      refuse(taken_ == 0 ? std::string() : fmt::format(", and {} are in use", taken_));
    }
    try {
      piece.of_arena_ = place.byte ? ArenaBuffer::at(*arena_, on, *place.byte, piece.bytes_)
                                   : ArenaBuffer(*arena_, on, piece.bytes_, place.side);
    } catch (const Error& error) {
      if (error.status() != Status::kResourceExhausted) throw;
      refuse(fmt::format(" {}; {} are in use, and the largest gap has {}",
                         place.byte ? fmt::format("at byte {}", *place.byte) : "in one piece", taken_,
                         arena_->largest_free_bytes()));
    }
    piece.pointer_ = piece.of_arena_.pointer();
  } else if (bytes > 0) {
    try {
      piece.own_ = StreamBuffer(on, piece.bytes_);
    } catch (const Error& error) {
      if (error.status() != Status::kResourceExhausted) throw;
      throw error.with_message(fmt::format("no memory for {}: {}", words(what), error.message()));
    }
    piece.pointer_ = piece.own_.pointer();
  }
  piece.taken_ = true;
  taken_ += piece.bytes_;
  piece.of_gradient_ = what.is_gradient;
  if (what.is_gradient) most_gradients_ = std::max(most_gradients_, gradients_ += piece.bytes_);
  most_taken_ = std::max(most_taken_, taken_);
  most_since_ = std::max(most_since_, taken_);
  return piece;
}

}  // namespace pliant::sharded
