// VirtualClock: when each piece of work would begin and end on a device with engines of its own, worked out from what
// was enqueued and a cost model. Times depend on the order of the calls alone, never on how fast anything really runs.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "common/cpu/faults.hpp"

namespace pliant::accelerator {

/// 1 GB/s moves a byte in a nanosecond. Every piece takes whole nanoseconds, rounded up.
struct CostModel {
  int64_t launch_ns = 5000;    ///< of a copy, of what computes and is not told for how long, of an allocation in stream
                               ///< order, whatever its size
  double to_device_gbps = 25;  ///< copies on streams of that role
  double to_host_gbps = 25;
  double memory_gbps = 1000;      ///< bytes read and written by all other work
  int64_t collective_ns = 20000;  ///< of a collective or message, whatever its size
  double collective_gbps = 10;    ///< bytes of the larger buffer of a rank
};

/// A piece begins when what is before it on its stream, the event it waits for, what its thread of the host has waited
/// for and the engine of its stream's role are done. An engine takes pieces in the order of the calls; a later one may
/// use a gap that is long enough. Recordings, waits and host functions take no time and no engine. A collective begins
/// when all its ranks could, and takes no engine but its communicator, which has one at a time.
///
/// A piece whose time hangs on a collective that has not ended is timed when it has. One that is asked for sooner
/// passes those of its engine that hang so.
class VirtualClock {
 public:
  explicit VirtualClock(const CostModel& costs) : costs_(costs) {}

  void opened(uint64_t stream, sdk::StreamRole role);
  /// Takes `factor` times what the model says, and `late_ns` more.
  std::shared_ptr<Moment> enqueued(uint64_t stream, const Piece& piece, double factor, uint64_t late_ns);
  /// The collective may begin, for all that this rank knows. All before it on its stream has really run.
  uint64_t ready_ns(Moment& collective);
  /// It moves `bytes` from begin_ns on. When that is over.
  uint64_t transferred(Moment& collective, uint64_t begin_ns, uint64_t bytes);
  /// It has really ended: at the end of its last transfer, or at once when it had none.
  void ended(Moment& collective);
  /// When the piece, which has really ended, ends.
  uint64_t end_ns(const Moment& piece);
  /// What the calling thread enqueues from now on begins after `piece`. NULL: does nothing.
  void host_waits(const std::shared_ptr<const Moment>& piece);

 private:
  struct Node;
  using NodePointer = std::shared_ptr<const Node>;
  static constexpr size_t kEngines = 5;  ///< a stream role each

  struct Stream {
    sdk::StreamRole role = sdk::StreamRole::kCompute;
    NodePointer last;
  };
  /// What a thread of the host has waited for.
  struct Host {
    uint64_t ns = 0;
    std::vector<NodePointer> after;  ///< without a time yet
  };

  [[nodiscard]] uint64_t cost_ns(const Piece& piece, sdk::StreamRole role) const;
  static void put_after(Node& node, const NodePointer& earlier);
  /// False while something before it has no time.
  static bool gather(Node& node);
  void place(Node& node);
  /// Times all that can be timed.
  void settle();
  /// Times `node` and what it hangs on, passing what else its engines wait for.
  void force(const Node& node);

  const CostModel costs_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Stream> streams_;
  std::unordered_map<uint64_t, Host> hosts_;                 ///< by thread
  std::list<std::shared_ptr<Node>> untimed_;                 ///< in the order of the calls
  std::array<uint64_t, kEngines> queued_{};                  ///< of them, those that need the engine
  std::array<std::map<uint64_t, uint64_t>, kEngines> busy_;  ///< begin and end, apart from each other
};

}  // namespace pliant::accelerator
