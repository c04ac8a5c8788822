// SharedLink: all ranks map the same segment, so what one writes the others see. Left to do: ring, and watch processes.
#pragma once

#include <memory>

#include "common/exchange/link.hpp"
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

}  // namespace pliant::accelerator
