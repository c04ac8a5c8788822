// Sends what this rank publishes to those who need it, and applies what they publish.
//
// Every chunk goes straight from the rank that has it to those that take it. A reduction so gets each rank's input by
// itself and adds in rank order, the same bits as over shared memory; a ring would add in an order that differs from
// part to part. All-gather and reduce-scatter move no byte more than a ring does, and need one step where a ring needs
// N - 1.
#include "common/gloo/gloo_link.hpp"

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "common/exchange/group.hpp"
#include "common/gloo/api.hpp"
#include "common/gloo/joining.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

using Clock = std::chrono::steady_clock;

/// How long those who were told of a failure may take to hear it.
constexpr std::chrono::seconds kGoodbyeTime{1};

/// What this rank has taken goes with its next frame, or by itself after so many ticks. Nobody waits for the ticks that
/// are not told: whoever waits to fill a slot again has posted kSlots - 1 ticks since, all of which can be taken.
constexpr uint64_t kTakenTogether = 2;
static_assert(kTakenTogether < kSlots);

class GlooLink final : public Link, private FrameSink {
 public:
  GlooLink(Group& group, const NetworkId& id, const NetworkSettings& network, std::shared_ptr<UniqueFd> listener)
      : group_(group), id_(id), network_(network), listener_(std::move(listener)) {}
  ~GlooLink() override { stop(); }

  void start() override;
  [[nodiscard]] std::string meeting() const override { return id_.address().text(); }
  void stop() override;
  void published(Stage stage, uint64_t ticks, const Parcels* parcels) override;
  void posted(int32_t peer, uint32_t slot, uint64_t bytes) override;
  void turned(int32_t peer) override;
  void failed(FailureCause cause) override;
  void left() override;

 private:
  bool apply(int32_t rank, const Frame& frame) override;
  [[nodiscard]] bool may_write(int32_t rank, const Frame& frame) const override;
  void lost(int32_t rank) override;
  void broken(int32_t rank) override { group_.fail({FailureCause::kBroken, rank, 0}); }
  bool greet(int32_t rank, const Frame& frame);
  bool apply_ticks(int32_t rank, const Frame& frame);
  bool apply_posted(int32_t rank, const Frame& frame);
  /// `rank` has done `stage` of all ticks before `ticks`.
  void arrive(int32_t rank, Stage stage, uint64_t ticks);

  void keep_alive();
  void cannot_join(FailureCause cause);
  /// The peers in an order that differs from rank to rank, so that not all send to the same one first.
  template <class Body>
  void for_each_peer(const Body& body) const {
    for (int32_t i = 1; i < group_.world_size(); ++i) {
      const int32_t r = (group_.rank() + i) % group_.world_size();
      if (GlooPeer* peer = peers_[static_cast<size_t>(r)].get()) body(r, *peer);
    }
  }
  [[nodiscard]] uint64_t offset(const std::byte* at) const {
    return static_cast<uint64_t>(at - group_.segment().base());
  }
  [[nodiscard]] std::chrono::milliseconds patience() const {
    const bool limited = network_.peer_timeout_seconds > 0;
    return limited ? std::chrono::seconds(network_.peer_timeout_seconds) : std::chrono::hours(1);
  }

  Group& group_;
  const NetworkId id_;
  const NetworkSettings network_;
  std::shared_ptr<UniqueFd> listener_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::shared_ptr<gloo::transport::Context> context_;
  GlooJoining::Peers peers_;
  std::vector<uint64_t> taken_told_;  ///< by rank: own progress in Stage::kTaken that it was told
  std::unique_ptr<RendezvousServer> server_;
  std::unique_ptr<GlooJoining> joining_;
  std::atomic<bool> failure_told_{false};
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::thread keeping_alive_;
};

void GlooLink::start() {
  taken_told_.resize(static_cast<size_t>(group_.world_size()));
  device_ = make_gloo_device(network_.own.host());
  try {
    context_ = device_->createContext(group_.rank(), group_.world_size());
    context_->setTimeout(std::max<std::chrono::milliseconds>(patience(), std::chrono::seconds(30)));
    for (int32_t r = 0; r < group_.world_size(); ++r) {
      peers_.push_back(r == group_.rank() ? nullptr
                                          : std::make_unique<GlooPeer>(static_cast<FrameSink&>(*this), *context_,
                                                                       group_.segment(), r));
    }
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                  "Gloo cannot listen for the other ranks on " + network_.own.host() + ": " + refused.what());
  }
  if (listener_) server_ = std::make_unique<RendezvousServer>(id_, std::move(listener_));
  joining_ =
      std::make_unique<GlooJoining>(id_, group_.rank(), peers_, [this](FailureCause cause) { cannot_join(cause); });
  joining_->start();
  if (network_.peer_timeout_seconds == 0) return;
  try {
    keeping_alive_ = std::thread([this] { keep_alive(); });
  } catch (const std::system_error& refused) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no thread to watch the other ranks: ") + refused.what());
  }
}

