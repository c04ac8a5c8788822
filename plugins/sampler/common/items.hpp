// Items: what a packing sampler packs. Sequences in their order, whole or in pieces that fit a pack.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "order.hpp"
#include "pack_options.hpp"
#include "pliant/sdk/batch_sampler.hpp"
#include "threads.hpp"

namespace pliant::sampler {

/// Item i costs sizes[i], 1 .. max_tokens, which fits 31 bits where it is not the length itself. Views the request's
/// lengths where nothing had to be changed.
struct Items {
  std::span<const int32_t> lengths;  ///< tokens of item i
  std::span<const int32_t> sizes;    ///< what it counts against the budget
  std::vector<int64_t> ids;          ///< its sequence; empty = item i is sequence i
  std::vector<sdk::Piece> pieces;    ///< the part of its sequence; empty = all are whole
  uint64_t sequence_count = 0;       ///< different sequences, where pieces is not empty
  uint64_t truncated_count = 0;
  std::vector<int32_t> own_lengths;
  std::vector<int32_t> own_sizes;

  [[nodiscard]] size_t count() const { return lengths.size(); }
};

namespace detail {

/// Whether every length is in 1 .. longest, without a branch in the loop. longest >= 1.
bool all_within(std::span<const int32_t> lengths, int64_t longest, size_t threads = 1);

}  // namespace detail

/// What sequence `id` counts where loss tokens do.
inline int64_t loss_size(std::span<const int32_t> loss_tokens, int64_t id) {
  return std::max(loss_tokens[static_cast<size_t>(id)], 1);
}
void check_loss_tokens(int64_t id, int64_t loss_tokens, int64_t length);

/// The sequences of `request` as items of up to `longest` tokens in `order` (one of order_choices); those that are
/// dropped go to `rows`. Refuses a length below 1 by its id.
Items make_items(const sdk::EpochRequest& request, const PackOptions& options, const std::string& order,
                 int64_t longest, size_t threads, sdk::EpochRows& rows);

}  // namespace pliant::sampler
