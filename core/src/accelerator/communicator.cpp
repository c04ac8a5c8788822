// Communicator over the collectives of an accelerator, its own or generic ones.
#include "pliant/communicator.hpp"

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/state.hpp"
#include "base/inside.hpp"
#include "collectives/transport/piece_messages.hpp"
#include "pliant/sdk/collectives.hpp"

namespace pliant {

namespace {

pliant_comm_id raw(const CommId& id) {
  pliant_comm_id made{};
  static_assert(sizeof(id) == sizeof(made.bytes));
  std::memcpy(made.bytes, id.data(), sizeof(made.bytes));
  return made;
}

/// As the slots take them. A few need no memory of their own.
class RawPieces {
 public:
  explicit RawPieces(std::span<const ArrayPiece> pieces) : size_(pieces.size()) {
    if (size_ > few_.size()) many_.resize(size_);
    pliant_piece* to = size_ > few_.size() ? many_.data() : few_.data();
    for (const ArrayPiece& one : pieces) *to++ = {one.rank, 0, one.offset, one.count};
  }
  [[nodiscard]] const pliant_piece* data() const { return many_.empty() ? few_.data() : many_.data(); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  size_t size_;
  std::array<pliant_piece, 16> few_;
  std::vector<pliant_piece> many_;
};

}  // namespace

struct Communicator::State {
  std::shared_ptr<Accelerator::State> accelerator;
  int32_t device = 0;
  int32_t rank = 0;
  int32_t world_size = 0;
  bool is_in_group = false;
  sdk::OwnedComm handle;

  State(std::shared_ptr<Accelerator::State> of, int32_t on, int32_t as, int32_t ranks)
      : accelerator(std::move(of)), device(on), rank(as), world_size(ranks), handle(accelerator->collectives.calls()) {}

