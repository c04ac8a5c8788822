// A communicator of GenericCollectives: its turn among the calls, its staging memory, and how it failed.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <optional>
#include <vector>

#include "accelerator/generic_collectives.hpp"

namespace pliant::detail {

/// A plugin's instance, called so that what it reports is thrown as sdk::Failure.
struct Called {
  const plugin::Instance& instance;

  [[nodiscard]] const pliant_accelerator& slots() const { return instance.table<pliant_accelerator>(); }
  [[nodiscard]] const pliant_collectives& collectives() const;
  template <class... Parameters, class... Arguments>
  void operator()(int32_t (*slot)(void*, Parameters...), Arguments... arguments) const {
    pliant_error error = plugin::fresh_error();
    const int32_t status = slot(instance.self(), arguments..., &error);
    if (status != PLIANT_OK) throw sdk::Failure(status, error.message);
  }
};

/// Pinned memory of a device.
class Stage {
 public:
  Stage(const Called& device, int32_t device_index, uint64_t bytes);
  ~Stage();
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  [[nodiscard]] std::byte* memory() const { return memory_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  const Called device_;
  const int32_t device_index_;
  const uint64_t bytes_;
  std::byte* memory_ = nullptr;
};

/// Pinned memory for one batch of messages after the other.
class MessageStage : public Stage {
 public:
  MessageStage(const Called& device, int32_t device_index, uint64_t bytes);
  ~MessageStage();
  [[nodiscard]] bool is_free() const;
  /// Free again when what is enqueued on `stream` by now has run.
  void lend_until(pliant_stream* stream);

 private:
  const Called device_;
  pliant_event* used_ = nullptr;
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

  Shared(GenericCollectives& all, int32_t used_device, const pliant_comm_id& id, int32_t own_rank, int32_t ranks);
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  /// One call: `body` enqueues its copies and steps. Throws what that throws; the communicator has failed then. [any
  /// thread]
  void call(const std::function<void()>& body);
  /// Enqueues a step of the present call; the stream goes on when the exchange is done.
  void step(pliant_stream* stream, Exchange exchange);
  void copy(const std::vector<pliant_copy>& copies, pliant_stream* stream) const;
  /// Within a call.
  const Stages& stages(pliant_stream* stream);
  MessageStage& message_stage(uint64_t bytes);

  void check();
  void fail(const sdk::Failure& failure);
  void wait_ready(int32_t timeout_ms);
  void abort();
  /// No step will call the carrier any more.
  void close();
  [[nodiscard]] bool is_idle() const { return pending_.load() == 0; }

  GenericCollectives& owner;
  const Called device;
  const Called carrier;
  const int32_t device_index;
  const int32_t rank;
  const int32_t world_size;
  bool is_direct = false;  ///< the carrier may use the device's memory, and there is no stage

 private:
  struct Step;
  static void run(void* context);
  void exchange_in_turn(const Step& step);

  pliant_comm* comm_ = nullptr;  ///< of the carrier
  pliant_stream* carrier_stream_ = nullptr;
  std::map<pliant_stream*, std::unique_ptr<Stages>> stages_;
  std::vector<std::unique_ptr<MessageStage>> message_stages_;
  std::atomic<uint64_t> pending_{0};  ///< steps enqueued and not run
  std::mutex calling_;                ///< steps are numbered in the order of the calls
  uint64_t steps_ = 0;                ///< so far
  std::mutex mutex_;                  ///< of the next three
  std::condition_variable changed_;
  uint64_t turn_ = 0;  ///< the step that may run
  std::optional<sdk::Failure> failure_;
  std::mutex carrier_mutex_;  ///< held during calls on comm_, which return at once
  bool closed_ = false;
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
  void enqueue(std::function<void()> collective, pliant_stream* stream);
  void enqueue(const Message& message, pliant_stream* stream);
  void begin_group();
  void end_group();
  [[nodiscard]] Shared& shared() const { return *shared_; }

 private:
  struct Open {
    std::vector<std::function<void()>> collectives;
    std::vector<Message> messages;
    pliant_stream* stream = nullptr;
  };
  /// The group that is open, or nullptr.
  Open* group_for(pliant_stream* stream);
  void exchange(const std::vector<Message>& messages, pliant_stream* stream);

  GenericCollectives& owner_;
  std::unique_ptr<Shared> shared_;
  std::mutex opening_;
  std::optional<Open> open_;
};

}  // namespace pliant::detail
