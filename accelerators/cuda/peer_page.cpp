// Makes and opens pages in memory without a name, which the other processes find by way of /proc.
#include "peer_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/processes/shared_file.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::cuda {

using accelerator::ProcessId;
using accelerator::UniqueFd;
using sdk::Failure;

namespace {

constexpr char kFile[] = "pliant-nccl-rank";

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

uint64_t pack(const CallNote& note) {
  return static_cast<uint64_t>(note.kind) << 48U | static_cast<uint64_t>(note.dtype) << 40U |
         static_cast<uint64_t>(note.op) << 32U | static_cast<uint32_t>(note.rank);
}

CallNote unpack(uint64_t what, uint64_t count) {
  return {static_cast<accelerator::CallKind>(what >> 48U), static_cast<sdk::DType>(what >> 40U & 0xffU),
          static_cast<sdk::ReduceOp>(what >> 32U & 0xffU), static_cast<int32_t>(what & 0xffffffffU), count};
}

uint64_t digest(uint64_t before, uint64_t what, uint64_t count) {
  uint64_t hash = before + 1;
  for (const uint64_t word : {what, count}) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29U;
  }
  return hash;
}

PeerPage::Words* map(int file, int access) {
  void* at = ::mmap(nullptr, sizeof(PeerPage::Words), access, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) return nullptr;
  ::madvise(at, sizeof(PeerPage::Words), MADV_DONTFORK);
  return static_cast<PeerPage::Words*>(at);
}

[[noreturn]] void no_page(const std::string& why) {
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, "no memory that the ranks of this machine share: " + why);
}

}  // namespace

uint64_t CallRing::post(const CallNote& note) {
  const uint64_t number = posted_.load(std::memory_order_relaxed);
  Words& to = words_[number % kKept];
  const uint64_t what = pack(note);
  // Released, so that who reads one of these words has seen the number that was posted before them.
  to.what.store(what, std::memory_order_release);
  to.count.store(note.count, std::memory_order_release);
  to.history.store(history_, std::memory_order_release);
  history_ = digest(history_, what, note.count);
  // Of two ranks that post and then look, one sees what the other has posted.
  posted_.store(number + 1, std::memory_order_seq_cst);
  return number;
}

std::optional<CallRing::Entry> CallRing::at(uint64_t number) const {
  if (posted_.load(std::memory_order_seq_cst) <= number) return std::nullopt;
  const Words& from = words_[number % kKept];
  const uint64_t what = from.what.load(std::memory_order_acquire);
  const uint64_t count = from.count.load(std::memory_order_acquire);
  const uint64_t history = from.history.load(std::memory_order_acquire);
  // Whoever writes over it has posted all that is kept.
  if (posted_.load(std::memory_order_relaxed) >= number + kKept) return std::nullopt;
  return Entry{unpack(what, count), history};
}

PeerPage::PeerPage() {
  name_.process = ProcessId::self_for_others().packed();
  name_.pid_space = accelerator::pid_space();
  name_.layout = kLayout;
  if (::getrandom(&name_.nonce, sizeof(name_.nonce), 0) != static_cast<ssize_t>(sizeof(name_.nonce))) {
    no_page(std::string("getrandom: ") + std::strerror(errno));
  }
  std::string refusal;
  file_ = accelerator::make_shared_file(kFile, sizeof(Words), refusal);
  if (!file_) no_page(refusal);
  name_.descriptor = file_.get();
  if (::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) no_page(std::strerror(errno));
  words_ = map(file_.get(), PROT_READ | PROT_WRITE);
  if (words_ == nullptr) no_page(std::strerror(errno));
  words_->nonce = name_.nonce;
}

std::unique_ptr<const PeerPage> PeerPage::open(const PageName& name) {
  const ProcessId owner = ProcessId::unpack(name.process);
  const std::string path = "/proc/" + std::to_string(owner.pid) + "/fd/" + std::to_string(name.descriptor);
  // The link first: to open what the number means by now might block.
  std::array<char, 256> target{};
  if (::readlink(path.c_str(), target.data(), target.size() - 1) < 0) return nullptr;
  if (std::strstr(target.data(), kFile) == nullptr) return nullptr;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat seen {};
  if (!file || ::fstat(file.get(), &seen) != 0 || seen.st_size != static_cast<off_t>(sizeof(Words))) return nullptr;
  Words* words = map(file.get(), PROT_READ);
  if (words == nullptr) return nullptr;
  std::unique_ptr<const PeerPage> made(new PeerPage(name, words));
  return words->nonce == name.nonce ? std::move(made) : nullptr;
}

PeerPage::~PeerPage() {
  if (words_ != nullptr) ::munmap(words_, sizeof(Words));
}

}  // namespace pliant::cuda
