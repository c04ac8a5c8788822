// Transport: how the ranks of a communicator meet, which its id says: in memory that they share, or over a network.
#pragma once

#include <memory>

#include "common/exchange/link.hpp"
#include "common/exchange/segment.hpp"
#include "common/processes/unique_fd.hpp"

namespace pliant::accelerator {

class Group;

class Transport {
 public:
  virtual ~Transport() = default;
  /// The memory of the communicator as this rank has it. Throws what Segment throws.
  [[nodiscard]] virtual Segment segment() const = 0;
  /// All ranks run on the processors of this machine.
  [[nodiscard]] virtual bool is_local() const = 0;
  /// `made` is what the id was reserved with, if this process made it, or NULL. `group` outlives the link. Throws
  /// PLIANT_UNIMPLEMENTED where the transport is not in this build.
  [[nodiscard]] virtual std::unique_ptr<Link> make_link(Group& group, std::shared_ptr<UniqueFd> made) const = 0;
};

}  // namespace pliant::accelerator
