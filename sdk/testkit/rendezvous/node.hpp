// A node of a job: an instance of the rendezvous under test.
#pragma once

#include <chrono>
#include <future>
#include <string>

#include "pliant/sdk/rendezvous_rules.hpp"
#include "testkit/instance.hpp"

namespace pliant::testkit {

/// Past it a call that must come back counts as hung.
inline constexpr std::chrono::seconds kPatience{10};

/// What `join` answered.
struct Joined {
  int32_t workers = 0;  ///< that the node brings
  Reply told;
  pliant_generation generation{};
  std::string spilled;
  [[nodiscard]] bool ok() const { return told.ok(); }
  [[nodiscard]] bool is_alone() const { return ok() && generation.node_count == 1; }
};

/// What `watch` answered.
struct Watched {
  Reply told;
  int32_t changed = 0;
};

class Node : public Instance<pliant_rendezvous> {
 public:
  /// With the options that the user gave.
  Node(const OpenedPlugin& plugin, const Subject& subject) : Instance(plugin, subject, 0) {}

  [[nodiscard]] Joined join(const std::string& run, int32_t workers, unsigned char garbage = 0) {
    Room<pliant_join_request> request;
    request.given.local_workers = workers;
    request.given.run_id = {run.data(), run.size()};
    Room<pliant_generation> made(garbage);
    Joined joined;
    joined.workers = workers;
    joined.told = ask([&](pliant_error* error) { return table().join(self(), &request.given, &made.given, error); });
    joined.generation = made.given;
    joined.spilled = made.spilled("join");
    return joined;
  }
  [[nodiscard]] Watched watch(int32_t timeout_ms) {
    Watched made;
    made.changed = kUnwritten;
    made.told = ask([&](pliant_error* error) { return table().watch(self(), timeout_ms, &made.changed, error); });
    return made;
  }
  void leave() const { table().leave(self()); }

  static constexpr int32_t kUnwritten = 7777;
};

/// The result, or fails the check, saying that `what` has not come back.
template <class Result>
Result in_time(std::future<Result>& result, const std::string& what) {
  if (result.wait_for(kPatience) != std::future_status::ready) {
    fail(what + " has not returned after " + std::to_string(kPatience.count()) + " seconds");
  }
  return result.get();
}

/// True as soon as `node` is told to join again; fails the check when it is not.
inline void expect_changed(Node& node, const std::string& after) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (std::chrono::steady_clock::now() < end) {
    const Watched watched = node.watch(50);
    expect(watched.told.ok(), "watch returned " + watched.told.text());
    if (watched.changed == 1) return;
  }
  fail("watch reports no change after " + after);
}

}  // namespace pliant::testkit
