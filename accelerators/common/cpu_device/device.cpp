// Puts memory, streams and communicators together.
#include "common/cpu_device/device.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "common/cpu/arithmetic.hpp"
#include "common/cpu/optimizer.hpp"

namespace pliant::accelerator {
namespace {

uint64_t nonce_of(const pliant_comm_id& id) {
  return NetworkId::is_one(id) ? NetworkId::nonce(id) : Segment::read(id).nonce[0];
}

}  // namespace

void Device::configure(DeviceSettings settings) {
  settings_ = std::move(settings);
  if (settings_.memory_bytes == 0) {
    settings_.memory_bytes =
        static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  memory_.set_limit(settings_.memory_bytes);
}

namespace {
/// Other processes map it.
bool is_shared(sdk::Memory memory) {
  return memory == sdk::Memory::kExchange || memory == sdk::Memory::kWindow;
}
}  // namespace

sdk::DeviceProperties Device::device_properties(int32_t) {
  return {settings_.name, settings_.memory_bytes,
          PLIANT_CAP_HOST_VISIBLE | PLIANT_CAP_FIXED_ORDER | PLIANT_CAP_EXCHANGE_MEMORY | PLIANT_CAP_WINDOW_MEMORY};
}

void* Device::alloc(int32_t device, sdk::Memory memory, uint64_t bytes) {
  return Device::alloc_aligned(device, memory, bytes, sdk::kLeastAlignment);
}

void* Device::alloc_aligned(int32_t, sdk::Memory memory, uint64_t bytes, uint64_t alignment) {
  check_there();
  if (settings_.faults) settings_.faults->before_alloc(bytes);
  if (is_shared(memory)) return exchange_.alloc(bytes);  // whole pages
  return memory_.alloc(bytes, memory, std::max(alignment, sdk::kLeastAlignment));
}

void Device::free(int32_t, sdk::Memory memory, void* pointer) {
  if (is_shared(memory)) {
    exchange_.free(pointer);
  } else {
    memory_.free(pointer);
  }
}

std::optional<sdk::PointerInfo> Device::pointer_info(const void* pointer) const {
  auto block = memory_.block_of(pointer);
  if (!block) block = exchange_.block_of(pointer);
  if (!block) block = registered_.block_of(pointer);
  if (!block) return std::nullopt;
  return sdk::PointerInfo{block->kind, block->kind == sdk::Memory::kPinned ? -1 : 0, block->begin, block->bytes};
}

void Device::register_host(void* pointer, uint64_t bytes) {
  check_there();
  for (const uint64_t offset : {uint64_t{0}, bytes - 1}) {
    const void* const at = static_cast<const std::byte*>(pointer) + offset;
    sdk::require(!memory_.block_of(at) && !exchange_.block_of(at),
                 "memory that alloc gave is registered by its kind: allocate PLIANT_MEMORY_PINNED instead");
  }
  registered_.add(pointer, bytes);
}

std::unique_ptr<Stream> Device::make_stream(int32_t, sdk::StreamUse use) {
  check_there();
  return std::make_unique<Stream>(settings_.faults, streams_++, use.role);
}

void Device::copy(void* to, const void* from, uint64_t bytes, Stream& stream) {
  stream.enqueue(
      [=] {
        if (bytes != 0) std::memcpy(to, from, bytes);
      },
      {.kind = WorkKind::kCopy, .bytes = bytes});
}

void Device::copy(std::span<const pliant_copy> copies, Stream& stream) {
  uint64_t bytes = 0;
  for (const pliant_copy& one : copies) bytes += one.bytes;
  stream.enqueue(
      [all = std::vector<pliant_copy>(copies.begin(), copies.end())] {
        for (const pliant_copy& one : all) {
          if (one.bytes != 0) std::memcpy(one.to, one.from, one.bytes);
        }
      },
      {.kind = WorkKind::kCopy, .bytes = bytes});
}

void Device::reduce(void* to, std::span<const void* const> from, sdk::Elements elements, sdk::ReduceOp op, double scale,
                    Stream& stream) {
  stream.enqueue(
      [=, all = std::vector<const void*>(from.begin(), from.end())] {
        accelerator::reduce(elements.dtype, op, all, scale, elements.count, to, nullptr);
      },
      {.bytes = elements.bytes() * (from.size() + 1)});
}

void Device::cast(void* to, sdk::DType to_type, const void* from, sdk::Elements elements, Stream& stream) {
  stream.enqueue([=] { accelerator::cast(elements.dtype, from, to_type, to, elements.count); },
                 {.bytes = elements.bytes() + elements.count * sdk::size_of(to_type)});
}

void Device::digest_blocks(uint64_t* to, const void* from, uint64_t blocks, Stream& stream) {
  stream.enqueue([=] { sdk::digest_blocks(to, from, blocks); },
                 {.bytes = blocks * (sdk::kDigestBlockBytes + sizeof(uint64_t))});
}

void Device::adamw(const pliant_adamw_update& update, const sdk::AdamWArrays& arrays, Stream& stream) {
  constexpr uint64_t kReadAndWritten = 7;  // of four arrays, all but the gradient are both
  stream.enqueue([=] { accelerator::adamw(update, arrays); },
                 {.bytes = kReadAndWritten * arrays.count * sizeof(float)});
}

void Device::squared_norms(double* to, const float* from, uint64_t count, Stream& stream) {
  stream.enqueue([=] { accelerator::squared_norms(to, from, count); },
                 {.bytes = count * sizeof(float) + sdk::norm_chunks(count) * sizeof(double)});
}

void Device::call(void (*function)(void*), void* context, Stream& stream) {
  stream.enqueue([=] { function(context); }, {.kind = WorkKind::kHostFunction});
}

void Device::spend(uint64_t nanoseconds, Stream& stream) {
  const bool takes_time = !settings_.faults || !settings_.faults->keeps_time();
  stream.enqueue(
      [=] {
        if (takes_time) std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
      },
      {.kind = WorkKind::kSpend, .spent_ns = nanoseconds});
}

void Device::fill(void* to, uint8_t byte, uint64_t bytes, Stream& stream) {
  stream.enqueue(
      [=] {
        if (bytes != 0) std::memset(to, byte, bytes);
      },
      {.bytes = bytes});
}

void Device::all_gather_v(Comm& comm, const void* send, void* recv, std::span<const uint64_t> counts, sdk::DType dtype,
                          Stream& stream) {
  comm.enqueue({.kind = CallKind::kAllGatherV,
                .send = send,
                .recv = recv,
                .elements = {counts[static_cast<size_t>(comm.rank())], dtype},
                .pieces = std::make_shared<const sdk::PieceTable>(sdk::PieceTable::in_rank_order(counts))},
               stream);
}

void Device::gather_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces, sdk::DType dtype,
                           Stream& stream) {
  const sdk::Elements own{pieces.owned(comm.rank()), dtype};
  comm.enqueue({.kind = CallKind::kGatherPieces,
                .send = send,
                .recv = recv,
                .elements = own,
                .pieces = std::make_shared<const sdk::PieceTable>(std::move(pieces))},
               stream);
}

void Device::scatter_pieces(Comm& comm, const void* send, void* recv, sdk::PieceTable pieces,
                            std::span<const uint8_t> adds, sdk::DType dtype, Stream& stream) {
  const sdk::Elements own{pieces.owned(comm.rank()), dtype};
  comm.enqueue({.kind = CallKind::kScatterPieces,
                .send = send,
                .recv = recv,
                .elements = own,
                .pieces = std::make_shared<const sdk::PieceTable>(std::move(pieces)),
                .adds = std::vector<uint8_t>(adds.begin(), adds.end())},
               stream);
}

pliant_comm_id Device::make_comm_id(int32_t world_size) {
  check_there();
  pliant_comm_id id{};
  UniqueFd fd = settings_.network.own.is_set()
                    ? NetworkId::reserve(world_size, settings_.chunk_bytes, settings_.network, id)
                    : Segment::reserve(world_size, settings_.chunk_bytes, id);
  if (fd) {
    const std::lock_guard lock(ids_mutex_);
    unused_ids_.push_back({nonce_of(id), std::make_shared<UniqueFd>(std::move(fd))});
    if (unused_ids_.size() > kUnusedIds) unused_ids_.pop_front();
  }
  return id;
}

std::unique_ptr<Communicator> Device::make_comm(int32_t, const pliant_comm_id& id, int32_t rank, int32_t world_size) {
  check_there();
  const std::lock_guard lock(ids_mutex_);
  const uint64_t nonce = nonce_of(id);
  const auto found = std::find_if(unused_ids_.begin(), unused_ids_.end(),
                                  [&](const UnusedId& unused) { return unused.nonce == nonce; });
  auto made = std::make_unique<Communicator>(id, rank, world_size, found == unused_ids_.end() ? nullptr : found->fd,
                                             settings_.network, settings_.faults);
  if (found != unused_ids_.end()) unused_ids_.erase(found);  // a call that was refused leaves the id as it was
  return made;
}

}  // namespace pliant::accelerator
