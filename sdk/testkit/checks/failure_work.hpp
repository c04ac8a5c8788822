// What the checks of failing collectives share.
#pragma once

#include "testkit/collective_work.hpp"

namespace pliant::testkit {

/// The collective that the check has named to the rank as its first number.
inline Collective kind_of(const Rank& rank) {
  return static_cast<Collective>(rank.numbers.at(0));
}

/// What the enqueued call, or the wait for it, ended with.
inline Outcome ended(const CollectiveWork& work, const Comm& comm, const Stream& stream) {
  const Outcome enqueued = work.enqueue(comm, stream);
  const Outcome waited = stream.synchronize();
  return enqueued.ok() ? waited : enqueued;
}

/// Runs `script` for every collective, with what `conduct` does in between.
template <class Conduct>
void for_each_collective(const Subject& subject, const char* script, int32_t world_size,
                         const std::vector<int64_t>& numbers, Conduct&& conduct) {
  need_collectives(subject);
  for (const Collective kind : kCollectives) {
    std::vector<int64_t> all{static_cast<int64_t>(kind)};
    all.insert(all.end(), numbers.begin(), numbers.end());
    Ranks ranks(subject, script, world_size, all);
    ranks.carry_id();
    conduct(ranks, kind);
  }
}

}  // namespace pliant::testkit
