// A communicator of GenericCollectives: its turn among the calls, its staging memory, and how it failed.
//
// Where the device has memory that other processes map, what a call does is decided late: the ranks agree, on a thread
// of the communicator, whether all of them can, and the call waits in its stream until that thread has carried it out
// on a stream of its own. The call itself returns at once. The same where the accelerator has collectives of its own
// that take part only if no two ranks share a device; once that is agreed, calls go to them directly.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/generic_collectives.hpp"
#include "collectives/peers/called.hpp"
#include "collectives/peers/mailbox.hpp"
#include "collectives/peers/native_comm.hpp"
#include "collectives/peers/peer_memory.hpp"

namespace pliant::detail {

/// Pinned memory of a device.
class Stage {
 public:
  Stage(const Called& device, int32_t device_index, uint64_t bytes)
      : bytes_(bytes), memory_(device.slots, device_index, PLIANT_MEMORY_PINNED, bytes) {}
  [[nodiscard]] std::byte* memory() const { return static_cast<std::byte*>(memory_.get()); }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_;
  sdk::OwnedMemory memory_;
};

/// Pinned memory for one batch of messages after the other.
class MessageStage : public Stage {
 public:
  MessageStage(const Called& device, int32_t device_index, uint64_t bytes)
      : Stage(device, device_index, bytes), used_(sdk::make_event(device.slots, device_index)) {}
  [[nodiscard]] bool is_free() const;
  /// Free again when what is enqueued on `stream` by now has run.
  void lend_until(pliant_stream* stream);

 private:
  sdk::OwnedEvent used_;
};

/// What enqueued work needs of a communicator; outlives it until that work has run.
struct GenericCollectives::Shared {
  /// What a step does on the carrier: enqueues on its stream.
  using Exchange = std::function<void(pliant_comm*, pliant_stream*)>;
  /// A call passes through these in pieces. Calls on one stream use the same.
  static constexpr uint64_t kStageBytes = uint64_t{4} << 20U;
  struct Stages {
    Stage in;
    Stage out;
  };

  /// `renewal`: of which older one the accelerator's own collectives may make theirs.
  Shared(GenericCollectives& all, int32_t used_device, const pliant_comm_id& id, int32_t own_rank, int32_t ranks,
         OwnComm::Renewal renewal = {});
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  /// One call on `stream`: `body` enqueues its copies and steps on the stream that it is given. Throws what that
  /// throws; the communicator has failed then. [any thread]
  using Body = std::function<void(pliant_stream* on)>;
  void call(const Body& body, pliant_stream* stream);
  /// Enqueues a step of the present call; the stream goes on when the exchange is done. `after`, if any, may then
  /// throw.
  void step(pliant_stream* stream, Exchange exchange, std::function<void()> after = {});
  void copy(const std::vector<pliant_copy>& copies, pliant_stream* stream) const;
  /// Within a call.
  const Stages& stages(pliant_stream* stream);
  MessageStage& message_stage(uint64_t bytes);

  void check();
  /// The same, and throws when this rank has destroyed the communicator.
  void check_here();
  /// The same, and throws what the carrier knows of the other ranks.
  void check_peers();
  void fail(const sdk::Failure& failure);
  /// What a failure that the carrier reports comes from.
  [[nodiscard]] sdk::Failure cause_of(const sdk::Failure& failure);
  void wait_ready(int32_t timeout_ms);
  void abort();
  /// No step will call the carrier any more.
  void close();
  [[nodiscard]] bool is_idle() const { return pending_.load() == 0; }
  /// The stages of other ranks, once all have agreed on them; else NULL. Within a call.
  [[nodiscard]] PeerMemory* peers() const { return peers_.get(); }
  /// Where calls are told of that need it, once all have agreed on that; else NULL. Within a call.
  [[nodiscard]] Board* board() const { return board_.get(); }
  /// The accelerator's own collectives, once all have agreed on them; else NULL. Within a call.
  [[nodiscard]] const OwnComm* own() const { return own_.get(); }
  /// The same for a communicator that is made of this one.
  [[nodiscard]] std::shared_ptr<OwnComm> own_to_renew();
  /// That own() took one more call, for which it may wait for ranks that have left. Within a call.
  void count_collective() const;
  void count_message(bool is_send, int32_t peer) const;
  /// Idle for good: nothing of other ranks is used any more.
  void let_go();
  /// Once idle for good: ends the thread.
  void stop_work();
  /// Idle, and nobody uses what is freed with this.
  [[nodiscard]] bool may_go() const;

