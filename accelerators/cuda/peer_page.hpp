// PeerPage: what one rank of a communicator shows to the others of its machine: what it called, and how it ended.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/exchange/collectives.hpp"
#include "common/processes/process.hpp"

namespace pliant::cuda {

/// One call, as far as ranks must agree on it.
struct CallNote {
  accelerator::CallKind kind = accelerator::CallKind::kBarrier;
  sdk::DType dtype = sdk::DType::kU8;
  sdk::ReduceOp op = sdk::ReduceOp::kSum;
  int32_t rank = 0;    ///< the root of a broadcast, the peer of a message; of all_gather_v the digest of the counts
  uint64_t count = 0;  ///< elements
  bool operator==(const CallNote&) const = default;
};

/// The last calls of one kind. One rank writes, all read.
class CallRing {
 public:
  static constexpr uint64_t kKept = 32;
  struct Entry {
    CallNote note;
    uint64_t history;  ///< digest of all calls before
  };
  /// Returns its number: calls before it. To be called by the writer, one call at a time.
  uint64_t post(const CallNote& note);
  /// Nothing: it was not posted yet, or is no longer kept.
  [[nodiscard]] std::optional<Entry> at(uint64_t number) const;

 private:
  struct Words {
    std::atomic<uint64_t> what;
    std::atomic<uint64_t> count;
    std::atomic<uint64_t> history;
  };
  std::atomic<uint64_t> posted_;
  uint64_t history_;  ///< of the writer
  std::array<Words, kKept> words_;
};

/// By which other processes find a page. The same bytes on every machine, so that ranks can send it.
struct PageName {
  uint64_t process;    ///< ProcessId::packed of the owner; 0: this rank has no page
  uint64_t pid_space;  ///< accelerator::pid_space()
  uint64_t nonce;
  int32_t descriptor;  ///< in the owner
  uint32_t layout;     ///< PeerPage::kLayout
};

class PeerPage {
 public:
  /// Rises whenever what stands in a page changes.
  static constexpr uint32_t kLayout = 1;
  /// Ranks of one machine whose messages are noted.
  static constexpr size_t kMostPeers = 16;
  struct Words {
    uint64_t nonce;
    std::atomic<uint64_t> cause;     ///< FailureCause::packed: why the communicator failed here; 0: it has not
    std::atomic<uint32_t> has_left;  ///< the communicator ended here when nothing ran
    CallRing collectives;
    std::array<CallRing, kMostPeers> sent;  ///< to each rank of the machine, in rank order
    std::array<CallRing, kMostPeers> received;
  };

  /// An own one. Throws PLIANT_RESOURCE_EXHAUSTED.
  PeerPage();
  /// Another rank's, to read; NULL when it cannot be opened: its process has ended or is another user's.
  static std::unique_ptr<const PeerPage> open(const PageName& name);
  ~PeerPage();
  PeerPage(const PeerPage&) = delete;
  PeerPage& operator=(const PeerPage&) = delete;

  [[nodiscard]] const PageName& name() const { return name_; }
  [[nodiscard]] Words& words() { return *words_; }
  [[nodiscard]] const Words& words() const { return *words_; }

 private:
  PeerPage(const PageName& name, Words* words) : name_(name), words_(words) {}
  PageName name_{};
  accelerator::UniqueFd file_;  ///< of an own one: open while others may come
  Words* words_ = nullptr;
};

}  // namespace pliant::cuda