void GlooLink::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    stopping_.notify_all();
  }
  if (joining_) joining_->stop();
  if (keeping_alive_.joinable()) keeping_alive_.join();
  for (const auto& peer : peers_) {
    if (peer) peer->stop();
  }
  server_.reset();
  peers_.clear();  // its buffers keep the context
  context_.reset();
  device_.reset();
}

void GlooLink::cannot_join(FailureCause cause) {
  // Whoever came too late for its rank must not end the communicator of those who have joined.
  if (cause.kind == FailureCause::kRankTaken) return group_.fail_here(cause);
  group_.fail(cause);
}

void GlooLink::published(Stage stage, uint64_t ticks, const Parcels* parcels) {
  const uint64_t tick = ticks - 1;
  const uint64_t slot = offset(group_.segment().slot(group_.rank(), tick));
  const uint64_t taken = group_.progress(group_.rank(), Stage::kTaken);
  for_each_peer([&](int32_t r, GlooPeer& peer) {
    if (parcels != nullptr && !parcels->concerns(r)) return;
    uint64_t& told = taken_told_[static_cast<size_t>(r)];
    if (stage == Stage::kTaken && taken - told < kTakenTogether) return;
    told = taken;
    const ByteRange range = parcels == nullptr ? ByteRange{} : parcels->of(r);
    Frame frame;
    frame.kind = Frame::kTicks;
    frame.words[0] = static_cast<uint64_t>(stage);
    frame.words[1] = ticks;
    frame.words[2] = taken;
    frame.where = slot + range.first;
    frame.bytes = range.count;
    frame.call = group_.segment().call(group_.rank(), tick);
    peer.send(frame);
  });
}

void GlooLink::posted(int32_t to, uint32_t slot, uint64_t bytes) {
  const Lane& lane = group_.segment().lane(group_.rank(), to);
  Frame frame;
  frame.kind = Frame::kPosted;
  frame.words[0] = lane.posted.load();
  frame.words[1] = slot;
  frame.words[2] = lane.count;
  frame.words[3] = static_cast<uint64_t>(lane.dtype);
  frame.where = offset(group_.segment().lane_slot(group_.rank(), slot));
  frame.bytes = bytes;
  peers_[static_cast<size_t>(to)]->send(frame);
}

void GlooLink::turned(int32_t from) {
  const Lane& lane = group_.segment().lane(from, group_.rank());
  Frame frame;
  frame.kind = Frame::kTurned;
  frame.words[0] = lane.wanted.load();
  frame.words[1] = lane.taken.load();
  peers_[static_cast<size_t>(from)]->send(frame);
}

void GlooLink::failed(FailureCause cause) {
  if (failure_told_.exchange(true)) return;
  Frame frame;
  frame.kind = Frame::kFailed;
  frame.words[0] = cause.packed();
  if (joining_) joining_->tell(cause);  // first: it also tells those that it connects with from now on
  for_each_peer([&](int32_t, GlooPeer& peer) {
    peer.give_up();
    peer.send(frame, GlooPeer::Patience::kTries);
  });
}

void GlooLink::left() {
  if (joining_ && !group_.all_joined()) joining_->stop();
  const uint64_t cause = group_.segment().cause().load();
  const bool failed = cause != 0;
  for_each_peer([&](int32_t, GlooPeer& peer) {
    Frame frame;
    if (failed) {
      // The thread that noticed it may still be telling; but whoever hears that this rank left must know why already.
      peer.give_up();
      frame.kind = Frame::kFailed;
      frame.words[0] = cause;
      peer.send(frame, GlooPeer::Patience::kTries);
    }
    frame.kind = Frame::kLeft;
    peer.send(frame, failed ? GlooPeer::Patience::kTries : GlooPeer::Patience::kWaits);
  });
  const auto deadline = Clock::now() + (failed ? kGoodbyeTime : patience());
  for_each_peer([&](int32_t, GlooPeer& peer) { peer.drain(deadline); });
  if (server_ && !failed) server_->drain(deadline);
}

bool GlooLink::may_write(int32_t rank, const Frame& frame) const {
  const Segment& segment = group_.segment();
  const auto within = [&](const std::byte* first, uint64_t chunks) {
    const uint64_t begin = offset(first);
    const uint64_t size = chunks * segment.chunk_bytes();
    return frame.where >= begin && frame.bytes <= size && frame.where - begin <= size - frame.bytes;
  };
  if (frame.kind == Frame::kTicks) return within(segment.slot(rank, 0), kSlots);
  return frame.kind == Frame::kPosted && within(segment.lane_slot(rank, 0), kLaneSlots);
}

