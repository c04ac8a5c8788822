// DirectTransport: the carrier uses the device's memory, and nothing is copied.
#pragma once

#include <vector>

#include "collectives/transport/carried_transport.hpp"

namespace pliant::collectives {

class DirectTransport final : public CarriedTransport {
 public:
  DirectTransport(Steps& steps, const Place& place) : CarriedTransport(steps, place) {}

  [[nodiscard]] Way way() const override { return Way::kDirect; }
  void all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, pliant_stream* on) override;
  void all_gather(const void* send, void* recv, sdk::Elements elements, pliant_stream* on) override;
  void reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      pliant_stream* on) override;
  void broadcast(void* buffer, sdk::Elements elements, int32_t root, pliant_stream* on) override;
  void all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                    pliant_stream* on) override;
  void gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                     pliant_stream* on) override;
  void scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, const std::vector<uint8_t>& adds,
                      sdk::DType dtype, pliant_stream* on) override;
  void exchange(const std::vector<Message>& messages, pliant_stream* on) override;
};

}  // namespace pliant::collectives
