// SharedTransport, SharedLink: all ranks map the same segment, so what one writes the others see. Left to do: ring, and
// watch processes.
#pragma once

#include <memory>

#include "common/exchange/transport.hpp"
#include "common/exchange/watcher.hpp"

namespace pliant::accelerator {

class Group;

class SharedLink final : public Link {
 public:
  /// `group` outlives the link.
  explicit SharedLink(Group& group) : group_(group) {}
  void start() override;
  void stop() override;

  void published(Stage stage, uint64_t ticks, const Parcels* parcels) override;
  void posted(int32_t peer, uint32_t slot, uint64_t bytes) override;
  void turned(int32_t peer) override;
  void failed(FailureCause cause) override;
  void left() override;

 private:
  void ring_all();
  Group& group_;
  std::unique_ptr<Watcher> watcher_;
};

class SharedTransport final : public Transport {
 public:
  SharedTransport(const pliant_comm_id& id, int32_t world_size) : id_(id), world_size_(world_size) {}
  [[nodiscard]] Segment segment() const override { return {id_, world_size_}; }
  [[nodiscard]] bool is_local() const override { return true; }
  /// The link watches who has joined by the segment itself; `made` is the group's.
  [[nodiscard]] std::unique_ptr<Link> make_link(Group& group, std::shared_ptr<UniqueFd> made) const override;

 private:
  const pliant_comm_id id_;
  const int32_t world_size_;
};

}  // namespace pliant::accelerator
