// The page of a shared event. Recordings are numbered; each has a slot of the page until it is over.
#include "common/cpu/shared_event.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "common/processes/futex.hpp"

namespace pliant::accelerator {

using sdk::Failure;

namespace {

constexpr uint64_t kSharedEventMagic = 0x3154565458434e4c;  // "LNCXTVT1"
constexpr uint32_t kSlotBits = 10;                          // of `latest`
constexpr uint32_t kStateBits = 3;                          // of a slot's word
static_assert(SharedEvent::kMostSlots == 1U << kSlotBits);

struct Slot {
  std::atomic<uint64_t> word;      ///< number of its recording, and the state of that; 0: never used
  std::atomic<uint64_t> recorder;  ///< ProcessId::packed; written before the word
  std::atomic<uint32_t> held;
  uint32_t reserved;
};

uint64_t word_of(uint64_t number, SharedEvent::State state) {
  return number << kStateBits | static_cast<uint64_t>(state);
}
SharedEvent::State state_of(uint64_t word) {
  return static_cast<SharedEvent::State>(word & ((uint64_t{1} << kStateBits) - 1));
}

[[noreturn]] void refused(const char* what) {
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no memory for an event between processes: ") + what + ": " +
                                               std::strerror(errno) + "; close files or raise ulimit -n");
}

}  // namespace

struct SharedEvent::Page {
  uint64_t magic;
  uint64_t nonce[2];
  uint32_t slots;
  std::atomic<uint32_t> is_destroyed;
  std::atomic<uint64_t> numbers;  ///< given to recordings so far
  std::atomic<uint64_t> latest;   ///< number and slot
  std::atomic<uint32_t> bell;     ///< rung when any state changes
  uint32_t reserved;
  std::array<Slot, kMostSlots> all;
};

SharedEvent::SharedEvent(UniqueFd file, Page* page, const Nonce& nonce, uint32_t slots, ProcessWatch& watch)
    : file_(std::move(file)), page_(page), nonce_(nonce), slots_(slots), watch_(watch) {}

SharedEvent::~SharedEvent() {
  ::munmap(page_, sizeof(Page));
}

std::shared_ptr<SharedEvent> SharedEvent::make(uint32_t slots, ProcessWatch& watch) {
  struct rlimit limit {};  // growing a file past it would raise SIGXFSZ, which kills
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(Page)) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "the file size limit (ulimit -f) allows " +
                                                 std::to_string(limit.rlim_cur) +
                                                 " bytes, and an event between "
                                                 "processes takes " +
                                                 std::to_string(sizeof(Page)) + "; raise it");
  }
  UniqueFd file(::memfd_create("pliant-event", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || ::ftruncate(file.get(), sizeof(Page)) != 0) refused("memfd_create");
  // Whoever maps it can rely on its size.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) refused("fcntl");
  Nonce nonce{};
  uint64_t drawn[2] = {};
  if (::getrandom(drawn, sizeof(drawn), 0) != static_cast<ssize_t>(sizeof(drawn))) refused("getrandom");
  nonce = {drawn[0], drawn[1]};
  void* const at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) refused("mmap");
  auto* const page = static_cast<Page*>(at);
  page->magic = kSharedEventMagic;
  page->slots = slots;
  std::memcpy(page->nonce, drawn, sizeof(drawn));
  return std::shared_ptr<SharedEvent>(new SharedEvent(std::move(file), page, nonce, slots, watch));
}

std::shared_ptr<SharedEvent> SharedEvent::open(int descriptor, const Nonce& nonce, ProcessWatch& watch) {
  const std::string what = "descriptor " + std::to_string(descriptor);
  struct stat file {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  sdk::require(seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && ::fstat(descriptor, &file) == 0 &&
                   static_cast<uint64_t>(file.st_size) == sizeof(Page),
               what + " is not that of the handle");
  void* const at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) refused("mmap");
  auto* const page = static_cast<Page*>(at);
  const bool fits = page->magic == kSharedEventMagic && Nonce(page->nonce[0], page->nonce[1]) == nonce &&
                    page->slots > 0 && page->slots <= kMostSlots;
  std::shared_ptr<SharedEvent> made(new SharedEvent(UniqueFd(), page, nonce, fits ? page->slots : 1, watch));
  sdk::require(fits, what + " is that of another handle");
  if (page->is_destroyed != 0) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the event of this handle was destroyed; export one that is there");
  }
  return made;
}

void SharedEvent::retire() {
  if (self_.pid == ::getpid()) page_->is_destroyed = 1;
}

