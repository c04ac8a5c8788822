// SharedPage: what processes that hold a handle to the same memory know of it together. HandleLabel: what the bytes of
// such a handle are.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "common/processes/process.hpp"
#include "pliant/abi/ipc.h"

namespace pliant::cuda {

/// Tells allocations apart, of all processes and for all time.
using Nonce = std::pair<uint64_t, uint64_t>;

/// A file without a name, mapped. Its descriptor travels with the handle.
class SharedPage {
 public:
  struct Words {
    uint64_t nonce[2];
    std::atomic<uint32_t> is_gone;  ///< the owner has freed it
  };
  /// A new one. Throws PLIANT_RESOURCE_EXHAUSTED.
  SharedPage();
  /// Another process's. Throws PLIANT_INVALID_ARGUMENT when the descriptor is not that of the nonce.
  SharedPage(int descriptor, const Nonce& nonce);
  ~SharedPage();
  SharedPage(SharedPage&& other) noexcept
      : file_(std::move(other.file_)), words_(std::exchange(other.words_, nullptr)) {}
  SharedPage& operator=(SharedPage&&) = delete;

  [[nodiscard]] Words& words() const { return *words_; }
  [[nodiscard]] Nonce nonce() const { return {words_->nonce[0], words_->nonce[1]}; }
  /// A new descriptor, the caller's.
  [[nodiscard]] int descriptor() const;

 private:
  accelerator::UniqueFd file_;
  Words* words_ = nullptr;
};

/// The bytes of a handle.
struct HandleLabel {
  static constexpr uint64_t kMagic = 0x31444d41444c5050;  // "PPLDAMD1"

  uint64_t magic = kMagic;
  uint64_t process = 0;  ///< ProcessId::packed
  uint64_t pid_namespace = 0;
  uint64_t nonce[2] = {};
  uint8_t native[64] = {};  ///< CUDA's own handle

  static HandleLabel of(const Nonce& nonce);
  /// With a new descriptor of the page.
  [[nodiscard]] pliant_ipc_handle pack(const SharedPage& page) const;
  /// Throws PLIANT_INVALID_ARGUMENT for what is no handle of this kind and machine or came without its descriptor,
  /// PLIANT_FAILED_PRECONDITION for one of this process.
  static HandleLabel unpack(const pliant_ipc_handle& handle);
  [[nodiscard]] accelerator::ProcessId owner() const { return accelerator::ProcessId::unpack(process); }
  [[nodiscard]] Nonce own_nonce() const { return {nonce[0], nonce[1]}; }
};

}  // namespace pliant::cuda
