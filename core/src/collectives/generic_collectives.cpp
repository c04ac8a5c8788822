// Each collective in pieces: copied to the stage, exchanged by the carrier, copied from the stage.
#include "collectives/generic_collectives.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/comm_state.hpp"
#include "collectives/transport/peer_transport.hpp"
#include "collectives/transport/pieces.hpp"
#include "pliant/sdk/collectives.hpp"

namespace pliant::detail {

using sdk::Elements;

using Shared = GenericCollectives::Shared;

namespace {

/// How long the last memory that other ranks map waits for them, and how often they are looked at: a name that nobody
/// answers to cannot be waited for.
constexpr std::chrono::seconds kLetGoTogether{1};
constexpr std::chrono::milliseconds kLookForPeersEvery{1};

}  // namespace

GenericCollectives::GenericCollectives(const plugin::Instance& device, plugin::Instance carrier,
                                       const sdk::Calls<pliant_collectives>& own)
    : device_(device), carrier_(std::move(carrier)), own_(own) {}

GenericCollectives::~GenericCollectives() {
  if (is_forked()) {
    for (std::unique_ptr<Shared>& one : retired_) static_cast<void>(one.release());
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

void GenericCollectives::set_user(pliant_stream* stream, Shared& user) {
  const std::lock_guard lock(mutex_);
  users_[stream] = &user;
}

void GenericCollectives::forget_user(const Shared& user) {
  const std::lock_guard lock(mutex_);
  std::erase_if(users_, [&](const auto& entry) { return entry.second == &user; });
}

void GenericCollectives::sweep() {
  if (is_forked()) return;
  std::list<std::unique_ptr<Shared>> retired;  // the device is called without the lock
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
  if (comm.shared().own() != nullptr) return Way::kOwn;
  if (comm.shared().is_direct) return Way::kDirect;
  return comm.shared().peers() == nullptr ? Way::kStaged : Way::kDevices;
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
  return std::make_unique<Comm>(*this, std::make_unique<Shared>(*this, device, id, rank, world_size));
}

std::unique_ptr<GenericCollectives::Comm> GenericCollectives::shrink(Comm& old, std::span<const int32_t> without,
                                                                     const pliant_comm_id& id) {
  sweep();
  Shared& before = old.shared();
  OwnComm::Renewal renewal{OwnComm::Origin::kShrunk, before.own_to_renew(), {without.begin(), without.end()}};
  before.abort();
  const auto lower = std::count_if(without.begin(), without.end(), [&](int32_t one) { return one < before.rank; });
  return std::make_unique<Comm>(
      *this, std::make_unique<Shared>(*this, before.device_index, id, before.rank - static_cast<int32_t>(lower),
                                      before.world_size - static_cast<int32_t>(without.size()), std::move(renewal)));
}

std::unique_ptr<GenericCollectives::Comm> GenericCollectives::grow(int32_t device, Comm* old, const pliant_comm_id& id,
                                                                   int32_t rank, int32_t world_size) {
  sweep();
  OwnComm::Renewal renewal{OwnComm::Origin::kJoining, nullptr, {}};
  if (old != nullptr) {
    renewal = {OwnComm::Origin::kGrown, old->shared().own_to_renew(), {}};
    if (renewal.old == nullptr) old->shared().abort();
  }
  return std::make_unique<Comm>(*this,
                                std::make_unique<Shared>(*this, device, id, rank, world_size, std::move(renewal)));
}

int32_t GenericCollectives::world_size(const Comm& comm) {
  return comm.shared().world_size;
}
int32_t GenericCollectives::rank(const Comm& comm) {
  return comm.shared().rank;
}
void GenericCollectives::wait_ready(Comm& comm, int32_t timeout_ms) {
  comm.shared().wait_ready(timeout_ms);
}
void GenericCollectives::abort(Comm& comm) {
  comm.shared().abort();
}

void GenericCollectives::all_reduce(Comm& comm, const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                    Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), send, recv, elements, op](pliant_stream* on) {
        if (const OwnComm* own = shared.own())
          return own->call(&pliant_collectives::all_reduce, send, recv, elements.count, raw(elements.dtype), raw(op),
                           on);
        const auto exchange = [&shared, elements, op](const void* from, void* to, uint64_t count) {
          return [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
            carrier.collectives.must(&pliant_collectives::all_reduce, carried, from, to, count, raw(elements.dtype),
                                     raw(op), carrier_stream);
          };
        };
        if (shared.is_direct) return shared.step(on, exchange(send, recv, elements.count));
        if (shared.peers() != nullptr) return between_devices::all_reduce(shared, send, recv, elements, op, on);
        const uint64_t width = sdk::size_of(elements.dtype);
        const Shared::Stages& stage = shared.stages(on);
        in_pieces(elements.count, most_of(Shared::kStageBytes, elements.dtype, 1), [&](Piece piece) {
          shared.copy({{stage.in.memory(), at(send, piece.first, width), piece.count * width}}, on);
          shared.step(on, exchange(stage.in.memory(), stage.out.memory(), piece.count));
          shared.copy({{at(recv, piece.first, width), stage.out.memory(), piece.count * width}}, on);
        });
      },
      &stream);
}

