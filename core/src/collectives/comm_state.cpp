// Agrees, calls, and fails.
#include "collectives/comm_state.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/transport/direct_transport.hpp"
#include "collectives/transport/native_transport.hpp"
#include "collectives/transport/peer_transport.hpp"
#include "collectives/transport/staged_transport.hpp"

namespace pliant::collectives {

using sdk::Failure;

namespace {

bool sees_memory(const Called& device, int32_t device_index) {
  pliant_device_properties properties{};
  properties.struct_size = sizeof(properties);
  device.slots.must(&pliant_accelerator::device_properties, device_index, &properties);
  return (properties.capabilities & PLIANT_CAP_HOST_VISIBLE) != 0;
}

Failure not_enqueued(const Failure& failure) {
  return Failure(PLIANT_ABORTED, std::string("a collective could not be enqueued: ") + failure.what())
      .about_rank(failure.rank())
      .about_device(failure.device());
}

}  // namespace

CommState::CommState(GenericCollectives& all, int32_t device_index, const pliant_comm_id& id, int32_t rank,
                     int32_t world_size, NativeComm::Renewal renewal)
    : owner_(all),
      device_{all.device_},
      place_{device_index, rank, world_size},
      is_direct_(sees_memory(device_, device_index)),
      is_deferred_(static_cast<bool>(all.native_) || (!is_direct_ && PeerMemory::is_there(device_, device_index))),
      carrier_(all.carrier_, id, rank, world_size),
      watch_(carrier_, turns_, rank, std::move(renewal)),
      steps_(device_, carrier_, turns_,
             [this](const Failure& failure, pliant_stream* stream) { failed(failure, stream); }),
      deferred_(device_, device_index, *this) {
  if (is_direct_) {
    transport_ = std::make_unique<DirectTransport>(steps_, place_);
  } else {
    transport_ = std::make_unique<StagedTransport>(steps_, place_);
  }
  if (owner_.native_) deferred_.start();  // so that a communicator that is ready has agreed
}

CommState::~CommState() {
  close();
  stop_work();
  owner_.forget_user(*this);
}

void CommState::call(const Body& body, pliant_stream* stream) {
  const std::lock_guard lock(calling_);
  if (is_settled()) {
    owner_.set_user(stream, *this);
    try {
      return body(*transport_, stream);  // what they refuse they say themselves
    } catch (const Failure&) {
      check();  // why they were aborted
      throw;
    }
  }
  try {
    if (is_deferred_) return deferred_.add([this, body](pliant_stream* on) { body(*transport_, on); }, stream);
    if (!has_met_) decline(stream);
    body(*transport_, stream);
  } catch (const Failure& failure) {
    watch_.fail(not_enqueued(failure));  // some of its steps may be enqueued, and the peers wait for the others
    throw;
  }
}

void CommState::begin() {
  try {
    if (owner_.native_) agree();
  } catch (const Failure& failure) {
    watch_.fail(failure);  // and with it every call
  } catch (const std::exception& failure) {
    watch_.fail(
        Failure(PLIANT_INTERNAL, std::string("the ranks could not agree on how they exchange: ") + failure.what()));
  }
}

void CommState::before_call() {
  check();
  if (!has_met_) agree();
}

void CommState::refused(const Failure& failure) {
  watch_.fail(not_enqueued(failure));
}

void CommState::after_call() {
  check();
  watch_.set_native_joined();  // a collective came to its end
}

void CommState::failed(const Failure& failure, pliant_stream* stream) {
  watch_.fail(watch_.cause_of(failure));
  if (deferred_.is_own(stream)) return;  // the stream that waits for the call fails
  owner_.note(stream, *turns_.failure());
}

void CommState::agree() {
  const Gather gather = [this](const void* send, void* recv, uint64_t bytes) { carrier_.gather(send, recv, bytes); };
  auto native = NativeComm::agree(owner_.native_, place_, watch_.renewal(), gather);
  watch_.drop_renewed();
  if (native != nullptr) {
    auto mailbox = Mailbox::agree(carrier_.carrier(), place_, gather);  // before anyone's calls are counted
    transport_ = std::make_unique<NativeTransport>(*native, mailbox.get(), watch_);
    watch_.set(std::move(native), std::move(mailbox));
  } else {
    memory_ = PeerMemory::agree(device_, place_, !is_direct_, gather);
    if (memory_ != nullptr) {
      auto mailbox = Mailbox::agree(carrier_.carrier(), place_, gather);
      transport_ = std::make_unique<PeerTransport>(steps_, place_, *memory_, mailbox.get(), watch_);
      watch_.set(nullptr, std::move(mailbox));
    }
  }
  has_met_ = true;
  if (!turns_.set_agreed()) watch_.abort_native();
}

void CommState::decline(pliant_stream* stream) {
  has_met_ = true;
  const Gather gather = [&](const void* send, void*, uint64_t bytes) {
    const auto* first = static_cast<const std::byte*>(send);
    auto card = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<uint64_t>(place_.world_size));
    steps_.step(
        stream,
        [this, card, all](pliant_comm* comm, pliant_stream* on) {
          carrier_.carrier().collectives.must(&pliant_collectives::all_gather, comm, card->data(), all->data(),
                                              card->size(), PLIANT_U8, on);
        },
        // Nobody reads what the others have said; this keeps it until it is there.
        [card, all] {});
  };
  NativeComm::decline(place_.world_size, gather);
  PeerMemory::decline(place_.world_size, gather);
}

void CommState::wait_ready(int32_t timeout_ms) {
  check();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
  try {
    carrier_.wait_ready(timeout_ms);
  } catch (const Failure& failure) {
    throw watch_.cause_of(failure);
  }
  if (!owner_.native_) return;
  const auto end = timeout_ms >= 0 ? std::optional(limit) : std::nullopt;
  turns_.await_agreement(end);
  watch_.await_native(end);
}

void CommState::abort() {
  watch_.fail(Failure(PLIANT_ABORTED, "this rank aborted the communicator"));
}

void CommState::close() {
  watch_.look_once_more();
  const bool has_failed = turns_.failure().has_value();
  const std::shared_ptr<NativeComm> ended = watch_.leave(has_failed, deferred_.is_empty());
  carrier_.close(has_failed);
  watch_.has_left();
}

void CommState::let_go() {
  if (memory_ != nullptr) memory_->let_go();
  watch_.let_go();
}

bool CommState::may_go() const {
  return is_idle() && (memory_ == nullptr || memory_->is_let_go()) && watch_.is_let_go();
}

}  // namespace pliant::collectives