  GenericCollectives& owner;
  const Called device;
  const Called carrier;
  const int32_t device_index;
  const int32_t rank;
  const int32_t world_size;
  bool is_direct = false;  ///< the carrier may use the device's memory, and there is no stage
  bool is_late = false;    ///< calls are carried out by a thread: what they do is agreed on first

 private:
  struct Step;
  struct Job;
  struct Awaited;
  static void run(void* context);
  static void await(void* context);
  void note_failure(const sdk::Failure& failure, pliant_stream* stream);
  void decline(pliant_stream* stream);
  void call_late(const Body& body, pliant_stream* stream);
  void work();
  /// The next call that a thread carries out; NULL: it is to end.
  std::shared_ptr<Job> next_job();
  /// The accelerator's own collectives may wait for ever for a rank that is gone, and tell nobody of what failed here:
  /// the carrier knows, and tells. False: there is nothing more to watch.
  bool watch();
  /// A rank that has left, and is missed. Under jobs_mutex_.
  [[nodiscard]] std::optional<sdk::Failure> lost_peer() const;
  void carry_out(const Job& job);
  void await_late_stream();
  /// Fails with what the accelerator's own collectives know, and watch() has not seen yet.
  void note_own_failure();
  /// What is enqueued on the older communicator runs to its end; then it goes.
  void drop_renewed();
  void agree();
  void agree_on_memory(const Gather& gather);
  /// One on every rank, or NULL on every rank.
  std::unique_ptr<Board> make_board(const Gather& gather);
  /// Under jobs_mutex_. May be NULL.
  void set_board(std::unique_ptr<Board> board);
  /// Within carrier_mutex_.
  void require_open() const;
  void begin_work();
  void await_agreement(std::chrono::steady_clock::time_point end, bool has_end);
  /// Calls go to the accelerator's own collectives, and none is left that a thread carries out.
  [[nodiscard]] bool is_settled();
  void exchange_in_turn(const Step& step);

  sdk::OwnedStream carrier_stream_;
  sdk::OwnedComm comm_;  ///< of the carrier
  std::map<pliant_stream*, std::unique_ptr<Stages>> stages_;
  std::vector<std::unique_ptr<MessageStage>> message_stages_;
  std::atomic<uint64_t> pending_{0};  ///< steps enqueued and not run
  std::mutex calling_;                ///< steps are numbered in the order of the calls
  uint64_t steps_ = 0;                ///< so far
  std::mutex mutex_;                  ///< of the next four
  std::condition_variable changed_;
  uint64_t turn_ = 0;  ///< the step that may run
  std::optional<sdk::Failure> failure_;
  bool has_agreed_ = false;
  std::mutex carrier_mutex_;  ///< held during calls on comm_, which return at once
  bool closed_ = false;

  bool has_met_ = false;  ///< the first step, in which all ranks tell what they can, is enqueued or done
  std::unique_ptr<PeerMemory> peers_;
  sdk::OwnedStream late_stream_;
  std::mutex jobs_mutex_;  ///< of all below; the worker reads board_ and own_ without it
  std::condition_variable jobs_changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool working_ = false;
  bool is_carrying_ = false;  ///< a job is not done
  std::unique_ptr<Board> board_;
  std::shared_ptr<OwnComm> own_;  ///< a share is with the communicator that is made of it
  bool is_renewed_ = false;       ///< by then it has one
  OwnComm::Renewal renewal_;      ///< only the worker writes
  int looks_for_name_ = 0;        ///< the worker's
  std::thread worker_;
};

class GenericCollectives::Comm {
 public:
  Comm(GenericCollectives& owner, std::unique_ptr<Shared> shared) : owner_(owner), shared_(std::move(shared)) {}
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  struct Message {
    bool is_send = false;
    void* buffer = nullptr;
    sdk::Elements elements;
    int32_t peer = 0;
  };
  /// Now, or in a group at its end.
  void enqueue(Shared::Body collective, pliant_stream* stream);
  void enqueue(const Message& message, pliant_stream* stream);
  void begin_group();
  void end_group();
  /// Within a call: all at once.
  static void exchange(Shared& shared, const std::vector<Message>& messages, pliant_stream* stream);
  [[nodiscard]] Shared& shared() const { return *shared_; }

 private:
  struct Open {
    std::vector<Shared::Body> collectives;
    std::vector<Message> messages;
    pliant_stream* stream = nullptr;
  };
  /// The group that is open, or nullptr.
  Open* group_for(pliant_stream* stream);

  GenericCollectives& owner_;
  std::unique_ptr<Shared> shared_;
  std::mutex opening_;
  std::optional<Open> open_;
};

}  // namespace pliant::detail
