// Calls that are carried out late: the thread of a communicator on which the ranks agree on their way, and its stream.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "accelerator/generic_comm.hpp"

namespace pliant::detail {

using sdk::Failure;

namespace {

/// How soon the loss of a rank is noticed that the accelerator's own collectives do not tell of.
constexpr std::chrono::milliseconds kWatchEvery{10};
/// How often the carrier is asked which rank it was that the accelerator's own collectives have lost.
constexpr int kLooksForName = 5;
/// How soon the end of a call is noticed by a thread that also watches.
constexpr std::chrono::microseconds kLookEvery{200};

}  // namespace

/// One call, until its stream has gone on.
struct GenericCollectives::Shared::Job {
  Job(const Called& on, int32_t device_index, Body what, pliant_stream* caller)
      : body(std::move(what)), stream(caller), begin(sdk::make_event(on.slots, device_index)) {}

  const Body body;
  pliant_stream* const stream;
  /// Behind what the stream had before the call. Ends on no thread of the plugin's: what a stream runs must not call
  /// it.
  sdk::OwnedEvent begin;
  bool is_done = false;  ///< under jobs_mutex_
};

/// What the stream of a call waits with.
struct GenericCollectives::Shared::Awaited {
  Shared& shared;
  std::shared_ptr<Job> job;
};

void GenericCollectives::Shared::await(void* context) {
  Shared* shared = nullptr;
  {
    const std::unique_ptr<Awaited> awaited(static_cast<Awaited*>(context));
    shared = &awaited->shared;
    std::unique_lock lock(shared->jobs_mutex_);
    shared->jobs_changed_.wait(lock, [&] { return awaited->job->is_done; });
  }
  --shared->pending_;  // from here on it may be gone
}

void GenericCollectives::Shared::begin_work() {
  late_stream_ = sdk::make_stream(device.slots, device_index, PLIANT_STREAM_COMPUTE, PLIANT_PRIORITY_HIGH);
  working_ = true;
  worker_ = std::thread([this] { work(); });
}

bool GenericCollectives::Shared::is_settled() {
  const std::lock_guard lock(jobs_mutex_);
  return own_ != nullptr && jobs_.empty() && !is_carrying_;
}

void GenericCollectives::Shared::call_late(const Body& body, pliant_stream* stream) {
  if (!worker_.joinable()) begin_work();
  auto job = std::make_shared<Job>(device, device_index, body, stream);
  device.slots.must(&pliant_accelerator::event_record, job->begin, stream);
  auto awaited = std::make_unique<Awaited>(Awaited{*this, job});
  ++pending_;
  try {
    device.slots.must(&pliant_accelerator::host_function, &Shared::await, static_cast<void*>(awaited.get()), stream);
  } catch (...) {
    --pending_;
    throw;
  }
  static_cast<void>(awaited.release());  // await() deletes it
  const std::lock_guard lock(jobs_mutex_);
  jobs_.push_back(std::move(job));
  jobs_changed_.notify_all();
}

void GenericCollectives::Shared::work() {
  try {
    if (owner.own_) agree();
  } catch (const Failure& failure) {
    fail(failure);  // and with it every call
  } catch (const std::exception& failure) {
    fail(Failure(PLIANT_INTERNAL, std::string("the ranks could not agree on how they exchange: ") + failure.what()));
  }
  while (const std::shared_ptr<Job> job = next_job()) {
    try {
      carry_out(*job);
    } catch (const Failure& failure) {
      note_failure(failure, job->stream);
    } catch (const std::exception& failure) {
      note_failure(Failure(PLIANT_INTERNAL, std::string("a collective failed: ") + failure.what()), job->stream);
    }
    job->begin.reset();
    const std::lock_guard lock(jobs_mutex_);
    job->is_done = true;
    is_carrying_ = false;
    jobs_changed_.notify_all();
  }
}

std::shared_ptr<GenericCollectives::Shared::Job> GenericCollectives::Shared::next_job() {
  const auto has_come = [&] { return !jobs_.empty() || !working_; };
  bool watches = true;
  std::unique_lock lock(jobs_mutex_);
  while (own_ != nullptr && watches && !jobs_changed_.wait_for(lock, kWatchEvery, has_come)) {
    lock.unlock();
    watches = watch();
    lock.lock();
  }
  jobs_changed_.wait(lock, has_come);
  if (jobs_.empty()) return nullptr;
  std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.pop_front();
  is_carrying_ = true;
  return job;
}

bool GenericCollectives::Shared::watch() {
  try {
    {
      const std::lock_guard lock(carrier_mutex_);
      if (closed_) return false;
      carrier.collectives.must(&pliant_collectives::comm_status, comm_, int32_t{0});
    }
    const std::lock_guard lock(jobs_mutex_);
    if (const auto lost = lost_peer()) throw Failure(*lost);
  } catch (const Failure& failure) {
    fail(cause_of(failure));
    return false;
  }
  try {
    drop_renewed();
    const std::lock_guard lock(jobs_mutex_);
    if (own_ != nullptr) own_->call(&pliant_collectives::comm_status, int32_t{0});
  } catch (const Failure& failure) {
    if (failure.status() == PLIANT_DEADLINE_EXCEEDED) return true;  // not all have joined
    // The carrier can name a rank that is lost, and may notice later than the accelerator.
    if (failure.status() == PLIANT_PEER_LOST && ++looks_for_name_ < kLooksForName) return true;
    fail(failure);
    return false;
  }
  return true;
}

std::optional<Failure> GenericCollectives::Shared::lost_peer() const {
  if (own_ == nullptr || board_ == nullptr) return std::nullopt;
  const auto missing = board_->missing();
  if (!missing) return std::nullopt;
  const std::string by = missing->by == rank ? "this rank" : "rank " + std::to_string(missing->by);
  return Failure(PLIANT_PEER_LOST, "rank " + std::to_string(missing->rank) +
                                       " is lost: it destroyed the communicator while " + by + " still needed it")
      .about_rank(missing->rank);
}

void GenericCollectives::Shared::carry_out(const Job& job) {
  check();
  if (!has_met_) agree();
  device.slots.must(&pliant_accelerator::stream_wait_event, late_stream_, job.begin);
  try {
    job.body(late_stream_);
  } catch (const Failure& failure) {
    // What it has enqueued ends when the communicator fails.
    fail(Failure(PLIANT_ABORTED, std::string("a collective could not be enqueued: ") + failure.what())
             .about_rank(failure.rank())
             .about_device(failure.device()));
    static_cast<void>(device.slots.ask(&pliant_accelerator::stream_synchronize, late_stream_));
    throw;
  }
  await_late_stream();
  check();
  if (own_ != nullptr) own_->set_joined();  // a collective came to its end
}

/// Watches meanwhile where that is called for; then at the cost of some delay, of the first calls only.
void GenericCollectives::Shared::await_late_stream() {
  bool watches = own_ != nullptr;
  int32_t is_idle = 0;
  for (int looks = 1; watches; ++looks) {
    device.slots.must(&pliant_accelerator::stream_query, late_stream_, &is_idle);
    if (is_idle != 0) break;
    std::this_thread::sleep_for(kLookEvery);  // a stream cannot be waited for with a limit
    if (looks % (kWatchEvery / kLookEvery) == 0) watches = watch();
  }
  device.slots.must(&pliant_accelerator::stream_synchronize, late_stream_);
}

void GenericCollectives::Shared::note_own_failure() {
  const auto look = [this] {
    const std::lock_guard lock(carrier_mutex_);
    if (!closed_) carrier.collectives.must(&pliant_collectives::comm_status, comm_, int32_t{0});
  };
  std::unique_lock lock(jobs_mutex_);
  const std::shared_ptr<OwnComm> own = own_;
  lock.unlock();
  if (own == nullptr) return;
  try {
    check();
    own->call(&pliant_collectives::comm_status, int32_t{0});
  } catch (const Failure& told) {
    if (told.status() == PLIANT_DEADLINE_EXCEEDED) return;  // not all have joined
    try {
      look();
      for (int looks = 1; told.status() == PLIANT_PEER_LOST && looks < kLooksForName; ++looks) {
        std::this_thread::sleep_for(kWatchEvery);
        look();
      }
    } catch (const Failure& known) {
      return fail(cause_of(known));
    }
    fail(told);
  }
}

void GenericCollectives::Shared::drop_renewed() {
  OwnComm::Renewal dropped;  // not under the lock
  const std::lock_guard lock(jobs_mutex_);
  if (renewal_.old == nullptr || !renewal_.old->is_running()) std::swap(dropped, renewal_);
}

void GenericCollectives::Shared::agree() {
  const Gather gather = [this](const void* send, void* recv, uint64_t bytes) {
    {
      const std::lock_guard lock(carrier_mutex_);
      require_open();
      carrier.collectives.must(&pliant_collectives::all_gather, comm_, send, recv, bytes, PLIANT_U8, carrier_stream_);
    }
    carrier.slots.must(&pliant_accelerator::stream_synchronize, carrier_stream_);
  };
  auto own = OwnComm::agree(owner.own_, {device_index, rank, world_size}, renewal_, gather);
  drop_renewed();
  if (own != nullptr) {
    std::unique_ptr<Board> board = make_board(gather);  // before anyone's calls are counted
    const std::lock_guard lock(jobs_mutex_);
    own_ = std::move(own);
    set_board(std::move(board));
  } else {
    agree_on_memory(gather);
  }
  has_met_ = true;
  std::optional<Failure> failed;
  {
    const std::lock_guard lock(mutex_);
    has_agreed_ = true;
    changed_.notify_all();
    failed = failure_;
  }
  if (!failed) return;
  const std::lock_guard lock(jobs_mutex_);
  if (own_ != nullptr) own_->abort();
}

void GenericCollectives::Shared::await_agreement(std::chrono::steady_clock::time_point end, bool has_end) {
  const auto known = [this] { return failure_ || has_agreed_; };
  {
    std::unique_lock lock(mutex_);
    if (!has_end) changed_.wait(lock, known);
    if (has_end && !changed_.wait_until(lock, end, known)) {
      throw Failure(PLIANT_DEADLINE_EXCEEDED, "time-out before all ranks had agreed on a transport");
    }
    if (failure_) throw Failure(*failure_);
  }
  std::unique_lock lock(jobs_mutex_);
  const std::shared_ptr<OwnComm> own = own_;
  lock.unlock();
  if (own == nullptr) return;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  try {
    own->call(&pliant_collectives::comm_status,
              has_end ? static_cast<int32_t>(std::max<int64_t>(left.count(), 0)) : int32_t{-1});
  } catch (const Failure&) {
    check();  // why it was aborted
    throw;
  }
  own->set_joined();
}

std::shared_ptr<OwnComm> GenericCollectives::Shared::own_to_renew() {
  const std::lock_guard lock(jobs_mutex_);
  is_renewed_ = own_ != nullptr;
  return own_;
}

void GenericCollectives::Shared::agree_on_memory(const Gather& gather) {
  if (is_direct || !PeerMemory::is_there(device, device_index)) return PeerMemory::decline(world_size, gather);
  std::unique_ptr<PeerMemory> made;
  try {
    made = std::make_unique<PeerMemory>(device, device_index, rank, world_size);
  } catch (const Failure&) {  // none left: pinned memory serves
  }
  if (made == nullptr) {
    PeerMemory::decline(world_size, gather);
  } else if (made->join(gather)) {
    peers_ = std::move(made);
    std::unique_ptr<Board> board = make_board(gather);
    const std::lock_guard lock(jobs_mutex_);
    set_board(std::move(board));
  }
}

std::unique_ptr<Board> GenericCollectives::Shared::make_board(const Gather& gather) {
  std::unique_ptr<Board> made;
  try {
    if (Board::is_there(carrier)) made = std::make_unique<Board>(carrier, rank, world_size);
  } catch (const Failure&) {  // none left: messages take pinned memory
  }
  if (made == nullptr) {
    PeerMemory::decline(world_size, gather);
  } else if (!made->join(gather)) {
    made = nullptr;
  }
  return made;
}

void GenericCollectives::Shared::set_board(std::unique_ptr<Board> board) {
  board_ = std::move(board);
  const std::lock_guard closing(carrier_mutex_);
  if (closed_ && board_ != nullptr) board_->leave(Board::Left::kUndone);  // close() may have found no board
}

/// The same of a rank whose calls are carried out at once: it says that it cannot.
void GenericCollectives::Shared::decline(pliant_stream* stream) {
  has_met_ = true;
  const Gather gather = [&](const void* send, void*, uint64_t bytes) {
    const auto* first = static_cast<const std::byte*>(send);
    auto card = std::make_shared<std::vector<std::byte>>(first, first + bytes);
    auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<uint64_t>(world_size));
    step(
        stream,
        [this, card, all](pliant_comm* comm, pliant_stream* on) {
          carrier.collectives.must(&pliant_collectives::all_gather, comm, card->data(), all->data(), card->size(),
                                   PLIANT_U8, on);
        },
        // Nobody reads what the others have told; this keeps it until it is there.
        [card, all] {});
  };
  OwnComm::decline(world_size, gather);
  PeerMemory::decline(world_size, gather);
}

void GenericCollectives::Shared::let_go() {
  const std::lock_guard lock(jobs_mutex_);
  if (peers_ != nullptr) peers_->let_go();
  if (board_ != nullptr) board_->let_go();
}

bool GenericCollectives::Shared::may_go() const {
  return is_idle() && (peers_ == nullptr || peers_->is_let_go()) && (board_ == nullptr || board_->is_let_go());
}

void GenericCollectives::Shared::stop_work() {
  if (!worker_.joinable()) return;
  {
    const std::lock_guard lock(jobs_mutex_);
    working_ = false;
    jobs_changed_.notify_all();
  }
  worker_.join();
  late_stream_.reset();
}

}  // namespace pliant::detail
