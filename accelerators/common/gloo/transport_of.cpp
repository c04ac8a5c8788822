// Reads the first word of the id.
#include "common/gloo/transport_of.hpp"

#include <utility>

#include "common/exchange/shared_link.hpp"
#include "common/gloo/gloo_link.hpp"
#include "pliant/sdk/failure.hpp"

namespace pliant::accelerator {

namespace {

class GlooTransport final : public Transport {
 public:
  GlooTransport(const pliant_comm_id& id, int32_t world_size, const NetworkSettings& network)
      : id_(NetworkId::read(id, world_size, network)), world_size_(world_size), network_(network) {}

  [[nodiscard]] Segment segment() const override { return {world_size_, id_.chunk_bytes}; }
  [[nodiscard]] bool is_local() const override { return false; }
  [[nodiscard]] std::unique_ptr<Link> make_link(Group& group, std::shared_ptr<UniqueFd> made) const override {
    return make_gloo_link(group, id_, network_, std::move(made));
  }

 private:
  const NetworkId id_;
  const int32_t world_size_;
  const NetworkSettings network_;
};

}  // namespace

std::unique_ptr<Transport> transport_of(const pliant_comm_id& id, int32_t world_size, const NetworkSettings& network) {
  if (NetworkId::is_one(id)) return std::make_unique<GlooTransport>(id, world_size, network);
  sdk::require(
      !network.own.is_set() || !SegmentId::is_one(id),
      "the communicator id was made with transport = \"shared_memory\", but this rank has \"gloo\"; set the same "
      "transport on all ranks");
  return std::make_unique<SharedTransport>(id, world_size);
}

}  // namespace pliant::accelerator
