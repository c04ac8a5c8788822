// Hands each collective to the transport of its communicator.
#include "collectives/generic_collectives.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/comm.hpp"
#include "collectives/comm_state.hpp"
#include "pliant/sdk/collectives.hpp"

namespace pliant::collectives {

using sdk::Elements;
using sdk::PieceTable;

namespace {

/// How long the last memory that other ranks map waits for them, and how often they are looked at: a name that nobody
/// answers to cannot be waited for.
constexpr std::chrono::seconds kLetGoTogether{1};
constexpr std::chrono::milliseconds kLookForPeersEvery{1};

}  // namespace

GenericCollectives::GenericCollectives(const plugin::Instance& device, plugin::Instance carrier,
                                       const sdk::Calls<pliant_collectives>& native)
    : device_(device), carrier_(std::move(carrier)), native_(native) {}

GenericCollectives::~GenericCollectives() {
  if (is_forked()) {
    for (std::unique_ptr<CommState>& one : retired_) static_cast<void>(one.release());
    return;
  }
  const auto end = std::chrono::steady_clock::now() + kLetGoTogether;
  for (sweep(); !retired_.empty() && std::chrono::steady_clock::now() < end; sweep()) {
    std::this_thread::sleep_for(kLookForPeersEvery);
  }
}

bool GenericCollectives::is_forked() const {
  return ::getpid() != made_by_;
}

const pliant_collectives& GenericCollectives::table(bool has_pieces) {
  static const pliant_collectives kWithoutPieces = [] {
    pliant_collectives made = *sdk::collectives_table<GenericCollectives>();
    made.gather_pieces = nullptr;
    made.scatter_pieces = nullptr;
    return made;
  }();
  return has_pieces ? *sdk::collectives_table<GenericCollectives>() : kWithoutPieces;
}

void GenericCollectives::note(pliant_stream* stream, const sdk::Failure& failure) {
  const std::lock_guard lock(mutex_);
  failures_.emplace(stream, failure);
}

void GenericCollectives::throw_failure(pliant_stream* stream, int32_t status) {
  const bool may_be_of_comm = status == PLIANT_ABORTED || status == PLIANT_PEER_LOST;
  if (status != PLIANT_OK && !may_be_of_comm) return;
  const std::lock_guard lock(mutex_);
  if (const auto found = failures_.find(stream); found != failures_.end()) {
    const sdk::Failure failure = found->second;
    failures_.erase(found);
    throw sdk::Failure(failure);
  }
  const auto user = users_.find(stream);
  if (may_be_of_comm && user != users_.end()) user->second->check();
}

void GenericCollectives::forget(pliant_stream* stream) {
  const std::lock_guard lock(mutex_);
  failures_.erase(stream);
  users_.erase(stream);
}

void GenericCollectives::set_user(pliant_stream* stream, CommState& user) {
  const std::lock_guard lock(mutex_);
  users_[stream] = &user;
}

void GenericCollectives::forget_user(const CommState& user) {
  const std::lock_guard lock(mutex_);
  std::erase_if(users_, [&](const auto& entry) { return entry.second == &user; });
}

void GenericCollectives::retire(std::unique_ptr<CommState> state) {
  const std::lock_guard lock(mutex_);
  retired_.push_back(std::move(state));
}

void GenericCollectives::sweep() {
  if (is_forked()) return;
  std::list<std::unique_ptr<CommState>> retired;  // the device is called without the lock
  {
    const std::lock_guard lock(mutex_);
    retired.swap(retired_);
  }
  for (const auto& one : retired) {
    if (!one->is_idle()) continue;
    one->stop_work();
    one->let_go();
  }
  retired.remove_if([](const auto& one) { return one->may_go(); });
  const std::lock_guard lock(mutex_);
  retired_.splice(retired_.end(), retired);
}

GenericCollectives::Way GenericCollectives::way(const Comm& comm) {
  return comm.state().transport().way();
}

int32_t GenericCollectives::device_count() {
  int32_t count = 0;
  const Called device{device_};
  device.slots.must(&pliant_accelerator::device_count, &count);
  return count;
}

pliant_comm_id GenericCollectives::make_comm_id(int32_t world_size) {
  pliant_comm_id id{};
  const Called carrier{carrier_};
  carrier.collectives.must(&pliant_collectives::comm_id, world_size, &id);
  return id;
}

std::unique_ptr<GenericCollectives::Comm> GenericCollectives::make_comm(int32_t device, const pliant_comm_id& id,
                                                                        int32_t rank, int32_t world_size) {
  sweep();
  return std::make_unique<Comm>(*this, std::make_unique<CommState>(*this, device, id, rank, world_size));
}

std::unique_ptr<GenericCollectives::Comm> GenericCollectives::shrink(Comm& old, std::span<const int32_t> without,
                                                                     const pliant_comm_id& id) {
  sweep();
  CommState& before = old.state();
  NativeComm::Renewal renewal{NativeComm::Origin::kShrunk, before.native_to_renew(), {without.begin(), without.end()}};
  before.abort();
  const auto lower = std::count_if(without.begin(), without.end(), [&](int32_t one) { return one < before.rank(); });
  return std::make_unique<Comm>(
      *this,
      std::make_unique<CommState>(*this, before.place().device_index, id, before.rank() - static_cast<int32_t>(lower),
                                  before.world_size() - static_cast<int32_t>(without.size()), std::move(renewal)));
}

std::unique_ptr<GenericCollectives::Comm> GenericCollectives::grow(int32_t device, Comm* old, const pliant_comm_id& id,
                                                                   int32_t rank, int32_t world_size) {
  sweep();
  NativeComm::Renewal renewal{NativeComm::Origin::kJoining, nullptr, {}};
  if (old != nullptr) {
    renewal = {NativeComm::Origin::kGrown, old->state().native_to_renew(), {}};
    if (renewal.old == nullptr) old->state().abort();
  }
  return std::make_unique<Comm>(*this,
                                std::make_unique<CommState>(*this, device, id, rank, world_size, std::move(renewal)));
}

int32_t GenericCollectives::world_size(const Comm& comm) {
  return comm.state().world_size();
}
int32_t GenericCollectives::rank(const Comm& comm) {
  return comm.state().rank();
}
void GenericCollectives::wait_ready(Comm& comm, int32_t timeout_ms) {
  comm.state().wait_ready(timeout_ms);
}
void GenericCollectives::abort(Comm& comm) {
  comm.state().abort();
}

void GenericCollectives::all_reduce(Comm& comm, const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                    Stream& stream) {
  comm.enqueue([=](Transport& via, pliant_stream* on) { via.all_reduce(send, recv, elements, op, on); }, &stream);
}

void GenericCollectives::all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) {
  comm.enqueue([=](Transport& via, pliant_stream* on) { via.all_gather(send, recv, elements, on); }, &stream);
}

