// Asks the carrier first, then the mailbox, then the native communicator.
#include "collectives/peers/peer_watch.hpp"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

namespace pliant::collectives {

using sdk::Failure;

namespace {

/// How often the carrier is asked which rank it was that the native collectives have lost.
constexpr int kLooksForName = 5;

}  // namespace

void PeerWatch::set(std::shared_ptr<NativeComm> native, std::unique_ptr<Mailbox> mailbox) {
  const std::lock_guard lock(mutex_);
  native_ = std::move(native);
  mailbox_ = std::move(mailbox);
  // leave() may have found no mailbox.
  if (mailbox_ != nullptr && carrier_.is_closed()) mailbox_->leave(Mailbox::Left::kUndone);
}

bool PeerWatch::has_native() const {
  const std::lock_guard lock(mutex_);
  return native_ != nullptr;
}

std::shared_ptr<NativeComm> PeerWatch::native() const {
  const std::lock_guard lock(mutex_);
  return native_;
}

void PeerWatch::set_native_joined() {
  const std::lock_guard lock(mutex_);
  if (native_ != nullptr) native_->set_joined();
}

void PeerWatch::await_native(std::optional<std::chrono::steady_clock::time_point> end) {
  const std::shared_ptr<NativeComm> native = this->native();
  if (native == nullptr) return;
  int32_t timeout_ms = -1;
  if (end) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*end - std::chrono::steady_clock::now());
    timeout_ms = static_cast<int32_t>(std::max<int64_t>(left.count(), 0));
  }
  try {
    native->call(&pliant_collectives::comm_status, timeout_ms);
  } catch (const Failure&) {
    turns_.check();  // why it was aborted
    throw;
  }
  native->set_joined();
}

std::shared_ptr<NativeComm> PeerWatch::native_to_renew() {
  const std::lock_guard lock(mutex_);
  is_renewed_ = native_ != nullptr;
  return native_;
}

void PeerWatch::drop_renewed() {
  NativeComm::Renewal dropped;  // not under the lock
  const std::lock_guard lock(mutex_);
  if (renewal_.old == nullptr || !renewal_.old->is_running()) std::swap(dropped, renewal_);
}

void PeerWatch::fail(const Failure& failure) {
  if (!turns_.fail(failure)) return;
  carrier_.abort();  // peers that wait for this rank would wait for ever
  const std::lock_guard lock(mutex_);
  if (native_ != nullptr) native_->abort();
  if (renewal_.old != nullptr && renewal_.old.use_count() == 1) renewal_.old->abort();  // nobody else watches it
  if (mailbox_ != nullptr && !mailbox_->has_left()) mailbox_->ring_all();
}

void PeerWatch::abort_native() {
  const std::lock_guard lock(mutex_);
  if (native_ != nullptr) native_->abort();
}

// Of messages that do not fit together the carrier knows only that the rank that saw it has aborted.
Failure PeerWatch::cause_of(const Failure& failure) const {
  if (failure.status() != PLIANT_ABORTED) return failure;
  const std::lock_guard lock(mutex_);
  if (const auto lost = lost_peer()) return *lost;
  const int32_t saw = mailbox_ == nullptr ? -1 : mailbox_->mismatch();
  if (saw < 0 || saw == rank_) return failure;
  return Failure(PLIANT_INVALID_ARGUMENT, "the ranks made calls that do not fit together; rank " + std::to_string(saw) +
                                              " saw it first and can say which")
      .about_rank(saw);
}

void PeerWatch::check_here() const {
  turns_.check();
  carrier_.require_open();
}

void PeerWatch::check_peers() const {
  turns_.check();
  carrier_.check();
}

bool PeerWatch::look() {
  try {
    if (!carrier_.look()) return false;
    const std::lock_guard lock(mutex_);
    if (const auto lost = lost_peer()) throw Failure(*lost);
  } catch (const Failure& failure) {
    fail(cause_of(failure));
    return false;
  }
  try {
    drop_renewed();
    const std::lock_guard lock(mutex_);
    if (native_ != nullptr) native_->call(&pliant_collectives::comm_status, int32_t{0});
  } catch (const Failure& failure) {
    if (failure.status() == PLIANT_DEADLINE_EXCEEDED) return true;  // not all have joined
    // The carrier can name a rank that is lost, and may notice later than the accelerator.
    if (failure.status() == PLIANT_PEER_LOST && ++looks_for_name_ < kLooksForName) return true;
    fail(failure);
    return false;
  }
  return true;
}

std::optional<Failure> PeerWatch::lost_peer() const {
  if (native_ == nullptr || mailbox_ == nullptr) return std::nullopt;
  const auto missing = mailbox_->missing();
  if (!missing) return std::nullopt;
  const std::string by = missing->by == rank_ ? "this rank" : "rank " + std::to_string(missing->by);
  return Failure(PLIANT_PEER_LOST, "rank " + std::to_string(missing->rank) +
                                       " is lost: it destroyed the communicator while " + by + " still needed it")
      .about_rank(missing->rank);
}

void PeerWatch::look_once_more() {
  const std::shared_ptr<NativeComm> native = this->native();
  if (native == nullptr) return;
  try {
    turns_.check();
    native->call(&pliant_collectives::comm_status, int32_t{0});
  } catch (const Failure& reported) {
    if (reported.status() == PLIANT_DEADLINE_EXCEEDED) return;  // not all have joined
    try {
      static_cast<void>(carrier_.look());
      for (int looks = 1; reported.status() == PLIANT_PEER_LOST && looks < kLooksForName; ++looks) {
        std::this_thread::sleep_for(kLookEvery);
        static_cast<void>(carrier_.look());
      }
    } catch (const Failure& known) {
      return fail(cause_of(known));
    }
    fail(reported);
  }
}

std::shared_ptr<NativeComm> PeerWatch::leave(bool has_failed, bool is_carried) {
  const std::lock_guard lock(mutex_);
  if (native_ != nullptr && mailbox_ != nullptr) {
    const bool is_done = is_carried && (native_->is_done() || (is_renewed_ && native_.use_count() > 1));
    mailbox_->leave(has_failed ? Mailbox::Left::kFailed : is_done ? Mailbox::Left::kDone : Mailbox::Left::kUndone);
  }
  if (is_carried) return std::move(native_);
  if (native_ != nullptr) native_->abort();
  return nullptr;
}

void PeerWatch::has_left() {
  const std::lock_guard lock(mutex_);
  if (mailbox_ != nullptr) mailbox_->leave(Mailbox::Left::kDone);
}

void PeerWatch::let_go() {
  const std::lock_guard lock(mutex_);
  if (mailbox_ != nullptr) mailbox_->let_go();
}

bool PeerWatch::is_let_go() const {
  const std::lock_guard lock(mutex_);
  return mailbox_ == nullptr || mailbox_->is_let_go();
}

}  // namespace pliant::collectives
