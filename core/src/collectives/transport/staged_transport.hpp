// StagedTransport: each call in pieces: copied to pinned memory, exchanged by the carrier, copied from it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collectives/transport/carried_transport.hpp"
#include "collectives/transport/stage.hpp"

namespace pliant::collectives {

class StagedTransport final : public CarriedTransport {
 public:
  StagedTransport(Steps& steps, const Place& place)
      : CarriedTransport(steps, place), messages_(steps, place.device_index) {}

  [[nodiscard]] Way way() const override { return Way::kStaged; }
  void all_reduce(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op, pliant_stream* on) override;
  void all_gather(const void* send, void* recv, sdk::Elements elements, pliant_stream* on) override;
  void reduce_scatter(const void* send, void* recv, sdk::Elements elements, sdk::ReduceOp op,
                      pliant_stream* on) override;
  void broadcast(void* buffer, sdk::Elements elements, int32_t root, pliant_stream* on) override;
  void all_gather_v(const void* send, void* recv, const std::vector<uint64_t>& counts, sdk::DType dtype,
                    pliant_stream* on) override;
  void gather_pieces(const void* send, void* recv, const sdk::PieceTable& pieces, sdk::DType dtype,
                     pliant_stream* on) override;
  void exchange(const std::vector<Message>& messages, pliant_stream* on) override { messages_.exchange(messages, on); }

 private:
  static constexpr uint64_t kStageBytes = uint64_t{4} << 20U;
  /// Calls on one stream use the same.
  struct Stages {
    Stage in;
    Stage out;
  };
  const Stages& stages(pliant_stream* stream);
  /// Elements of a piece of which each of `parts` ranks has one in the stage.
  static uint64_t most(sdk::DType dtype, int32_t parts);

  std::map<pliant_stream*, std::unique_ptr<Stages>> stages_;
  StagedMessages messages_;
};

}  // namespace pliant::collectives
