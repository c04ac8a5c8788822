// Visited: what a rank of a sharded job does that all others must do, too, in the same order; and how far it has come.
#pragma once

#include <cstdint>
#include <utility>

#include "pliant/sharded.hpp"

namespace pliant::sharded {

struct Visited {
  enum class Kind : uint32_t {
    kForward,
    kBackward,
    kRecompute,
    kLeaveForward,
    kLeaveBackward,
    kLeaveRecompute,
    kPass,
    kEvaluation,
    kEndPass,
    kByHand,
    kWrite,
    kMicroBatch,
    kModel,
    kCommit,
    kEndStep,
    kRelease
  };
  Kind kind = Kind::kPass;
  /// Module that is entered or left, parameter that is moved, released or written by hand, micro-batch that is begun,
  /// how many more than one a pass is over, or digest of what modules use from here on.
  uint32_t what = 0;
  uint32_t number = 0;  ///< modules entered since the step began, before this
  uint32_t passes = 0;  ///< begun since then
  uint64_t digest = 0;  ///< of all since the group formed, this one included

  [[nodiscard]] static constexpr Kind enters(Direction direction) {
    return direction == Direction::kForward    ? Kind::kForward
           : direction == Direction::kBackward ? Kind::kBackward
                                               : Kind::kRecompute;
  }
  [[nodiscard]] static constexpr Kind leaves(Direction direction) {
    return direction == Direction::kForward    ? Kind::kLeaveForward
           : direction == Direction::kBackward ? Kind::kLeaveBackward
                                               : Kind::kLeaveRecompute;
  }
};

constexpr bool is_enter(Visited::Kind kind) {
  return kind <= Visited::Kind::kRecompute;
}
constexpr bool is_leave(Visited::Kind kind) {
  return kind > Visited::Kind::kRecompute && kind <= Visited::Kind::kLeaveRecompute;
}

/// What an exception on its way through a program may do, too: it leaves modules and gives parameters back.
constexpr bool gives_back(Visited::Kind kind) {
  return is_leave(kind) || kind == Visited::Kind::kRelease;
}

/// Ranks for which these are the same have done the same.
struct VisitCount {
  uint64_t count = 0;   ///< of all since the group formed
  uint64_t digest = 0;  ///< of them
  friend bool operator==(const VisitCount&, const VisitCount&) = default;
  friend bool operator<(const VisitCount& a, const VisitCount& b) {
    return std::pair(a.count, a.digest) < std::pair(b.count, b.digest);
  }
};

}  // namespace pliant::sharded
