// Ranks: processes that form a communicator, and the check that conducts them.
#pragma once

#include <string>
#include <vector>

#include "testkit/accelerator.hpp"
#include "testkit/arguments.hpp"
#include "testkit/process.hpp"

namespace pliant::testkit {

/// The check's side. Whatever a rank reports as failed fails the check, with the rank's number.
class Ranks {
 public:
  /// Time in which a rank must answer; past it the plugin counts as hung.
  static constexpr int32_t kAnswerMs = 15000;
  /// Starts `world_size` processes that run `script`.
  Ranks(const Subject& subject, const std::string& script, int32_t world_size,
        const std::vector<int64_t>& numbers = {});

  /// Carries the communicator's id from rank 0 to the others. `made` stays at the check.
  void carry_id();
  void tell(int32_t rank, const std::string& text = "go");
  void tell_all(const std::string& text = "go");
  /// What the rank tells; `awaited` names it in the failure when nothing comes.
  std::string hear(int32_t rank, const std::string& awaited);
  void hear_all(const std::string& awaited);
  /// All ranks, less `except`, come to their end in good order.
  void finish(int32_t except = -1);

  /// Waits until the rank has ended, and fails the check with what it failed with. Empty: it came to its end in good
  /// order; otherwise the words for how it crashed.
  std::string crash_of(int32_t rank);
  void kill(int32_t rank);
  /// Returns when the rank stands.
  void stop(int32_t rank);
  void resume(int32_t rank);
  [[nodiscard]] int32_t count() const { return static_cast<int32_t>(processes_.size()); }

 private:
  [[nodiscard]] std::string name(int32_t rank) const;
  std::vector<Process> processes_;
};

/// A rank's side.
struct Rank {
  const Accelerator& accelerator;
  int32_t rank;
  int32_t world_size;
  uint64_t seed;
  std::vector<int64_t> numbers;

  void tell(const std::string& text) const;
  /// Waits for the check; the rank dies with it.
  std::string hear() const;
  /// The id that rank 0 makes and the check carries.
  [[nodiscard]] pliant_comm_id id() const;
};

class Comm {
 public:
  /// Fails unless comm_create takes it.
  Comm(const Rank& rank, const pliant_comm_id& id);
  operator pliant_comm*() const { return handle_; }  // NOLINT(google-explicit-constructor)
  [[nodiscard]] Outcome status(int32_t timeout_ms) const;
  /// Waits until all ranks have joined.
  void join() const;
  void abort() const;
  void destroy() { handle_.reset(); }

 private:
  sdk::OwnedComm handle_;
};

/// What a rank may be started for.
struct Script {
  const char* name;
  void (*run)(const Rank& rank);
};
std::vector<Script> collective_scripts();
std::vector<Script> piece_scripts();
std::vector<Script> failure_scripts();
std::vector<Script> loss_scripts();
std::vector<Script> renewal_scripts();
std::vector<Script> window_scripts();
std::vector<Script> lifetime_scripts();
std::vector<Script> fork_scripts();
std::vector<Script> memory_scripts();
std::vector<Script> leak_scripts();
std::vector<Script> ipc_scripts();
std::vector<Script> ipc_event_scripts();

/// The other side of Ranks: what the started process does.
void perform_rank(const Arguments& arguments);

/// Skips the check when the plugin has no collectives.
void need_collectives(const Subject& subject);

}  // namespace pliant::testkit
