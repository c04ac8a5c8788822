// GlooJoining: one rank's way into a communicator across machines: to the rendezvous, and from there to every peer.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/exchange/failure_cause.hpp"
#include "common/gloo/network.hpp"
#include "common/gloo/peer.hpp"
#include "common/gloo/rendezvous.hpp"

namespace pliant::accelerator {

class GlooJoining {
 public:
  using Peers = std::vector<std::unique_ptr<GlooPeer>>;
  /// By rank; NULL at the own one. `failed` is told, from a thread, why this rank cannot join.
  GlooJoining(const NetworkId& id, int32_t rank, Peers& peers, std::function<void(FailureCause)> failed);
  ~GlooJoining();
  GlooJoining(const GlooJoining&) = delete;
  GlooJoining& operator=(const GlooJoining&) = delete;
  /// Throws PLIANT_RESOURCE_EXHAUSTED.
  void start();
  /// Gives up what is not done, and has the rendezvous know, which takes a second at most. Idempotent.
  void stop();
  /// A peer has said hello. Once all have, the rendezvous hears of it.
  void greeted();
  /// Those who are not connected yet hear of `cause` by the rendezvous. The first cause stands.
  void tell(FailureCause cause);

 private:
  void join();
  /// Empty when there is nothing more to do here.
  std::optional<NoteChannel> reach_rendezvous();
  bool follow(const Note& note);
  /// Pushes what is to be told and was not yet.
  void push_failure(NoteChannel& channel);
  void say_last_words(NoteChannel& channel);
  void connect_all(const std::string& table);
  void fail(FailureCause cause);

  const NetworkId id_;
  const int32_t rank_;
  Peers& peers_;
  const std::function<void(FailureCause)> failed_;
  Knock knock_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> greetings_{0};
  std::atomic<uint64_t> failure_{0};  ///< FailureCause::packed()
  bool failure_pushed_ = false;
  std::thread joining_;
  std::thread connecting_;
};

}  // namespace pliant::accelerator
