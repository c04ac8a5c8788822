// GlooLink: ranks on several machines, connected each with each over Gloo. Every rank has a segment of its own, into
// which the link writes what the others publish.
#pragma once

#include <memory>

#include "common/exchange/link.hpp"
#include "common/gloo/network.hpp"

namespace pliant::accelerator {

class Group;

/// `listener` is what NetworkId::reserve returned where this process made the id and nobody else in it has joined yet,
/// or NULL. `group` outlives the link. Throws PLIANT_UNIMPLEMENTED where Gloo is not there.
std::unique_ptr<Link> make_gloo_link(Group& group, const NetworkId& id, const NetworkSettings& network,
                                     std::shared_ptr<UniqueFd> listener);

}  // namespace pliant::accelerator
