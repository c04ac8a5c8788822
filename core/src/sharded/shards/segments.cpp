#include "sharded/shards/segments.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace pliant::sharded {

std::vector<int32_t> segments_of(const ModelTables& model, const FlatLayout& layout, int32_t ranks) {
  std::vector<int32_t> ends;
  const int64_t chunks = layout.chunks();
  const int64_t least = std::max<int64_t>(ranks, (chunks * ranks + kMostDealtRuns - 1) / kMostDealtRuns);
  int64_t begin = 0;
  for (const ParameterRow& row : model.parameters()) {
    const int64_t end = (static_cast<int64_t>(row.end()) + layout.chunk_elements() / 2) / layout.chunk_elements();
    if (end - begin < least || chunks - end < least) continue;  // what is left behind it would be too small
    ends.push_back(static_cast<int32_t>(end));
    begin = end;
  }
  if (chunks > 0) ends.push_back(static_cast<int32_t>(chunks));
  return ends;
}

Ownership dealt(const ModelTables& model, const FlatLayout& layout, int32_t world_size, int64_t epoch) {
  return or_throw(Ownership::deal(layout.chunks(), world_size, epoch, segments_of(model, layout, world_size)));
}

}  // namespace pliant::sharded
