// Packs failure causes and words them.
#include "common/exchange/failure_cause.hpp"

#include <cstring>
#include <string>

namespace pliant::accelerator {

using sdk::Failure;

uint64_t FailureCause::packed() const {
  return static_cast<uint64_t>(kind) << 56U | static_cast<uint64_t>(rank + 1) << 32U | static_cast<uint32_t>(detail);
}

FailureCause FailureCause::unpack(uint64_t word) {
  return {static_cast<Kind>(word >> 56U), static_cast<int32_t>((word >> 32U) & 0xffffffU) - 1,
          static_cast<int32_t>(word & 0xffffffffU)};
}

Failure FailureCause::to_failure(int32_t own, const std::string& meeting) const {
  return in_words(own, meeting).about_rank(about(own));
}

int32_t FailureCause::about(int32_t own) const {
  if (kind == kNotConnected && rank == own) return detail;
  if (kind == kRankTaken) return rank;  // the own one, too
  return rank == own && kind != kInjected ? -1 : rank;
}

Failure FailureCause::in_words(int32_t own, const std::string& meeting) const {
  const std::string who = "rank " + std::to_string(rank);
  switch (kind) {
    case kDied:
      return {PLIANT_PEER_LOST, who + " is lost: its process (pid " + std::to_string(detail) + ") ended"};
    case kMakerDied:
      return {PLIANT_PEER_LOST, "the rank that made the communicator id is lost: its process (pid " +
                                    std::to_string(detail) + ") ended before it joined"};
    case kLeft:
      if (rank == own) return FailureCause{kDestroyed, rank, 0}.in_words(own, meeting);
      return {PLIANT_PEER_LOST, who + " is lost: it destroyed the communicator while this rank still needed it"};
    case kInjected:
      return {PLIANT_PEER_LOST, who + " is lost: the simulator injected its loss"};
    case kAborted:
      return {PLIANT_ABORTED, rank == own ? "this rank aborted the communicator" : who + " aborted the communicator"};
    case kMismatch:
      return {PLIANT_INVALID_ARGUMENT,
              "the ranks made calls that do not fit together; " + who + " saw it first and can say which"};
    case kDestroyed:
      return {PLIANT_ABORTED, "this rank destroyed the communicator while work was enqueued on it"};
    case kUnwatched:
      return {PLIANT_RESOURCE_EXHAUSTED,
              "cannot watch " + who + ": " + std::strerror(detail) +
                  "; a death there would go unnoticed (Linux 5.3 and a free descriptor for each rank are needed)"};
    case kDisconnected:
      return {PLIANT_PEER_LOST, who + " is lost: its connection was closed; its process or machine ended, or cut it"};
    case kSilent:
      return {PLIANT_PEER_LOST, who + " is lost: nothing was heard of it for " + std::to_string(detail) +
                                    " seconds (peer_timeout_seconds); it hangs, or the network between is cut"};
    case kMakerGone:
      return {PLIANT_PEER_LOST,
              "the rank that made the communicator id is lost: it closed the rendezvous before all had joined"};
    case kUnreachable:
      return {PLIANT_PEER_LOST, "cannot reach the rank that made the communicator id at " + meeting + ": " +
                                    std::strerror(detail) +
                                    "; it has ended or given the communicator up, the interface that it names is not "
                                    "reached from here, or a firewall is between"};
    case kNotConnected:
      return {PLIANT_PEER_LOST, (detail == own ? std::string("cannot") : "rank " + std::to_string(detail) + " cannot") +
                                    " connect with " + who +
                                    ": one of them has ended, or their interfaces do not reach each other"};
    case kRankTaken:
      return {PLIANT_INVALID_ARGUMENT, who + " has joined already; every rank joins once, and an id is used once"};
    case kBroken:
      return {PLIANT_PEER_LOST,
              who + " is lost: it sent what no rank of this build sends; run one version on all machines"};
    case kNone:
      break;
  }
  return {PLIANT_INTERNAL, "the communicator failed without a cause"};
}

}  // namespace pliant::accelerator