void GenericCollectives::all_gather(Comm& comm, const void* send, void* recv, Elements elements, Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), send, recv, elements](pliant_stream* on) {
        if (const OwnComm* own = shared.own())
          return own->call(&pliant_collectives::all_gather, send, recv, elements.count, raw(elements.dtype), on);
        const auto exchange = [&shared, elements](const void* from, void* to, uint64_t count) {
          return [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
            carrier.collectives.must(&pliant_collectives::all_gather, carried, from, to, count, raw(elements.dtype),
                                     carrier_stream);
          };
        };
        if (shared.is_direct) return shared.step(on, exchange(send, recv, elements.count));
        if (shared.peers() != nullptr) return between_devices::all_gather(shared, send, recv, elements, on);
        const uint64_t width = sdk::size_of(elements.dtype);
        const Shared::Stages& stage = shared.stages(on);
        in_pieces(elements.count, most_of(Shared::kStageBytes, elements.dtype, shared.world_size), [&](Piece piece) {
          shared.copy({{stage.in.memory(), at(send, piece.first, width), piece.count * width}}, on);
          shared.step(on, exchange(stage.in.memory(), stage.out.memory(), piece.count));
          std::vector<pliant_copy> parts;
          for (uint64_t r = 0; r < static_cast<uint64_t>(shared.world_size); ++r) {
            parts.push_back({at(recv, r * elements.count + piece.first, width),
                             at(stage.out.memory(), r * piece.count, width), piece.count * width});
          }
          shared.copy(parts, on);
        });
      },
      &stream);
}

void GenericCollectives::reduce_scatter(Comm& comm, const void* send, void* recv, Elements elements, sdk::ReduceOp op,
                                        Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), send, recv, elements, op](pliant_stream* on) {
        if (const OwnComm* own = shared.own())
          return own->call(&pliant_collectives::reduce_scatter, send, recv, elements.count, raw(elements.dtype),
                           raw(op), on);
        const auto exchange = [&shared, elements, op](const void* from, void* to, uint64_t count) {
          return [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
            carrier.collectives.must(&pliant_collectives::reduce_scatter, carried, from, to, count, raw(elements.dtype),
                                     raw(op), carrier_stream);
          };
        };
        if (shared.is_direct) return shared.step(on, exchange(send, recv, elements.count));
        if (shared.peers() != nullptr) return between_devices::reduce_scatter(shared, send, recv, elements, op, on);
        const uint64_t width = sdk::size_of(elements.dtype);
        const Shared::Stages& stage = shared.stages(on);
        in_pieces(elements.count, most_of(Shared::kStageBytes, elements.dtype, shared.world_size), [&](Piece piece) {
          std::vector<pliant_copy> parts;
          for (uint64_t r = 0; r < static_cast<uint64_t>(shared.world_size); ++r) {
            parts.push_back({at(stage.in.memory(), r * piece.count, width),
                             at(send, r * elements.count + piece.first, width), piece.count * width});
          }
          shared.copy(parts, on);
          shared.step(on, exchange(stage.in.memory(), stage.out.memory(), piece.count));
          shared.copy({{at(recv, piece.first, width), stage.out.memory(), piece.count * width}}, on);
        });
      },
      &stream);
}