  template <class Slot>
  [[nodiscard]] bool has(Slot pliant_collectives::*slot) const {
    return handle.calls().has(slot);
  }
  /// All at once, in the group that is open or in one of their own.
  void exchange(Communicator& self, const std::vector<collectives::Message>& messages, DType dtype, Stream& stream) {
    if (messages.empty()) return;
    const bool has_own_group = !is_in_group;
    if (has_own_group) self.begin_group();
    for (const collectives::Message& one : messages) {
      if (one.is_send) {
        self.send(one.buffer, one.elements.count, dtype, one.peer, stream);
      } else {
        self.recv(one.buffer, one.elements.count, dtype, one.peer, stream);
      }
    }
    if (has_own_group) self.end_group();
  }
  void create(const CommId& id) {
    const pliant_comm_id name = raw(id);
    accelerator->call(&pliant_collectives::comm_create, device, &name, rank, world_size, handle.out());
  }
  /// `old`: NULL for a rank that joins.
  void create_grown(pliant_comm* old, const CommId& id) {
    const pliant_comm_id name = raw(id);
    accelerator->call(&pliant_collectives::comm_grow, device, old, &name, rank, world_size, handle.out());
  }
};

Communicator::Communicator(const Accelerator& accelerator, int32_t device, const CommId& id, int32_t rank,
                           int32_t world_size)
    : Communicator(std::make_unique<State>(detail::shared_inside(accelerator), device, rank, world_size)) {
  state_->create(id);
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

int32_t Communicator::rank() const {
  return state_->rank;
}

int32_t Communicator::world_size() const {
  return state_->world_size;
}

Communicator Communicator::shrink(std::span<const int32_t> without, const CommId& id) {
  const auto gone = static_cast<int32_t>(without.size());
  state_->accelerator->told([&] {
    sdk::require(gone >= 1, "a communicator shrinks by at least 1 rank; the list of leaving ranks is empty");
    sdk::detail::check::leaving(without, state_->rank, state_->world_size);
  });
  int32_t rank = state_->rank;
  for (const int32_t one : without) rank -= one < state_->rank ? 1 : 0;
  auto made = std::make_unique<State>(state_->accelerator, state_->device, rank, state_->world_size - gone);
  if (made->has(&pliant_collectives::comm_shrink)) {
    const pliant_comm_id name = raw(id);
    made->accelerator->call(&pliant_collectives::comm_shrink, state_->handle, without.data(), gone, &name,
                            made->handle.out());
  } else {
    this->abort();
    made->create(id);
  }
  return Communicator(std::move(made));
}

CommId Communicator::make_grow_id(int32_t world_size) {
  Accelerator::State& accelerator = *state_->accelerator;
  pliant_comm_id made{};
  if (state_->has(&pliant_collectives::comm_grow_id)) {
    accelerator.call(&pliant_collectives::comm_grow_id, state_->handle, world_size, &made);
  } else {
    accelerator.call(&pliant_collectives::comm_id, world_size, &made);
  }
  CommId id{};
  std::memcpy(id.data(), made.bytes, sizeof(made.bytes));
  return id;
}

Communicator Communicator::grow(const CommId& id, int32_t world_size) {
  state_->accelerator->told(
      [&] { sdk::detail::check::growing(state_->rank, world_size, state_->rank, state_->world_size); });
  auto made = std::make_unique<State>(state_->accelerator, state_->device, state_->rank, world_size);
  if (made->has(&pliant_collectives::comm_grow)) {
    made->create_grown(state_->handle, id);
  } else {
    this->abort();
    made->create(id);
  }
  return Communicator(std::move(made));
}

Communicator Communicator::join(const Accelerator& accelerator, int32_t device, const CommId& id, int32_t rank,
                                int32_t world_size) {
  auto made = std::make_unique<State>(detail::shared_inside(accelerator), device, rank, world_size);
  if (made->has(&pliant_collectives::comm_grow)) {
    made->create_grown(nullptr, id);
  } else {
    made->create(id);
  }
  return Communicator(std::move(made));
}

void Communicator::wait_ready(int32_t timeout_ms) {
  state_->accelerator->call(&pliant_collectives::comm_status, state_->handle, timeout_ms);
}

void Communicator::abort() noexcept {
  const sdk::Calls<pliant_collectives>& calls = state_->handle.calls();
  calls->comm_abort(calls.self(), state_->handle);
}

void Communicator::register_window(void* pointer, uint64_t bytes, Stream& stream) {
  Accelerator::State& accelerator = *state_->accelerator;
  accelerator.told([&] { sdk::detail::check::window(pointer, bytes); });
  const bool has_memory = (accelerator.properties(state_->device).capabilities & PLIANT_CAP_WINDOW_MEMORY) != 0;
  if (!has_memory || !state_->has(&pliant_collectives::register_window)) return;
  accelerator.call(&pliant_collectives::register_window, state_->handle, pointer, bytes, detail::inside(stream).handle);
}

void Communicator::all_reduce(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::all_reduce, state_->handle, send, recv, count,
                            static_cast<int32_t>(dtype), static_cast<int32_t>(op), detail::inside(stream).handle);
}

void Communicator::all_gather(const void* send, void* recv, uint64_t count, DType dtype, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::all_gather, state_->handle, send, recv, count,
                            static_cast<int32_t>(dtype), detail::inside(stream).handle);
}

void Communicator::reduce_scatter(const void* send, void* recv, uint64_t count, DType dtype, ReduceOp op,
                                  Stream& stream) {
  state_->accelerator->call(&pliant_collectives::reduce_scatter, state_->handle, send, recv, count,
                            static_cast<int32_t>(dtype), static_cast<int32_t>(op), detail::inside(stream).handle);
}

void Communicator::broadcast(void* buffer, uint64_t count, DType dtype, int32_t root, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::broadcast, state_->handle, buffer, count, static_cast<int32_t>(dtype),
                            root, detail::inside(stream).handle);
}

void Communicator::barrier(Stream& stream) {
  state_->accelerator->call(&pliant_collectives::barrier, state_->handle, detail::inside(stream).handle);
}

