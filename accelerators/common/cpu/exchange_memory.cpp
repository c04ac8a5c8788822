// Makes, passes on and maps memory of several processes.
#include "common/cpu/exchange_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/processes/shared_file.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {
constexpr uint64_t kPage = 4096;
constexpr uint64_t kExchangeMagic = 0x31584543544e4c50;  // "PLNTCEX1"

[[noreturn]] void refused(uint64_t bytes) {
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, "out of memory: the system refused " + std::to_string(bytes) +
                                               " bytes that processes share: " + std::strerror(errno));
}
}  // namespace

struct ExchangeMemory::Label {
  uint64_t magic;
  uint64_t process;
  uint64_t pid_space;
  uint64_t nonce[2];
  uint64_t bytes;
};

struct ExchangeMemory::Seal {
  uint64_t nonce[2];
  std::atomic<uint32_t> is_freed;
};

ExchangeMemory::Mapping::Mapping(int fd, uint64_t bytes, Use use) : mapped_(file_bytes(bytes)) {
  void* at = ::mmap(nullptr, mapped_, use == Use::kRead ? PROT_READ : PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) refused(bytes);
  if (use == Use::kRead) ::madvise(at, mapped_, MADV_DONTFORK);  // a forked child must not keep what is others'
  begin_ = static_cast<std::byte*>(at);
}

ExchangeMemory::Mapping::~Mapping() {
  if (begin_ != nullptr) ::munmap(begin_, mapped_);
}

ExchangeMemory::Mapping::Mapping(Mapping&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)), mapped_(other.mapped_) {}

ExchangeMemory::Seal& ExchangeMemory::Mapping::seal() const {
  return *reinterpret_cast<Seal*>(begin_ + mapped_ - kPage);
}

ExchangeMemory::~ExchangeMemory() {
  for (const auto& [pointer, one] : owned_) retire(one);
}

/// The allocation in whole pages, and one for the seal.
uint64_t ExchangeMemory::file_bytes(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage + kPage;
}

void ExchangeMemory::retire(const Owned& one) {
  if (one.owner == ::getpid()) one.mapping.seal().is_freed = 1;
}

ExchangeMemory::Owned ExchangeMemory::make(uint64_t bytes) {
  std::string refusal;
  UniqueFd file = make_shared_file("pliant-exchange", file_bytes(bytes), refusal);
  if (!file) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::to_string(bytes) + " bytes that processes share were wanted, and " +
                                                 refusal + "; free memory or raise the limit");
  }
  // Whoever maps it can rely on its size.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) refused(bytes);
  uint64_t drawn[2] = {};
  if (::getrandom(drawn, sizeof(drawn), 0) != static_cast<ssize_t>(sizeof(drawn))) {
    throw Failure(PLIANT_INTERNAL, std::string("getrandom: ") + std::strerror(errno));
  }
  Mapping mapping(file.get(), bytes);
  std::memcpy(mapping.seal().nonce, drawn, sizeof(drawn));
  return {std::move(file), std::move(mapping), bytes, {drawn[0], drawn[1]}, ::getpid()};
}

void* ExchangeMemory::alloc(uint64_t bytes) {
  pool_.reserve(bytes);
  try {
    Owned made = make(bytes);
    void* const pointer = made.mapping.begin();
    const std::lock_guard lock(mutex_);
    owned_.emplace(pointer, std::move(made));
    return pointer;
  } catch (...) {
    pool_.give_back(bytes);
    throw;
  }
}

void ExchangeMemory::free(void* pointer) {
  std::map<const void*, Owned>::node_type freed;  // unmapped when nobody waits for the lock any more
  {
    const std::lock_guard lock(mutex_);
    freed = owned_.extract(pointer);
  }
  if (!freed) return;
  retire(freed.mapped());
  pool_.give_back(freed.mapped().bytes);
}

pliant_ipc_handle ExchangeMemory::export_memory(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto found = owned_.find(pointer);
  if (found == owned_.end()) {
    throw Failure(PLIANT_INVALID_ARGUMENT,
                  "the memory to export is not the beginning of an allocation of PLIANT_MEMORY_EXCHANGE of this "
                  "instance; export the pointer that alloc gave");
  }
  const Owned& one = found->second;
  const Label label{kExchangeMagic,
                    ProcessId::self_for_others().packed(),
                    pid_space(),
                    {one.nonce.first, one.nonce.second},
                    one.bytes};
  pliant_ipc_handle handle{};
  static_assert(sizeof(label) <= sizeof(handle.bytes));
  std::memcpy(handle.bytes, &label, sizeof(label));
  handle.descriptor = ::fcntl(one.file.get(), F_DUPFD_CLOEXEC, 0);
  if (handle.descriptor < 0) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no file descriptor for a handle: ") + std::strerror(errno) +
                                                 "; close some or raise the limit (ulimit -n)");
  }
  return handle;
}

