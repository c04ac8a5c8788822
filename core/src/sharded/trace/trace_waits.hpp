// caused_waits(): why a program stood still at the visits of a trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sharded/trace/trace_file.hpp"

namespace pliant::sharded {

enum class WaitCause {
  kNoTrace,       ///< gathered as it was entered: no pass before began with these visits
  kLeftTrace,     ///< likewise: the pass had left the order of every pass before
  kOnDemand,      ///< likewise, though the order was known
  kBudgetFull,    ///< gathered only once something was released: before that it did not fit
  kExchangeBusy,  ///< its gather stood behind others, or behind gradients
  kAfterProgram,  ///< its gather stood behind work of the program, which the exchange's stream had to follow
  kOtherRank,     ///< another rank came to the gather later
  kTransfer,      ///< the gather itself took that long
  kGradients,     ///< gradients were on their way, and what they take was needed, or all of them
  kNotRecorded,   ///< its gather is not in the trace
};
inline constexpr size_t kWaitCauses = 10;

/// "budget_full", for programs.
const char* word_of(WaitCause cause);
/// "budget full", for people.
const char* words_of(WaitCause cause);

/// A visit that began late, or another call that waited.
struct CausedWait {
  size_t call = 0;                            ///< of the rank's calls: the one that waited
  std::vector<uint32_t> parameters;           ///< that it waited for, in turn
  double began = 0;                           ///< microseconds, of the first
  double microseconds = 0;                    ///< of all of them
  WaitCause cause = WaitCause::kNotRecorded;  ///< of the longest
  std::string why;                            ///< "budget full until layers.5 was released"
};

/// The waits of the rank at place `of` of TraceFile::ranks, in turn; one where a call waited for several parameters.
/// The cause is what made at least half of the longest wait, the first of: another rank, demand, other transfers, room,
/// the program. Other ranks are looked at in the time of this machine: their clocks are one where they ran on one
/// machine, and a rank that began after the transfer had ended counts for nothing. The trace is of a sharded job and
/// in_turn(). O(calls + transfers * parameters of each + waits * (ranks + transfers in front of its gather)).
std::vector<CausedWait> caused_waits(const TraceFile& trace, size_t of);

/// "layers.7 (backward) began 3.1 ms late: budget full until layers.5 was released"
std::string sentence_of(const TraceFile& trace, size_t of, const CausedWait& wait);

/// "3.1 ms", "0.04 ms".
std::string milliseconds_text(double microseconds);

}  // namespace pliant::sharded