bool GlooLink::apply(int32_t rank, const Frame& frame) {
  switch (frame.kind) {
    case Frame::kHello:
      return greet(rank, frame);
    case Frame::kTicks:
      return apply_ticks(rank, frame);
    case Frame::kPosted:
      return apply_posted(rank, frame);
    case Frame::kTurned: {
      Lane& lane = group_.segment().lane(group_.rank(), rank);
      lane.wanted.store(frame.words[0]);
      lane.taken.store(frame.words[1]);
      group_.ring_if_listening(group_.rank());
      return true;
    }
    case Frame::kFailed:
      failure_told_.store(true);  // it was told to all
      for_each_peer([](int32_t, GlooPeer& peer) { peer.give_up(); });
      group_.learn(FailureCause::unpack(frame.words[0]));
      return true;
    case Frame::kLeft:
      group_.segment().rank(rank).state.store(kHasLeft);
      peers_[static_cast<size_t>(rank)]->give_up();
      group_.wake();
      return true;
    case Frame::kAlive:
      return true;
    default:
      return false;
  }
}

bool GlooLink::greet(int32_t rank, const Frame& frame) {
  if (!id_.admits(frame.words)) return false;
  group_.segment().rank(rank).claim.store(1);
  if (group_.all_joined()) group_.joining_is_over();
  group_.wake();
  joining_->greeted();
  return true;
}

bool GlooLink::apply_ticks(int32_t rank, const Frame& frame) {
  if (frame.words[0] >= kStages || frame.words[1] == 0) return false;
  const auto stage = static_cast<Stage>(frame.words[0]);
  const uint64_t ticks = frame.words[1];
  if (stage == Stage::kPosted) group_.segment().call(rank, ticks - 1) = frame.call;
  arrive(rank, Stage::kTaken, frame.words[2]);
  if (stage != Stage::kTaken) arrive(rank, stage, ticks);
  return true;
}

void GlooLink::arrive(int32_t rank, Stage stage, uint64_t ticks) {
  if (ticks <= group_.progress(rank, stage)) return;
  group_.segment().rank(rank).progress[static_cast<uint32_t>(stage)].store(ticks);
  group_.ring_if_awaited(group_.rank(), rank, stage, ticks);
}

bool GlooLink::apply_posted(int32_t rank, const Frame& frame) {
  if (frame.words[0] == 0 || frame.words[1] >= kLaneSlots) return false;
  Lane& lane = group_.segment().lane(rank, group_.rank());
  // Each chunk tells them, and the receiver reads them while later chunks of the same message come.
  if (lane.count != frame.words[2]) lane.count = frame.words[2];
  if (const auto dtype = static_cast<int32_t>(frame.words[3]); lane.dtype != dtype) lane.dtype = dtype;
  lane.slots[(frame.words[0] - 1) % kLaneSlots] = static_cast<uint32_t>(frame.words[1]);
  lane.posted.store(frame.words[0]);
  group_.ring_if_listening(group_.rank());
  return true;
}

void GlooLink::lost(int32_t rank) {
  if (!group_.left(rank)) group_.fail({FailureCause::kDisconnected, rank, 0});
}

void GlooLink::keep_alive() {
  const std::chrono::milliseconds limit = patience();
  const std::chrono::milliseconds period = limit / 4;
  std::unique_lock lock(mutex_);
  for (auto before = Clock::now(); !stopped_;) {
    stopping_.wait_for(lock, period);
    if (stopped_) return;
    lock.unlock();
    const bool slept = Clock::now() - before > period * 2;  // this process was stopped: it has heard nobody
    before = Clock::now();
    for_each_peer([&](int32_t r, GlooPeer& peer) {
      if (group_.segment().rank(r).claim.load() == 0) return;
      if (slept) peer.forgive();
      if (peer.silence() > limit && !group_.left(r)) {
        group_.fail({FailureCause::kSilent, r, static_cast<int32_t>(network_.peer_timeout_seconds)});
      }
      Frame frame;
      frame.kind = Frame::kAlive;
      peer.send(frame, GlooPeer::Patience::kTries);
    });
    lock.lock();
  }
}

}  // namespace

std::unique_ptr<Link> make_gloo_link(Group& group, const NetworkId& id, const NetworkSettings& network,
                                     std::shared_ptr<UniqueFd> listener) {
  return std::make_unique<GlooLink>(group, id, network, std::move(listener));
}

}  // namespace pliant::accelerator
