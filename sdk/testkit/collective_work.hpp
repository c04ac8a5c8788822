// CollectiveWork: one call of a collective by one rank, with its buffers and what must be in them afterwards.
#pragma once

#include "testkit/ranks.hpp"
#include "testkit/values.hpp"

namespace pliant::testkit {

/// kMessages: a group in which every rank sends to every rank, itself included, and receives from it.
enum class Collective { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kBarrier, kAllGatherV, kMessages };
inline constexpr Collective kCollectives[] = {
    Collective::kAllReduce, Collective::kAllGather,  Collective::kReduceScatter, Collective::kBroadcast,
    Collective::kBarrier,   Collective::kAllGatherV, Collective::kMessages};

const char* name_of(Collective kind);

struct CollectiveCall {
  Collective kind = Collective::kBarrier;
  int32_t dtype = PLIANT_F32;
  int32_t op = PLIANT_SUM;
  uint64_t count = 1000;
  int32_t root = 0;  ///< all others wait for it in a broadcast, and in an all_gather_v, to which others may add nothing
  bool in_place = false;  ///< send and receive buffer are one, where sizes are equal
  Draw draw = Draw::kSmall;
};

class CollectiveWork {
 public:
  /// Contents are drawn from the rank's seed and `call`, so that every rank knows those of all.
  CollectiveWork(const Rank& rank, const CollectiveCall& call);
  [[nodiscard]] Outcome enqueue(const Comm& comm, const Stream& stream) const;
  /// Fails unless the receive buffer holds the result, nothing beside it changed and the input is as it was.
  /// `units` in the last place of the sum of all magnitudes may be wrong.
  void verify(int units = 0) const;
  /// The bytes received.
  [[nodiscard]] Bytes received() const;
  [[nodiscard]] std::string words() const;

 private:
  /// `count` elements of what the rank sends, from `first` on.
  [[nodiscard]] Elements input(int32_t rank, uint64_t first, uint64_t count) const;
  [[nodiscard]] Elements input(int32_t rank) const { return input(rank, 0, send_count(rank)); }
  [[nodiscard]] Elements wanted() const;
  [[nodiscard]] Outcome enqueue_messages(const Comm& comm, const Stream& stream) const;
  [[nodiscard]] uint64_t send_count(int32_t rank) const;
  [[nodiscard]] uint64_t receive_count() const;
  [[nodiscard]] bool one_buffer() const;
  const Rank& rank_;
  CollectiveCall call_;
  Guarded send_;
  Guarded receive_;
};

}  // namespace pliant::testkit
