// Rows of ranks for the ledger, digests and numbers for the agent.
#include "elastic/assignment_record.hpp"

#include <algorithm>

#include "data/digest.hpp"

namespace pliant::elastic {

std::vector<std::vector<RowRange>> rows_of_ranks(const Assignment& assignment) {
  std::vector<std::vector<RowRange>> ranks(static_cast<size_t>(assignment.world_size()));
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::span<const RowRange> own = assignment.of(static_cast<int64_t>(rank));
    std::vector<RowRange> blocks(own.begin(), own.end());
    std::sort(blocks.begin(), blocks.end(), [](const RowRange& a, const RowRange& b) { return a.first < b.first; });
    std::vector<RowRange>& joined = ranks[rank];
    for (const RowRange& block : blocks) {
      if (!joined.empty() && joined.back().first + joined.back().count == block.first) {
        joined.back().count += block.count;
      } else {
        joined.push_back(block);
      }
    }
  }
  return ranks;
}

uint64_t digest_of(const Assignment& assignment) {
  data::Digest digest;
  for (const size_t offset : assignment.offsets) digest.add(uint64_t{offset});
  for (const RowRange& block : assignment.blocks) {
    digest.add(static_cast<uint64_t>(block.first));
    digest.add(static_cast<uint64_t>(block.count));
  }
  return digest.value();
}

uint64_t digest_of(const Batch& batch) {
  data::Digest digest;
  digest.add(static_cast<uint64_t>(batch.epoch));
  digest.add(std::span<const uint64_t>(batch.offsets));
  digest.add(std::span<const int64_t>(batch.ids));
  for (const Piece& piece : batch.pieces) {
    digest.add(static_cast<uint64_t>(piece.first));
    digest.add(static_cast<uint64_t>(piece.count));
  }
  return digest.value();
}

std::vector<double> numbers_of(const Scaling& scaling) {
  return {scaling.learning_rate,
          scaling.scheduled_learning_rate,
          scaling.learning_rate_factor,
          scaling.one_minus_beta1,
          scaling.one_minus_beta2,
          scaling.epsilon,
          scaling.weight_decay,
          scaling.ema_power,
          scaling.momentum_buffer,
          scaling.second_moment,
          scaling.progress};
}

}  // namespace pliant::elastic
