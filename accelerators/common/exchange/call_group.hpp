// CallGroup: the calls of a communicator between begin_group and end_group. What a rank may send itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

/// All calls may come from any thread.
template <class Call, class Stream>
class CallGroup {
 public:
  /// In the order of the calls; `stream` is NULL when there are none. No initialisers: clang 14 would not take it in an
  /// optional of this class.
  struct Kept {
    std::vector<Call> calls;
    Stream* stream;
  };

  /// Throws PLIANT_FAILED_PRECONDITION when there is a group already.
  void begin() {
    const std::lock_guard lock(mutex_);
    if (open_) {
      throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "this communicator has a group already; groups do not nest");
    }
    open_ = Kept{{}, nullptr};
    open_->calls.reserve(last_);
  }
  /// False, and the call is left alone, when there is no group. Throws PLIANT_INVALID_ARGUMENT for another stream than
  /// that of the group's first call.
  [[nodiscard]] bool keep(Call& call, Stream& stream) {
    const std::lock_guard lock(mutex_);
    if (!open_) return false;
    sdk::require(open_->stream == nullptr || open_->stream == &stream, "all calls of a group name the same stream");
    open_->stream = &stream;
    open_->calls.push_back(std::move(call));
    return true;
  }
  /// Throws PLIANT_FAILED_PRECONDITION when there is no group.
  [[nodiscard]] Kept end() {
    const std::lock_guard lock(mutex_);
    if (!open_) throw sdk::Failure(PLIANT_FAILED_PRECONDITION, "this communicator has no group that could end");
    last_ = open_->calls.size();
    return *std::exchange(open_, std::nullopt);
  }

 private:
  std::mutex mutex_;
  std::optional<Kept> open_;
  size_t last_ = 0;  ///< calls of the last group: the next one has as many, as a rule
};

/// For a call outside of groups, where a message to oneself would wait for ever. Throws PLIANT_INVALID_ARGUMENT.
inline void require_other_peer(bool is_to_self, int32_t rank) {
  if (!is_to_self) return;
  throw sdk::Failure(PLIANT_INVALID_ARGUMENT,
                     "rank " + std::to_string(rank) + " is its own peer; a rank sends to itself in a group only")
      .about_rank(rank);
}

/// For a group, of the messages of a rank to itself. Throws PLIANT_INVALID_ARGUMENT.
inline void require_pairs(int32_t rank, int64_t sends, int64_t receives) {
  sdk::require(sends == receives, [&] {
    return "in this group rank " + std::to_string(rank) + " sends itself " + std::to_string(sends) + " and receives " +
           std::to_string(receives) + " messages; nothing of the group was enqueued";
  });
}

}  // namespace pliant::accelerator
