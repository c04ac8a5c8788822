// SharedEvent: what processes know of an event that they record and wait for together: a file without a name.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "common/processes/process_watch.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

/// All calls may come from any thread. A forked child has no say in it.
class SharedEvent : public ProcessWatch::Concerned, public std::enable_shared_from_this<SharedEvent> {
 public:
  /// Tells events apart, of all processes and for all time.
  using Nonce = std::pair<uint64_t, uint64_t>;
  /// In this order; kClaimed is on its way to kPending. kReady is for devices: nothing stands before the recording but
  /// work that is on the device.
  enum class State : uint32_t { kClaimed = 0, kPending = 1, kReady = 2, kReached = 3, kFailed = 4, kDied = 5 };
  /// One recording; number 0: none was made.
  struct Recording {
    uint64_t number = 0;
    uint32_t slot = 0;      ///< less than slots(); no other recording has it while this one is not over, or is held
    uint64_t recorder = 0;  ///< ProcessId::packed
  };
  static constexpr uint32_t kMostSlots = 1024;

  /// `watch` lives longer.
  static std::shared_ptr<SharedEvent> make(uint32_t slots, ProcessWatch& watch);
  /// One that another process made. Throws PLIANT_INVALID_ARGUMENT when the descriptor is none of it,
  /// PLIANT_FAILED_PRECONDITION when its maker has destroyed it.
  static std::shared_ptr<SharedEvent> open(int descriptor, const Nonce& nonce, ProcessWatch& watch);
  ~SharedEvent() override;
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  [[nodiscard]] const Nonce& nonce() const { return nonce_; }
  [[nodiscard]] uint32_t slots() const { return slots_; }
  /// The maker has destroyed it: it is not opened any more.
  void retire();
  /// This process made it.
  [[nodiscard]] bool is_own() const { return static_cast<bool>(file_); }
  /// Of its maker: what open() takes.
  [[nodiscard]] int descriptor() const { return file_.get(); }

  /// A new recording by this process, which is the latest. Throws PLIANT_RESOURCE_EXHAUSTED when no slot is free.
  [[nodiscard]] Recording record();
  [[nodiscard]] Recording latest() const;
  /// By the process that made the recording; wakes who waits.
  void set(const Recording& recording, State state);
  /// Of one that is kReady, when its process can say no more; does nothing when another was quicker.
  void settle(const Recording& recording, State state);
  /// kReached when it is over and its slot is used again.
  [[nodiscard]] State state(const Recording& recording) const;
  [[nodiscard]] static bool is_over(State state) { return state >= State::kReached; }
  /// What takes files is had before it is needed: a process that will record. Throws as ProcessWatch::watch().
  void watch(const ProcessId& process);
  /// From here on state() does not stay kPending for ever if the recording process ends. Throws as
  /// ProcessWatch::watch().
  void watch_recorder(const Recording& recording);
  /// Returns the first state that is not kPending; `past_ready`: nor kReady. Watches the recorder.
  State wait(const Recording& recording, bool past_ready);
  /// While it is held its slot is not used again. What was reached by then may be used again already: ask state().
  void hold(const Recording& recording);
  void release(const Recording& recording);

  /// Throws PLIANT_ABORTED for one that is over and was not reached.
  static void require_reached(const Recording& recording, State state);

  /// Recordings that are kReady stay so: only who sees the device knows whether they were reached.
  void ended(const ProcessId& process) override { bury(process, State::kPending); }

 private:
  struct Page;
  SharedEvent(UniqueFd file, Page* page, const Nonce& nonce, uint32_t slots, ProcessWatch& watch);
  [[nodiscard]] std::optional<Recording> claim();
  /// What `process` has recorded and is in no later state than `last` is kDied.
  void bury(const ProcessId& process, State last);

  const UniqueFd file_;  ///< of its maker
  Page* const page_;
  const Nonce nonce_;
  const uint32_t slots_;
  ProcessWatch& watch_;
  const ProcessId self_ = ProcessId::self();
  std::mutex mutex_;
  std::set<uint64_t> watched_;  ///< ProcessId::packed
};

}  // namespace pliant::accelerator
