// Group: one rank's membership in a communicator: joining, progress counters, waiting for peers, and the end of all
// waits when a peer dies or somebody aborts. Knows nothing of what is exchanged.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/exchange/failure_cause.hpp"
#include "common/exchange/link.hpp"
#include "common/exchange/segment.hpp"
#include "common/exchange/transport.hpp"

namespace pliant::accelerator {

/// Thread-safe. Only one thread at a time may be in await().
class Group {
 public:
  /// Claims `rank`. `made` is what Segment::reserve or NetworkId::reserve returned, if this process made the id; it is
  /// closed once all have joined. Throws what Segment throws, and PLIANT_INVALID_ARGUMENT when the rank is taken.
  Group(const Transport& transport, int32_t rank, int32_t world_size, std::shared_ptr<UniqueFd> made);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t world_size() const { return world_size_; }
  [[nodiscard]] const Segment& segment() const { return segment_; }
  [[nodiscard]] bool all_joined() const;
  /// There are more ranks than processors that this process may use.
  [[nodiscard]] bool crowded() const { return crowded_; }

  /// Sleeps until `holds()`; throws the failure of the communicator if that comes first, and PLIANT_DEADLINE_EXCEEDED
  /// after timeout_ms (-1 = none). Whoever makes `holds` true must call wake().
  void wait(const std::function<bool()>& holds, int32_t timeout_ms = -1);
  void wait_ready(int32_t timeout_ms);
  /// Wakes this rank's own waits to look again.
  void wake();

  /// This rank has finished `stage` of all ticks before `ticks`. `parcels`: see Link.
  void publish(Stage stage, uint64_t ticks, const Parcels* parcels = nullptr);
  [[nodiscard]] uint64_t progress(int32_t rank, Stage stage) const {
    return segment_.rank(rank).progress[static_cast<uint32_t>(stage)].load();
  }
  /// A rank whose `stage` is below `ticks`, or -1.
  [[nodiscard]] int32_t laggard(Stage stage, uint64_t ticks) const;
  /// Sleeps until `rank`, or every other rank for kEveryone, has come to `ticks`; throws when it never will.
  /// `soon`: what is awaited is the whole of a call, so a look of two microseconds is worth while; where many pieces
  /// follow each other, those who share a processor get further when it goes from one to the next at once.
  void await(int32_t rank, Stage stage, uint64_t ticks, bool soon);
  static constexpr int32_t kEveryone = (1 << 20) - 1;

  /// Throws if the communicator has failed.
  void check() const;
  /// Throws if it has failed by what this process did. The loss of a peer does not end work that needs the peer no
  /// more.
  void check_own() const {
    if (aborted_.load() || local_cause_.load() != 0) check();
  }
  /// Throws if it has failed, or another rank has left it; then it has failed for all. What was read of the others
  /// before is theirs until here.
  void check_all_there();
  /// Tells the others that this rank has thrown in the middle of a call, with what made it throw if that concerns them.
  void give_up();
  /// Ends all waits of this rank with PLIANT_ABORTED, and those of the others with the same unless they know a better
  /// cause.
  void abort();
  /// Ends all waits of all ranks for `cause`; the first cause stands.
  void fail(FailureCause cause);
  /// Ends all waits of all ranks because their calls do not fit together, and throws `words`, about rank `other` that
  /// called something else than this one. Whoever asks this rank later is told them, too.
  [[noreturn]] void fail_for_mismatch(int32_t other, const std::string& words);
  /// Ends all waits of this rank only; the first cause stands.
  void fail_here(FailureCause cause);
  /// Tells the others that this rank will do no more. Idempotent.
  void leave();
  [[nodiscard]] bool left(int32_t rank) const { return segment_.rank(rank).state.load() == kHasLeft; }

  [[nodiscard]] Link& link() { return *link_; }

  // For the link.
  /// All have opened the memory. Idempotent; from any thread: two peers that greet at once may each find all there.
  void joining_is_over() {
    if (!joining_over_.exchange(true)) made_.reset();
  }
  /// Rings `peer` if it sleeps for what `publisher` has come to.
  void ring_if_awaited(int32_t peer, int32_t publisher, Stage stage, uint64_t ticks) const;
  /// Rings `peer` if it sleeps for messages.
  void ring_if_listening(int32_t peer) const;
  /// Ends all waits of this rank for a cause that the others know; the first cause stands.
  void learn(FailureCause cause);

 private:
  /// The rank among those that await() waits for that is not there yet, or -1.
  [[nodiscard]] int32_t awaited(int32_t rank, Stage stage, uint64_t ticks) const;
  /// One of them that has left the communicator, or -1.
  [[nodiscard]] int32_t missing_for_good(int32_t rank, Stage stage, uint64_t ticks) const;
  /// One of those that await() waits for is not there yet and was last seen on the processor of the caller, which it
  /// can only use when the caller leaves it.
  [[nodiscard]] bool needs_this_processor(int32_t rank, Stage stage, uint64_t ticks) const;
  /// Waits without sleeping, for a few microseconds unless others use the processor; true: none of them is missing.
  [[nodiscard]] bool comes_soon(int32_t rank, Stage stage, uint64_t ticks, int most_spins) const;
  /// True when `awaits` of `peer` is over because `publisher` has come to `ticks` of `stage`.
  [[nodiscard]] bool fulfils(int32_t peer, uint64_t awaits, int32_t publisher, Stage stage, uint64_t ticks) const;
  static uint64_t encode(Stage stage, int32_t rank, uint64_t ticks);
  [[nodiscard]] bool failed() const;
  RankBlock& own() const { return segment_.rank(rank_); }

  Segment segment_;
  const int32_t rank_;
  const int32_t world_size_;
  const int yields_;  ///< turns of waiting before sleeping
  const bool crowded_;
  std::shared_ptr<UniqueFd> made_;  // shared with the list of unused ids until joining has begun
  std::atomic<bool> joining_over_{false};
  std::atomic<bool> complete_{false};  ///< wait_ready has seen all ranks
  std::atomic<bool> aborted_{false};
  std::atomic<bool> read_all_{false};  ///< written only, by check_all_there
  std::atomic<uint64_t> local_cause_{0};
  mutable std::mutex mismatch_mutex_;
  std::optional<sdk::Failure> mismatch_;  ///< what this rank saw of calls that do not fit together; under the mutex
  std::unique_ptr<Link> link_;            // last: its threads use the members above; NULL with one rank
};

}  // namespace pliant::accelerator
