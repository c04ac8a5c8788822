// Makes, finds and maps the shared memory of a communicator.
#include "common/exchange/segment.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "common/processes/memory_left.hpp"
#include "common/processes/shared_file.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

constexpr uint32_t kSegmentMagic = 0x434c5031;  // "1PLC"
constexpr uint64_t kPage = 4096;
constexpr char kName[] = "pliant-communicator";

struct SegmentHead {
  uint64_t nonce[2];
  alignas(64) std::atomic<uint64_t> cause;
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

uint64_t rounded(uint64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

[[noreturn]] void no_memory(int32_t world_size, uint64_t chunk_bytes, uint64_t bytes, const std::string& reason) {
  char mib[32];
  std::snprintf(mib, sizeof(mib), "%.1f", static_cast<double>(bytes) / (1 << 20));
  throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                "no shared memory for a communicator of " + std::to_string(world_size) + " ranks: it needs " + mib +
                    " MiB (" + std::to_string(kSlots + kLaneSlots) + " x chunk_bytes " + std::to_string(chunk_bytes) +
                    " for each rank) and " + reason + "; free memory or lower chunk_bytes");
}

[[noreturn]] void maker_gone(const ProcessId& maker) {
  throw Failure(PLIANT_PEER_LOST, "the process that made this communicator id (pid " + std::to_string(maker.pid) +
                                      ") has ended or has given the communicator up");
}

}  // namespace

/// Byte offsets of the parts.
struct Segment::Layout {
  Layout(int32_t world_size, uint64_t chunk_bytes) {
    const auto ranks = static_cast<uint64_t>(world_size);
    blocks = kPage;
    calls = blocks + rounded(ranks * sizeof(RankBlock));
    lanes = calls + rounded(ranks * kSlots * sizeof(CallRecord));
    slots = lanes + rounded(ranks * ranks * sizeof(Lane));
    lane_slots = slots + ranks * kSlots * chunk_bytes;
    total = world_size == 1 ? slots : lane_slots + ranks * kLaneSlots * chunk_bytes;
  }
  uint64_t blocks;
  uint64_t calls;
  uint64_t lanes;
  uint64_t slots;
  uint64_t lane_slots;
  uint64_t total;
};

bool SegmentId::is_one(const pliant_comm_id& id) {
  return Segment::read(id).magic == kSegmentMagic;
}

SegmentId Segment::read(const pliant_comm_id& id) {
  SegmentId made{};
  std::memcpy(&made, id.bytes, sizeof(made));
  return made;
}

UniqueFd Segment::reserve(int32_t world_size, uint64_t chunk_bytes, pliant_comm_id& id) {
  SegmentId made{};
  made.magic = kSegmentMagic;
  made.world_size = world_size;
  made.process = ProcessId::self_for_others().packed();
  made.pid_space = pid_space();
  made.fd = -1;
  made.layout = kSegmentLayout;
  made.chunk_bytes = rounded_chunk(chunk_bytes, world_size);
  if (::getrandom(made.nonce, sizeof(made.nonce), 0) != static_cast<ssize_t>(sizeof(made.nonce))) {
    throw Failure(PLIANT_INTERNAL, std::string("getrandom: ") + std::strerror(errno));
  }
  UniqueFd fd;
  if (world_size > 1) {
    const uint64_t bytes = Layout(world_size, made.chunk_bytes).total;
    std::string refusal;
    fd = make_shared_file(kName, bytes, refusal);
    if (!fd) no_memory(world_size, made.chunk_bytes, bytes, refusal);
    if (::pwrite(fd.get(), made.nonce, sizeof(made.nonce), 0) != static_cast<ssize_t>(sizeof(made.nonce)) ||
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      throw Failure(PLIANT_INTERNAL, std::string("preparing shared memory: ") + std::strerror(errno));
    }
    made.fd = fd.get();
  }
  std::memset(id.bytes, 0, sizeof(id.bytes));
  std::memcpy(id.bytes, &made, sizeof(made));
  return fd;
}

namespace {

/// Opens the maker's memory. Looks at the link first: opening a descriptor that now belongs to something else might
/// block.
UniqueFd open_maker(const SegmentId& id) {
  const ProcessId maker = ProcessId::unpack(id.process);
  const std::string path = "/proc/" + std::to_string(maker.pid) + "/fd/" + std::to_string(id.fd);
  std::array<char, 256> target{};
  const ssize_t length = ::readlink(path.c_str(), target.data(), target.size() - 1);
  if (length < 0 && errno == EACCES) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "may not read " + path + ": all ranks must run as the same user");
  }
  if (ProcessId::of(maker.pid) != maker || length < 0 || std::strstr(target.data(), kName) == nullptr)
    maker_gone(maker);
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ESRCH)) maker_gone(maker);
  if (!fd) throw Failure(PLIANT_RESOURCE_EXHAUSTED, "cannot open " + path + ": " + std::strerror(errno));
  return fd;
}