void GenericCollectives::reduce_scatter(Comm& comm, const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                        Stream& stream) {
  comm.enqueue([=](Transport& via, pliant_stream* on) { via.reduce_scatter(send, recv, elements, op, on); }, &stream);
}

void GenericCollectives::broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) {
  comm.enqueue([=](Transport& via, pliant_stream* on) { via.broadcast(buffer, elements, root, on); }, &stream);
}

void GenericCollectives::barrier(Comm& comm, Stream& stream) {
  comm.enqueue([](Transport& via, pliant_stream* on) { via.barrier(on); }, &stream);
}

void GenericCollectives::all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts,
                                      sdk::DType dtype, Stream& stream) {
  comm.enqueue([=, all = std::vector<uint64_t>(counts.begin(), counts.end())](
                   Transport& via, pliant_stream* on) { via.all_gather_v(send, recv, all, dtype, on); },
               &stream);
}

void GenericCollectives::gather_pieces(Comm& comm, const void* send, void* recv, PieceTable pieces, sdk::DType dtype,
                                       Stream& stream) {
  comm.enqueue([=, all = std::make_shared<const PieceTable>(std::move(pieces))](
                   Transport& via, pliant_stream* on) { via.gather_pieces(send, recv, *all, dtype, on); },
               &stream);
}

void GenericCollectives::scatter_pieces(Comm& comm, const void* send, void* recv, PieceTable pieces,
                                        std::span<const uint8_t> adds, sdk::DType dtype, Stream& stream) {
  comm.enqueue([=, all = std::make_shared<const PieceTable>(std::move(pieces)),
                by_rank = std::vector<uint8_t>(adds.begin(), adds.end())](
                   Transport& via, pliant_stream* on) { via.scatter_pieces(send, recv, *all, by_rank, dtype, on); },
               &stream);
}

void GenericCollectives::send(Comm& comm, const void* buffer, Elements elements, int32_t peer, Stream& stream) {
  comm.enqueue(Message{true, const_cast<void*>(buffer), elements, peer}, &stream);
}
void GenericCollectives::recv(Comm& comm, void* buffer, Elements elements, int32_t peer, Stream& stream) {
  comm.enqueue(Message{false, buffer, elements, peer}, &stream);
}
void GenericCollectives::register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
  comm.enqueue([=](Transport& via, pliant_stream* on) { via.register_window(pointer, bytes, on); }, &stream);
}

void GenericCollectives::begin_group(Comm& comm) {
  comm.begin_group();
}
void GenericCollectives::end_group(Comm& comm) {
  comm.end_group();
}

}  // namespace pliant::collectives