void Communicator::all_gather_v(const void* send, void* recv, std::span<const uint64_t> counts, DType dtype,
                                Stream& stream) {
  if (counts.size() != static_cast<size_t>(state_->world_size)) {
    throw Error(Status::kInvalidArgument, "all_gather_v needs a count for each of " +
                                              std::to_string(state_->world_size) + " ranks; got " +
                                              std::to_string(counts.size()));
  }
  state_->accelerator->call(&pliant_collectives::all_gather_v, state_->handle, send, recv, counts.data(),
                            static_cast<int32_t>(dtype), detail::inside(stream).handle);
}

void Communicator::send(const void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::send, state_->handle, buffer, count, static_cast<int32_t>(dtype), peer,
                            detail::inside(stream).handle);
}

void Communicator::recv(void* buffer, uint64_t count, DType dtype, int32_t peer, Stream& stream) {
  state_->accelerator->call(&pliant_collectives::recv, state_->handle, buffer, count, static_cast<int32_t>(dtype), peer,
                            detail::inside(stream).handle);
}

void Communicator::begin_group() {
  state_->accelerator->call(&pliant_collectives::group_begin, state_->handle);
  state_->is_in_group = true;
}

void Communicator::end_group() {
  state_->is_in_group = false;
  state_->accelerator->call(&pliant_collectives::group_end, state_->handle);
}

void Communicator::gather_pieces(const void* send, void* recv, std::span<const ArrayPiece> pieces, DType dtype,
                                 Stream& stream) {
  Accelerator::State& accelerator = *state_->accelerator;
  const RawPieces table(pieces);
  const auto raw_type = static_cast<int32_t>(dtype);
  if (state_->has(&pliant_collectives::gather_pieces)) {
    return accelerator.call(&pliant_collectives::gather_pieces, state_->handle, send, recv, table.data(), table.size(),
                            raw_type, detail::inside(stream).handle);
  }
  const auto type = static_cast<sdk::DType>(dtype);
  const sdk::PieceTable checked = accelerator.told(
      [&] { return sdk::detail::check::pieces(table.data(), table.size(), raw_type, state_->world_size); });
  const void* const from =
      accelerator.told([&] { return sdk::detail::check::gathered(send, recv, checked, type, state_->rank); });
  const auto copies = collectives::copies_of_gather(checked, state_->rank, from, recv, type);
  if (!copies.empty()) {
    accelerator.call(&pliant_accelerator::copy_batch_async, copies.data(), copies.size(),
                     detail::inside(stream).handle);
  }
  state_->exchange(*this, collectives::messages_of_gather(checked, state_->rank, from, recv, type), dtype, stream);
}

void Communicator::scatter_pieces(const void* send, void* recv, std::span<const ArrayPiece> pieces,
                                  const std::vector<bool>& adds, DType dtype, Stream& stream) {
  if (adds.size() != static_cast<size_t>(state_->world_size)) {
    throw Error(Status::kInvalidArgument, "scatter_pieces asks of each of " + std::to_string(state_->world_size) +
                                              " ranks whether it adds; got " + std::to_string(adds.size()) +
                                              " answers");
  }
  Accelerator::State& accelerator = *state_->accelerator;
  const RawPieces table(pieces);
  const std::vector<uint8_t> by_rank(adds.begin(), adds.end());
  const auto raw_type = static_cast<int32_t>(dtype);
  if (state_->has(&pliant_collectives::scatter_pieces)) {
    return accelerator.call(&pliant_collectives::scatter_pieces, state_->handle, send, recv, table.data(), table.size(),
                            by_rank.data(), raw_type, detail::inside(stream).handle);
  }
  const auto type = static_cast<sdk::DType>(dtype);
  const sdk::PieceTable checked = accelerator.told([&] {
    sdk::PieceTable made = sdk::detail::check::pieces(table.data(), table.size(), raw_type, state_->world_size);
    sdk::detail::check::scattered(send, recv, made, by_rank.data(), type, state_->rank);
    return made;
  });
  state_->exchange(*this, collectives::messages_of_scatter(checked, state_->rank, send, recv, by_rank, type), dtype,
                   stream);
}

}  // namespace pliant
