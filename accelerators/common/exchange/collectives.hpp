// Collectives: what all ranks of a group exchange, chunk by chunk, through its shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/exchange/group.hpp"
#include "common/exchange/windows.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/pieces.hpp"

namespace pliant::accelerator {

enum class CallKind : int32_t {
  kAllReduce = 1,
  kAllGather = 2,
  kReduceScatter = 3,
  kBroadcast = 4,
  kBarrier = 5,
  kAllGatherV = 6,
  kSend = 7,
  kRecv = 8,
  kWindow = 9,  ///< nothing is exchanged, but all ranks name as many bytes
  kGatherPieces = 10,
  kScatterPieces = 11
};

/// One call by one rank. broadcast and recv use `recv` only, send uses `send` only; all_gather_v and the collectives of
/// pieces name as `elements` those that this rank owns.
struct Call {
  CallKind kind = CallKind::kBarrier;
  const void* send = nullptr;
  void* recv = nullptr;
  sdk::Elements elements;
  sdk::ReduceOp op = sdk::ReduceOp::kSum;
  int32_t rank = 0;                   ///< the root of a broadcast, the peer of a message
  ExchangeMemory* windows = nullptr;  ///< of kWindow: whose memory it is; NULL: of none that could be mapped
  /// Of all_gather_v and the collectives of pieces: where they lie. A gather of pieces has `send` NULL where the own
  /// ones are in `recv` already.
  std::shared_ptr<const sdk::PieceTable> pieces = nullptr;
  std::vector<uint8_t> adds = {};  ///< of kScatterPieces, by rank: it sends its array

  [[nodiscard]] bool is_message() const { return kind == CallKind::kSend || kind == CallKind::kRecv; }
  [[nodiscard]] bool gathers_pieces() const { return kind == CallKind::kAllGatherV || kind == CallKind::kGatherPieces; }
};

/// What was called, in words.
[[nodiscard]] std::string describe(const CallRecord& call);
/// Stands for the pieces where all ranks must name the same, and for who adds to them, which may be nobody.
[[nodiscard]] int32_t digest(const sdk::PieceTable& pieces, std::span<const uint8_t> adds = {});

/// Runs collectives one after the other, on any thread, one at a time.
class Collectives {
 public:
  explicit Collectives(Group& group) : group_(group) {}
  /// Blocks until this rank has its result. Throws the group's failure, and PLIANT_INVALID_ARGUMENT when another rank
  /// called something else; the group has failed then. No message.
  void run(const Call& call);

 private:
  void exchange(const Call& call);
  /// At world size 1.
  static void run_alone(const Call& call);
  /// After all ranks have met in the call: maps the memory of all others, or none.
  void make_window(const Call& call);

  Group& group_;
  Windows windows_;
  bool is_read_ = false;  ///< others may be reading buffers of the call under way
  uint64_t tick_ = 0;     ///< ticks of all calls so far
  uint64_t history_ = 0;  ///< digest of all calls so far
};

}  // namespace pliant::accelerator
