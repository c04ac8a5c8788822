// How ranks of a sharded job differ in what they visit: who did what where they first part.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sharded/trace/visited.hpp"
#include "sharded/visit_page.hpp"

namespace pliant::sharded {

/// Whether ranks that work together have done the same so far; `pages` by rank, nullptr for one that has none: it is
/// left out, and so is a page of another generation. Those that are behind have not differed yet, and the modules
/// that a rank left last of all do not count, unless `all_done`: then all must have come equally far. In words who did
/// what where two first differ: "rank 2 entered mlp.up (backward) as visit 17, ranks 0, 1, 3 entered attn.qkv (forward)
/// as visit 17"; where that is further back than a page goes, who parted before which visit. nullopt: no difference can
/// be seen. O(ranks * log(ring)).
std::optional<std::string> how_visits_differ(const std::vector<const VisitReader*>& pages, int64_t generation,
                                             bool all_done);
/// The same of ranks that are done, by what they counted, which leaves nothing out and names no module: "rank 2 and
/// ranks 0, 1, 3 visited different modules".
std::optional<std::string> how_visits_differ(const std::vector<VisitCount>& by_rank);

}  // namespace pliant::sharded