void check_id(const SegmentId& id, int32_t world_size) {
  sdk::require(id.magic == kSegmentMagic, "this is no communicator id of this accelerator");
  if (id.layout != kSegmentLayout) {
    throw Failure(PLIANT_FAILED_PRECONDITION,
                  "the communicator id comes from another version of this accelerator (memory layout " +
                      std::to_string(id.layout) + ", here " + std::to_string(kSegmentLayout) +
                      "); all ranks must run the same release");
  }
  sdk::require(id.world_size == world_size, "the communicator id is for world size " + std::to_string(id.world_size) +
                                                ", not " + std::to_string(world_size));
  sdk::require(id.fd < 0 || id.pid_space == pid_space(),
               "the communicator id was made on another machine or in another container; this accelerator joins ranks "
               "of one machine only");
}

}  // namespace

Segment::Segment(const pliant_comm_id& bytes, int32_t world_size) : world_size_(world_size) {
  const SegmentId id = read(bytes);
  check_id(id, world_size);
  maker_ = ProcessId::unpack(id.process);
  chunk_bytes_ = id.chunk_bytes;
  bytes_ = Layout(world_size, chunk_bytes_).total;
  const UniqueFd fd = world_size > 1 ? open_maker(id) : UniqueFd();
  struct stat file {};
  if (fd && (::fstat(fd.get(), &file) != 0 || static_cast<uint64_t>(file.st_size) != bytes_)) maker_gone(maker_);
  map(fd.get());
  if (fd && std::memcmp(reinterpret_cast<SegmentHead*>(base_)->nonce, id.nonce, sizeof(id.nonce)) != 0) {
    ::munmap(base_, bytes_);
    maker_gone(maker_);
  }
}

Segment::Segment(int32_t world_size, uint64_t chunk_bytes)
    : world_size_(world_size), chunk_bytes_(rounded_chunk(chunk_bytes, world_size)) {
  bytes_ = Layout(world_size, chunk_bytes_).total;
  const uint64_t left = memory_left();
  if (bytes_ > left) {
    no_memory(world_size, chunk_bytes_, bytes_, "this machine has " + std::to_string(left >> 20U) + " MiB left");
  }
  map(-1);
}

uint64_t Segment::rounded_chunk(uint64_t chunk_bytes, int32_t world_size) {
  return rounded(std::max(chunk_bytes, static_cast<uint64_t>(world_size) * 64));
}

void Segment::map(int fd) {
  void* mapped =
      ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
  if (mapped == MAP_FAILED)
    no_memory(world_size_, chunk_bytes_, bytes_, std::string("mapping it says: ") + std::strerror(errno));
  base_ = static_cast<std::byte*>(mapped);
  ::madvise(base_, bytes_, MADV_DONTFORK);  // a forked child must not keep the memory alive
}

Segment::~Segment() {
  ::munmap(base_, bytes_);
}

std::atomic<uint64_t>& Segment::cause() const {
  return reinterpret_cast<SegmentHead*>(base_)->cause;
}

RankBlock& Segment::rank(int32_t rank) const {
  return reinterpret_cast<RankBlock*>(base_ + Layout(world_size_, chunk_bytes_).blocks)[rank];
}

CallRecord& Segment::call(int32_t rank, uint64_t tick) const {
  auto* calls = reinterpret_cast<CallRecord*>(base_ + Layout(world_size_, chunk_bytes_).calls);
  return calls[static_cast<uint64_t>(rank) * kSlots + tick % kSlots];
}

std::byte* Segment::slot(int32_t rank, uint64_t tick) const {
  return base_ + Layout(world_size_, chunk_bytes_).slots +
         (static_cast<uint64_t>(rank) * kSlots + tick % kSlots) * chunk_bytes_;
}

Lane& Segment::lane(int32_t from, int32_t to) const {
  auto* lanes = reinterpret_cast<Lane*>(base_ + Layout(world_size_, chunk_bytes_).lanes);
  return lanes[static_cast<uint64_t>(from) * static_cast<uint64_t>(world_size_) + static_cast<uint64_t>(to)];
}

std::byte* Segment::lane_slot(int32_t from, uint32_t slot) const {
  return base_ + Layout(world_size_, chunk_bytes_).lane_slots +
         (static_cast<uint64_t>(from) * kLaneSlots + slot) * chunk_bytes_;
}

}  // namespace pliant::accelerator
