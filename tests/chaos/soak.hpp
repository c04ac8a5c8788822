// Many disturbed jobs, some at a time, and a table of what they lost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pliant::test {

struct SoakOrder {
  int64_t jobs = 0;
  uint32_t first_seed = 1;
  std::vector<std::string> only;  ///< kinds; empty: all
  int at_once = 2;
};

struct Tally {
  std::string kind;
  int64_t jobs = 0;
  int64_t failed = 0;
  int64_t skipped = 0;
  std::string why_skipped;
  int64_t blows = 0;
  int64_t calls = 0;  ///< of `pliant run`
  int64_t recomputed = 0;
  int64_t healthy_lost = 0;
  double longest_gap = 0;    ///< seconds
  double longest_bound = 0;  ///< of that gap
};

/// Runs them and says of each that failed, on stderr, why and how it is played again. Call it before any thread is
/// made.
std::vector<Tally> soak(const SoakOrder& order);
/// Plays one, "KIND:SEED" or "calls:SEED:CALL", and says on stderr what was done, what the job said, and what is held
/// against it. True when that is nothing, or it cannot be played here.
bool replay(const std::string& job);
std::string table_of(const std::vector<Tally>& tallies);

}  // namespace pliant::test
