// What the checks of failing collectives share.
#pragma once

#include <sstream>
#include <string>

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

/// What a rank was told when its work ended, as it tells the check.
struct Told {
  Outcome outcome;
  int64_t at_ns = 0;       ///< when it was told
  bool says_whom = false;  ///< Accelerator::says_whom()
};

inline std::string told(const Rank& rank, const Outcome& outcome, int64_t at_ns = 0) {
  std::ostringstream out;
  out << outcome.status << ' ' << outcome.rank << ' ' << at_ns << ' ' << rank.accelerator.says_whom() << ' '
      << outcome.message;
  return out.str();
}

inline Told heard(const std::string& said) {
  std::istringstream in(said);
  Told told;
  in >> told.outcome.status >> told.outcome.rank >> told.at_ns >> told.says_whom;
  std::getline(in >> std::ws, told.outcome.message, '\0');
  return told;
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
