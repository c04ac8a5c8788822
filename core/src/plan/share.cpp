// Who gets which rows of a global batch, and how a share is cut into micro-batches.
#include <fmt/format.h>

#include <algorithm>

#include "base/result.hpp"
#include "pliant/plan.hpp"

namespace pliant {

RowRange share_of(int64_t rows, int64_t granule, int64_t world_size, int64_t rank) {
  if (rows < 0 || granule < 1 || world_size < 1 || rank < 0 || rank >= world_size) {
    throw Error(Status::kInvalidArgument,
                fmt::format("cannot compute a share for rank {} of {} of {} rows in granules of {}: rows must be 0 or "
                            "more, granule and world size 1 or more, and the rank below the world size",
                            rank, world_size, rows, granule));
  }
  const int64_t granules = rows / granule + (rows % granule != 0 ? 1 : 0);
  const int64_t each = granules / world_size;
  const int64_t larger = granules % world_size;  // ranks with one granule more
  const int64_t first = rank * each + std::min(rank, larger);
  const int64_t past = first + each + (rank < larger ? 1 : 0);
  const auto row_at = [&](int64_t at) { return at == granules ? rows : at * granule; };
  return {row_at(first), row_at(past) - row_at(first)};
}

std::vector<RowRange> micro_batches(RowRange share, int64_t micro_batch) {
  if (micro_batch < 1) {
    throw Error(
        Status::kInvalidArgument,
        fmt::format("cannot cut a share into micro-batches of {} rows; they must have at least 1", micro_batch));
  }
  std::vector<RowRange> cut;
  for (int64_t done = 0; done < share.count;) {
    const int64_t count = std::min(micro_batch, share.count - done);
    cut.push_back({share.first + done, count});
    done += count;
  }
  return cut;
}

}  // namespace pliant
