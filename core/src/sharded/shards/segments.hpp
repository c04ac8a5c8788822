// segments_of(): where the chunks of a model are cut, so that the ranks share every parameter and not one model end to
// end.
#pragma once

#include <cstdint>
#include <vector>

#include "sharded/shards/layout.hpp"
#include "sharded/shards/model_tables.hpp"
#include "sharded/shards/ownership.hpp"

namespace pliant::sharded {

/// Runs of chunks that a map of owners has at most when it is dealt, about: it goes from process to process as text.
/// Changes add some, see kMostRuns.
inline constexpr int64_t kMostDealtRuns = int64_t{1} << 15U;

/// Chunks at which segments end, ascending, the last one at layout.chunks(); none without chunks. A segment is a
/// parameter, or as many small ones side by side as have a chunk for each of `ranks`; it begins and ends with the chunk
/// boundary that is nearest. O(parameters).
std::vector<int32_t> segments_of(const ModelTables& model, const FlatLayout& layout, int32_t ranks);

/// Who owns what of a model in a new group: Ownership::deal in these segments. Throws where the sizes are none.
Ownership dealt(const ModelTables& model, const FlatLayout& layout, int32_t world_size, int64_t epoch = 0);

}  // namespace pliant::sharded
