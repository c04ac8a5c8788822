// PeerWatch: how a communicator learns that a rank is lost or that calls do not fit together, and has all others know
// when it fails. The native collectives may wait for ever for a rank that is gone, and report nothing of what failed
// here: the carrier and the mailbox know.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "collectives/peers/carrier_comm.hpp"
#include "collectives/peers/mailbox.hpp"
#include "collectives/peers/native_comm.hpp"
#include "collectives/peers/turns.hpp"

namespace pliant::collectives {

/// Any thread may call.
class PeerWatch {
 public:
  /// How often look() wants to be called.
  static constexpr std::chrono::milliseconds kLookEvery{10};

  /// `renewal`: of which older one the native communicator may be made. All outlive this.
  PeerWatch(CarrierComm& carrier, Turns& turns, int32_t rank, NativeComm::Renewal renewal)
      : carrier_(carrier), turns_(turns), rank_(rank), renewal_(std::move(renewal)) {}

  /// What the ranks have agreed on; either may be NULL. Called once.
  void set(std::shared_ptr<NativeComm> native, std::unique_ptr<Mailbox> mailbox);
  [[nodiscard]] bool has_native() const;
  void set_native_joined();
  /// Until the native communicator, if there is one, has all ranks; `end` as of Turns. Throws what it reports.
  void await_native(std::optional<std::chrono::steady_clock::time_point> end);
  /// For a communicator that is made of this one; may be NULL.
  [[nodiscard]] std::shared_ptr<NativeComm> native_to_renew();
  /// [the thread that sets]
  [[nodiscard]] const NativeComm::Renewal& renewal() const { return renewal_; }
  /// What is enqueued on the older communicator runs to its end; then it goes.
  void drop_renewed();

  /// Ends all waits, here and of the other ranks. The first failure stands.
  void fail(const sdk::Failure& failure);
  void abort_native();
  /// What a failure that the carrier reports comes from.
  [[nodiscard]] sdk::Failure cause_of(const sdk::Failure& failure) const;
  /// Throws the failure of the communicator, and PLIANT_ABORTED when this rank has destroyed it.
  void check_here() const;
  /// The same, and throws what the carrier knows of the other ranks.
  void check_peers() const;

  /// Looks whether a rank is lost, and fails then. False: there is nothing more to watch. [one thread]
  bool look();
  /// Fails with what the native communicator knows, and look() has not seen yet. Waits for the carrier to name the
  /// rank, for 40 ms at most.
  void look_once_more();

  /// This rank calls nothing more. `is_carried`: all that it called was carried out. What it returns, if anything, is
  /// to be destroyed once the carrier is closed: it leaves with its peers, which takes a while.
  [[nodiscard]] std::shared_ptr<NativeComm> leave(bool has_failed, bool is_carried);
  /// The carrier is closed, too.
  void has_left();
  /// As of PeerMemory, of the mailbox.
  void let_go();
  [[nodiscard]] bool is_let_go() const;

 private:
  /// A rank that has left, and is missed. Under mutex_.
  [[nodiscard]] std::optional<sdk::Failure> lost_peer() const;
  [[nodiscard]] std::shared_ptr<NativeComm> native() const;

  CarrierComm& carrier_;
  Turns& turns_;
  const int32_t rank_;
  mutable std::mutex mutex_;
  std::unique_ptr<Mailbox> mailbox_;
  std::shared_ptr<NativeComm> native_;  ///< a share is with the communicator that is made of it
  bool is_renewed_ = false;             ///< by then it has one
  NativeComm::Renewal renewal_;
  int looks_for_name_ = 0;
};

}  // namespace pliant::collectives
