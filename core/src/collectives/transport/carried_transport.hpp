// CarriedTransport: what the transports have in common whose ranks meet on the carrier.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/transport/steps.hpp"
#include "collectives/transport/transport.hpp"

namespace pliant::collectives {

class CarriedTransport : public Transport {
 public:
  void barrier(pliant_stream* on) override;
  /// By messages.
  void scatter_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, const std::vector<uint8_t>& adds,
                      sdk::DType dtype, pliant_stream* on) override;
  /// There is nothing to make, and still the ranks learn when they do not mean the same.
  void register_window(void* pointer, uint64_t bytes, pliant_stream* on) override;

 protected:
  /// `steps` outlives this.
  CarriedTransport(Steps& steps, const Place& place) : steps_(steps), place_(place) {}
  [[nodiscard]] Steps& steps() const { return steps_; }
  [[nodiscard]] const Place& place() const { return place_; }
  [[nodiscard]] int32_t rank() const { return place_.rank; }
  [[nodiscard]] int32_t world_size() const { return place_.world_size; }

 private:
  Steps& steps_;
  const Place place_;
};

}  // namespace pliant::collectives