ExchangeMemory::Mapping ExchangeMemory::map(int32_t descriptor, const Label& label, Mapping::Use use) {
  struct stat file {};
  constexpr int kSealed = F_SEAL_SHRINK;
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  sdk::require(seals >= 0 && (seals & kSealed) == kSealed && ::fstat(descriptor, &file) == 0 &&
                   static_cast<uint64_t>(file.st_size) == file_bytes(label.bytes),
               "descriptor " + std::to_string(descriptor) + " is not that of the handle");
  Mapping mapping(descriptor, label.bytes, use);
  const Seal& seal = mapping.seal();
  sdk::require(seal.nonce[0] == label.nonce[0] && seal.nonce[1] == label.nonce[1],
               "descriptor " + std::to_string(descriptor) + " is that of another handle");
  if (seal.is_freed != 0) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "process " + std::to_string(ProcessId::unpack(label.process).pid) +
                                                  " has freed the memory of this handle; export what it has now");
  }
  return mapping;
}

void* ExchangeMemory::import_memory(const pliant_ipc_handle& handle) {
  Label label{};
  std::memcpy(&label, handle.bytes, sizeof(label));
  sdk::require(label.magic == kExchangeMagic, "the handle is none of this accelerator, or was damaged on its way");
  sdk::require(label.pid_space == pid_space(), "the handle is of another machine, boot or pid namespace");
  if (label.process == ProcessId::self().packed()) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the memory belongs to this process; use the pointer from alloc");
  }
  sdk::require(handle.descriptor >= 0, "the handle came without its descriptor; pass it as SCM_RIGHTS");
  Mapping mapping = map(handle.descriptor, label);
  const Nonce nonce{label.nonce[0], label.nonce[1]};
  const std::lock_guard lock(mutex_);
  for (auto& [pointer, one] : imported_) {
    if (one.nonce != nonce) continue;
    ++one.count;
    return pointer;
  }
  void* const pointer = mapping.begin();
  imported_.emplace(pointer, Imported{std::move(mapping), nonce, 1});
  return pointer;
}

void ExchangeMemory::release_memory(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = imported_.find(pointer);
  if (found != imported_.end() && --found->second.count == 0) imported_.erase(found);
}

std::optional<ExchangeMemory::Part> ExchangeMemory::part(const void* pointer, uint64_t bytes) const {
  auto found = owned_.upper_bound(pointer);
  if (found == owned_.begin()) return std::nullopt;
  --found;
  const uint64_t offset = reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(found->first);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return std::nullopt;
  return Part{&found->second, offset};
}

ExchangeMemory::Card ExchangeMemory::card_of(const void* pointer, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = part(pointer, bytes);
  if (!found || found->of->owner != ::getpid()) return {0, 0, {0, 0}, 0, 0, -1};
  const Owned& one = *found->of;
  return {ProcessId::self_for_others().packed(),
          pid_space(),
          {one.nonce.first, one.nonce.second},
          one.bytes,
          found->offset,
          one.file.get()};
}

bool ExchangeMemory::holds(const void* pointer, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return part(pointer, bytes).has_value();
}

std::optional<MemoryPool::Block> ExchangeMemory::block_of(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  const auto found = part(pointer, 1);
  if (!found) return std::nullopt;
  return MemoryPool::Block{static_cast<const std::byte*>(pointer) - found->offset, found->of->bytes,
                           sdk::Memory::kExchange};
}

bool ExchangeMemory::is_there(const void* pointer, const Card& card) const {
  const std::lock_guard lock(mutex_);
  const auto found = part(pointer, 0);
  return found && found->of->nonce == Nonce(card.nonce[0], card.nonce[1]);
}

std::shared_ptr<const std::byte> ExchangeMemory::open(const Card& card) {
  const ProcessId owner = ProcessId::unpack(card.process);
  const auto gone = [&](const char* why) {
    return Failure(PLIANT_FAILED_PRECONDITION,
                   "the memory of process " + std::to_string(owner.pid) + " cannot be mapped: " + why);
  };
  if (card.descriptor < 0) throw gone("it is not of the kind that processes share");
  if (card.pid_space != pid_space() || ProcessId::of(owner.pid) != owner) throw gone("it is not of this machine");
  const std::string path =
      "/proc/" + std::to_string(owner.pid) + "/fd/" + std::to_string(static_cast<int>(card.descriptor));
  // Opening a descriptor that now belongs to something else might block.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw gone(std::strerror(errno));
  const Label label{kExchangeMagic, card.process, card.pid_space, {card.nonce[0], card.nonce[1]}, card.bytes};
  const auto mapping = std::make_shared<const Mapping>(map(file.get(), label, Mapping::Use::kRead));
  return {mapping, mapping->begin() + card.offset};
}

}  // namespace pliant::accelerator
