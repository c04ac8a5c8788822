// GlooPeer: the connection with one other rank. Frames go both ways, in order; a thread applies what arrives.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/exchange/link.hpp"
#include "common/gloo/frame.hpp"

namespace gloo::transport {
class Context;
class Pair;
class UnboundBuffer;
}  // namespace gloo::transport

namespace pliant::accelerator {

/// Who applies what a peer says. Calls come from the peer's thread.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// The payload, if any, is in the segment. False: no rank says that.
  virtual bool apply(int32_t rank, const Frame& frame) = 0;
  /// Whether payload of `rank` may be written there.
  [[nodiscard]] virtual bool may_write(int32_t rank, const Frame& frame) const = 0;
  /// The connection is over and the peer had not left.
  virtual void lost(int32_t rank) = 0;
  virtual void broken(int32_t rank) = 0;
};

class GlooPeer {
 public:
  using Clock = std::chrono::steady_clock;

  /// Opens a socket that the peer can connect to. The segment outlives the peer.
  GlooPeer(FrameSink& sink, gloo::transport::Context& context, const Segment& segment, int32_t rank);
  ~GlooPeer();
  GlooPeer(const GlooPeer&) = delete;
  GlooPeer& operator=(const GlooPeer&) = delete;

  [[nodiscard]] std::string address() const;
  /// Blocks until connected, interrupted or out of time; throws std::exception then.
  void connect(const std::string& address);
  /// Ends connect(), now and from now on. Where this side calls and the other takes the call at once, it is let
  /// through.
  void interrupt();
  /// After connect: sends the first frame and begins to receive. Throws std::exception.
  void start(const Frame& hello);
  /// Ends the thread. Idempotent.
  void stop();

  /// How long a frame waits for the peer to have taken earlier ones.
  enum class Patience { kWaits, kTries };
  /// The payload is read from the segment, at frame.where, until the peer has it. Does nothing once the connection is
  /// over.
  void send(const Frame& frame, Patience patience = Patience::kWaits);
  /// Until the peer has the frame kLeft and all before it; false: not by then.
  bool drain(Clock::time_point deadline);
  /// Frames that wait for the peer wait no more.
  void give_up();
  [[nodiscard]] Clock::duration silence() const;
  /// Takes the peer as heard of now.
  void forgive();

 private:
  void receive();
  /// Takes the next cell for it. With the lock held.
  void put(const Frame& frame);
  bool take(uint64_t number);
  bool fetch_payload(const Frame& frame);
  void acknowledge(bool at_once);
  void post_frame(uint64_t number);
  void post_payload(uint64_t number);
  void end();

  enum class Call { kNone, kCalling, kCalled };

  FrameSink& sink_;
  gloo::transport::Context& context_;
  const Segment& segment_;
  const int32_t own_;
  const int32_t rank_;
  const uint64_t ranks_;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::vector<std::byte> payloads_;
  gloo::transport::Pair* pair_;  // of the context
  std::unique_ptr<gloo::transport::UnboundBuffer> in_buffer_;
  std::unique_ptr<gloo::transport::UnboundBuffer> out_buffer_;
  std::unique_ptr<gloo::transport::UnboundBuffer> payload_buffer_;
  std::unique_ptr<gloo::transport::UnboundBuffer> segment_buffer_;

  std::mutex connect_mutex_;
  std::condition_variable connect_ended_;
  Call call_ = Call::kNone;  ///< while connect() waits: who of the two calls
  bool interrupted_ = false;

  std::mutex mutex_;
  std::condition_variable room_;
  uint64_t sent_ = 0;
  uint64_t left_at_ = 0;                   ///< frames sent when kLeft was the last of them
  std::atomic<uint64_t> acknowledged_{0};  ///< of those sent
  std::atomic<uint64_t> received_{0};
  std::atomic<uint64_t> told_{0};  ///< of those received, told to the peer
  uint64_t payloads_taken_ = 0;
  bool started_ = false;
  bool over_ = false;
  bool given_up_ = false;
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> heard_at_;
  std::thread thread_;
};

}  // namespace pliant::accelerator
