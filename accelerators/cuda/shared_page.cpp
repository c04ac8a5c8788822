// Makes, maps and watches what processes share.
#include "shared_page.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "pliant/sdk/plugin.hpp"

namespace pliant::cuda {

using accelerator::ProcessId;
using accelerator::UniqueFd;
using sdk::Failure;

namespace {

constexpr size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

[[noreturn]] void refused(const char* what) {
  throw Failure(PLIANT_RESOURCE_EXHAUSTED, std::string("no ") + what + " for a handle: " + std::strerror(errno) +
                                               "; close descriptors or raise ulimit -n");
}

SharedPage::Words* map(int file) {
  void* at = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<SharedPage::Words*>(at);
}

}  // namespace

SharedPage::SharedPage() {
  struct rlimit limit {};  // growing a file past it would raise SIGXFSZ, which kills
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < kPage) {
    throw Failure(PLIANT_RESOURCE_EXHAUSTED, "the file size limit (ulimit -f) leaves no page for a handle; raise it");
  }
  uint64_t drawn[2] = {};
  if (::getrandom(drawn, sizeof(drawn), 0) != static_cast<ssize_t>(sizeof(drawn))) {
    throw Failure(PLIANT_INTERNAL, std::string("getrandom: ") + std::strerror(errno));
  }
  file_ = UniqueFd(::memfd_create("pliant-cuda", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file_) refused("file");
  const bool is_sealed = ::ftruncate(file_.get(), kPage) == 0 && ::fcntl(file_.get(), F_ADD_SEALS, kSeals) == 0;
  words_ = is_sealed ? map(file_.get()) : nullptr;
  if (words_ == nullptr) refused("page");
  std::memcpy(words_->nonce, drawn, sizeof(drawn));
}

SharedPage::SharedPage(int descriptor, const Nonce& nonce) {
  struct stat seen {};
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  const bool fits = seals >= 0 && (seals & kSeals) == kSeals && ::fstat(descriptor, &seen) == 0 &&
                    seen.st_size == static_cast<off_t>(kPage);
  sdk::require(fits, "descriptor " + std::to_string(descriptor) + " is not that of the handle");
  file_ = UniqueFd(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!file_) refused("descriptor");
  words_ = map(file_.get());
  if (words_ != nullptr && this->nonce() == nonce) return;
  const bool mapped = words_ != nullptr;
  if (mapped) ::munmap(words_, kPage);
  if (!mapped) refused("page");
  throw Failure(PLIANT_INVALID_ARGUMENT, "descriptor " + std::to_string(descriptor) + " is that of another handle");
}

SharedPage::~SharedPage() {
  if (words_ != nullptr) ::munmap(words_, kPage);
}

int SharedPage::descriptor() const {
  const int made = ::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0);
  if (made < 0) refused("descriptor");
  return made;
}

HandleLabel HandleLabel::of(const Nonce& nonce) {
  HandleLabel made;
  made.process = ProcessId::self_for_others().packed();
  made.pid_namespace = accelerator::pid_namespace();
  made.nonce[0] = nonce.first;
  made.nonce[1] = nonce.second;
  return made;
}

pliant_ipc_handle HandleLabel::pack(const SharedPage& page) const {
  pliant_ipc_handle handle{};
  static_assert(sizeof(*this) <= sizeof(handle.bytes));
  std::memcpy(handle.bytes, this, sizeof(*this));
  handle.descriptor = page.descriptor();
  return handle;
}

HandleLabel HandleLabel::unpack(const pliant_ipc_handle& handle) {
  HandleLabel label;
  std::memcpy(&label, handle.bytes, sizeof(label));
  sdk::require(label.magic == kMagic, "the handle is not one of cuda's memory handles, or was damaged");
  sdk::require(label.pid_namespace == accelerator::pid_namespace(),
               "the handle is of another machine or pid namespace");
  if (label.owner().pid == ::getpid()) {
    throw Failure(PLIANT_FAILED_PRECONDITION, "the memory belongs to this process; use the pointer from alloc");
  }
  sdk::require(handle.descriptor >= 0 && ::fcntl(handle.descriptor, F_GETFD) >= 0,
               "the handle came without its descriptor; pass it as SCM_RIGHTS");
  return label;
}

}  // namespace pliant::cuda
