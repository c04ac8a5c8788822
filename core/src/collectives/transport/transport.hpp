// Transport: how the ranks of a communicator exchange, once they have agreed on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/peers/called.hpp"
#include "collectives/transport/message.hpp"
#include "pliant/sdk/accelerator.hpp"
#include "pliant/sdk/pieces.hpp"

namespace pliant::collectives {

enum class Way {
  kDirect,  ///< the carrier uses the device's memory
  kStaged,  ///< the carrier uses pinned memory that the device copies from and to
  kPeer,    ///< each device reads memory of the others
  kNative   ///< by collectives of the device's own accelerator
};

/// Each call enqueues one collective on the stream `on`; arguments as of pliant_collectives. Throws sdk::Failure where
/// it cannot. One thread at a time.
class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  [[nodiscard]] virtual Way way() const = 0;
  virtual void all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                          pliant_stream* on) = 0;
  virtual void all_gather(const void* send, void* recv, sdk::Elements elements, pliant_stream* on) = 0;
  virtual void reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                              pliant_stream* on) = 0;
  virtual void broadcast(void* buffer, sdk::Elements elements, int32_t root, pliant_stream* on) = 0;
  virtual void barrier(pliant_stream* on) = 0;
  virtual void all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                            pliant_stream* on) = 0;
  virtual void gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                             pliant_stream* on) = 0;
  virtual void scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces,
                              const std::vector<uint8_t>& adds, sdk::DType dtype, pliant_stream* on) = 0;
  virtual void register_window(void* pointer, uint64_t bytes, pliant_stream* on) = 0;
  /// All at once.
  virtual void exchange(const std::vector<Message>& messages, pliant_stream* on) = 0;
  /// `calls` makes all calls of a group.
  virtual void in_group(const std::function<void()>& calls) { calls(); }
  /// So many collectives were called, and what was to be done for that is done.
  virtual void count_collectives(size_t) {}
};

}  // namespace pliant::collectives
