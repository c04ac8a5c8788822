// Peers: what a rank knows of the others of its machine, by itself: which has died, which calls something else, which
// gave up. NCCL tells of these late, in words or never.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/exchange/failure_cause.hpp"
#include "common/processes/process_watch.hpp"
#include "peer_page.hpp"

namespace pliant::cuda {

/// Ranks that share no machine, process id space or user with this one are left to NCCL; so are all where a process has
/// no descriptor left.
class Peers final : public accelerator::ProcessWatch::Concerned, public std::enable_shared_from_this<Peers> {
 public:
  explicit Peers(int32_t rank);

  /// What the others need to know; all 0 where this rank has no page.
  [[nodiscard]] PageName name() const { return page_ ? page_->name() : PageName{}; }
  /// `names`: of all ranks. Called once, before all below that say so.
  void meet(std::span<const PageName> names, accelerator::ProcessWatch& watch);

  /// After meet(), in the order of the calls and before NCCL is called: shows them to the others and compares. Throws
  /// PLIANT_INVALID_ARGUMENT, about the rank that calls something else.
  void note(std::span<const CallNote> calls);
  /// After meet(), from any thread: why the communicator has failed for all, as others tell or their processes do.
  /// `also_ends`: or why it may have failed: a rank has given it up.
  [[nodiscard]] std::optional<sdk::Failure> found(bool also_ends) const;
  [[nodiscard]] bool has_any() const { return !others_.empty(); }

  /// It has failed here. The first cause stands. `own`: by what this rank did; kNone: by nothing that it did.
  void tell(const sdk::Failure& failure, accelerator::FailureCause::Kind own);
  /// It ended here when nothing ran, so that the end of this process is nobody's loss.
  void leave();

  void ended(const accelerator::ProcessId& process) override;

 private:
  struct Other {
    int32_t rank = -1;
    size_t place = 0;  ///< among the ranks of the machine
    std::unique_ptr<const PeerPage> page;
    std::atomic<bool> has_ended{false};
  };
  struct Noted {
    CallNote note;
    uint64_t number;
  };
  [[nodiscard]] const Other* at(int32_t rank) const;
  [[nodiscard]] Noted show(const CallNote& call);
  void compare(const Noted& own, const Other& other);
  void compare_messages(const Noted& own, const Other& other);
  [[noreturn]] void differ(const Other& other, const std::string& words);

  const int32_t rank_;
  size_t place_ = 0;
  std::unique_ptr<PeerPage> page_;
  std::vector<std::unique_ptr<Other>> others_;  ///< of this machine, in rank order; as meet() leaves them
  std::vector<const Other*> neighbours_;        ///< all are compared where each is compared with these
};

}  // namespace pliant::cuda