void GenericCollectives::broadcast(Comm& comm, void* buffer, Elements elements, int32_t root, Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), buffer, elements, root](pliant_stream* on) {
        if (const OwnComm* own = shared.own())
          return own->call(&pliant_collectives::broadcast, buffer, elements.count, raw(elements.dtype), root, on);
        const auto exchange = [&shared, elements, root](void* through, uint64_t count) {
          return [=, &carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
            carrier.collectives.must(&pliant_collectives::broadcast, carried, through, count, raw(elements.dtype), root,
                                     carrier_stream);
          };
        };
        if (shared.is_direct) return shared.step(on, exchange(buffer, elements.count));
        if (shared.peers() != nullptr) return between_devices::broadcast(shared, buffer, elements, root, on);
        const uint64_t width = sdk::size_of(elements.dtype);
        const Shared::Stages& stage = shared.stages(on);
        in_pieces(elements.count, most_of(Shared::kStageBytes, elements.dtype, 1), [&](Piece piece) {
          void* const through = stage.in.memory();
          void* const own = at(buffer, piece.first, width);
          if (shared.rank == root) shared.copy({{through, own, piece.count * width}}, on);
          shared.step(on, exchange(through, piece.count));
          if (shared.rank != root) shared.copy({{own, through, piece.count * width}}, on);
        });
      },
      &stream);
}

void GenericCollectives::barrier(Comm& comm, Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared()](pliant_stream* on) {
        if (const OwnComm* own = shared.own()) return own->call(&pliant_collectives::barrier, on);
        if (shared.peers() != nullptr) return between_devices::barrier(shared, on);
        shared.step(on, [&carrier = shared.carrier](pliant_comm* carried, pliant_stream* carrier_stream) {
          carrier.collectives.must(&pliant_collectives::barrier, carried, carrier_stream);
        });
      },
      &stream);
}

void GenericCollectives::send(Comm& comm, const void* buffer, Elements elements, int32_t peer, Stream& stream) {
  comm.enqueue(Comm::Message{true, const_cast<void*>(buffer), elements, peer}, &stream);
}
void GenericCollectives::recv(Comm& comm, void* buffer, Elements elements, int32_t peer, Stream& stream) {
  comm.enqueue(Comm::Message{false, buffer, elements, peer}, &stream);
}
void GenericCollectives::register_window(Comm& comm, void* pointer, uint64_t bytes, Stream& stream) {
  comm.enqueue(
      [&shared = comm.shared(), pointer, bytes](pliant_stream* on) {
        const OwnComm* const own = shared.own();
        if (own != nullptr && own->has_windows()) {
          return own->call(&pliant_collectives::register_window, pointer, bytes, on);
        }
        if (own != nullptr) return;
        // Nothing to make, and still the ranks are told when they do not mean the same.
        auto all = std::make_shared<std::vector<uint64_t>>(static_cast<size_t>(shared.world_size));
        auto mine = std::make_shared<const uint64_t>(bytes);
        shared.step(
            on,
            [&carrier = shared.carrier, all, mine](pliant_comm* carried, pliant_stream* carrier_stream) {
              carrier.collectives.must(&pliant_collectives::all_gather, carried, mine.get(), all->data(),
                                       sizeof(uint64_t), raw(sdk::DType::kU8), carrier_stream);
            },
            [all, mine, rank = shared.rank] {
              for (size_t r = 0; r < all->size(); ++r) {
                sdk::detail::check::of_rank(static_cast<int32_t>(r), (*all)[r] == *mine, [&] {
                  return "rank " + std::to_string(rank) + " registers a window of " + std::to_string(*mine) +
                         " bytes, rank " + std::to_string(r) + " one of " + std::to_string((*all)[r]);
                });
              }
            });
      },
      &stream);
}

void GenericCollectives::begin_group(Comm& comm) {
  comm.begin_group();
}
void GenericCollectives::end_group(Comm& comm) {
  comm.end_group();
}

}  // namespace pliant::detail