std::optional<SharedEvent::Recording> SharedEvent::claim() {
  const uint64_t number = ++page_->numbers;
  for (uint32_t tried = 0; tried < slots_; ++tried) {
    const auto at = static_cast<uint32_t>((number + tried) % slots_);
    Slot& slot = page_->all[at];
    uint64_t seen = slot.word;
    if (seen != 0 && !is_over(state_of(seen))) continue;
    if (!slot.word.compare_exchange_strong(seen, word_of(number, State::kClaimed))) continue;
    if (slot.held != 0) {
      slot.word = seen;
      continue;
    }
    slot.recorder = self_.packed();
    slot.word = word_of(number, State::kPending);
    return Recording{number, at, self_.packed()};
  }
  return std::nullopt;
}

SharedEvent::Recording SharedEvent::record() {
  std::optional<Recording> made = claim();
  if (!made) {
    for (uint32_t at = 0; at < slots_; ++at) {  // of processes that are gone, and that nobody has waited for
      const ProcessId process = ProcessId::unpack(page_->all[at].recorder);
      if (ProcessId::of(process.pid) != process) bury(process, State::kReady);
    }
    made = claim();
  }
  if (!made) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED,
                  "the event has " + std::to_string(slots_) +
                      " recordings that are not reached, or that other processes still wait for; synchronize first");
  }
  const uint64_t mine = made->number << kSlotBits | made->slot;
  uint64_t latest = page_->latest;
  while (latest < mine && !page_->latest.compare_exchange_weak(latest, mine)) {
  }
  return *made;
}

SharedEvent::Recording SharedEvent::latest() const {
  for (;;) {
    const uint64_t seen = page_->latest;
    const auto at = static_cast<uint32_t>(seen & (kMostSlots - 1));
    if (seen == 0 || at >= slots_) return {};
    const Recording found{seen >> kSlotBits, at, page_->all[at].recorder};
    if (page_->all[at].word >> kStateBits == found.number || page_->latest == seen) return found;
  }
}

void SharedEvent::set(const Recording& recording, State state) {
  page_->all[recording.slot].word = word_of(recording.number, state);
  ring(page_->bell);
}

void SharedEvent::settle(const Recording& recording, State state) {
  uint64_t ready = word_of(recording.number, State::kReady);
  if (page_->all[recording.slot].word.compare_exchange_strong(ready, word_of(recording.number, state))) {
    ring(page_->bell);
  }
}

SharedEvent::State SharedEvent::state(const Recording& recording) const {
  const uint64_t word = page_->all[recording.slot].word;
  return word >> kStateBits == recording.number ? state_of(word) : State::kReached;
}

void SharedEvent::watch_recorder(const Recording& recording) {
  if (recording.recorder == self_.packed() || is_over(state(recording))) return;
  watch(ProcessId::unpack(recording.recorder));
}

void SharedEvent::watch(const ProcessId& process) {
  const std::lock_guard lock(mutex_);
  if (watched_.count(process.packed()) != 0) return;
  watch_.watch(process, weak_from_this());
  watched_.insert(process.packed());
}

SharedEvent::State SharedEvent::wait(const Recording& recording, bool past_ready) {
  watch_recorder(recording);
  for (;;) {
    const uint32_t bell = page_->bell;
    const State now = state(recording);
    if (is_over(now) || (now == State::kReady && !past_ready)) return now;
    futex_wait(page_->bell, bell);
  }
}

void SharedEvent::hold(const Recording& recording) {
  ++page_->all[recording.slot].held;
}

void SharedEvent::release(const Recording& recording) {
  --page_->all[recording.slot].held;
}

void SharedEvent::require_reached(const Recording& recording, State state) {
  const std::string process = "process " + std::to_string(ProcessId::unpack(recording.recorder).pid);
  if (state == State::kDied) {
    throw Failure(PLIANT_ABORTED, process + " ended before the event that it recorded was reached");
  }
  if (state == State::kFailed) {
    throw Failure(PLIANT_ABORTED, "work before the event failed in " + process + ", which recorded it");
  }
}

void SharedEvent::bury(const ProcessId& process, State last) {
  bool found = false;
  for (uint32_t at = 0; at < slots_; ++at) {
    Slot& slot = page_->all[at];
    uint64_t word = slot.word;
    if (word == 0 || state_of(word) > last || slot.recorder != process.packed()) continue;
    found = slot.word.compare_exchange_strong(word, word_of(word >> kStateBits, State::kDied)) || found;
  }
  if (found) ring(page_->bell);
}

}  // namespace pliant::accelerator
