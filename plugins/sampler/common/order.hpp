// Which sequences an epoch uses and in which order: the part that all samplers share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "length_sort.hpp"
#include "pliant/sdk/batch_sampler.hpp"
#include "python_shuffle.hpp"

namespace pliant::sampler {

inline constexpr const char* kOrderDoc =
    "Order of the sequences before rows are formed: dataloader = as given; random = shuffled in each epoch as Python's "
    "random.Random(seed + (epoch << 64)).shuffle does; seqlen = ascending by length, then by id.";
inline constexpr const char* kOverLongDoc =
    "What to do with sequences longer than max_tokens: error = stop and name them; drop = drop them, counted as "
    "too_long.";
std::vector<const char*> order_choices();
std::vector<const char*> over_long_choices();

void check_request(const sdk::EpochRequest& request);

/// The sequences of `request` in their given order. Refuses ids outside the data set and negative lengths.
std::vector<int64_t> chosen_ids(const sdk::EpochRequest& request);

/// Refuses sequences without a token.
void refuse_empty(std::span<const int64_t> ids, std::span<const int32_t> lengths);

/// `ids` in ascending order of (length, id); linear. Lengths are not negative.
void sort_by_length(std::vector<int64_t>& ids, std::span<const int32_t> lengths);

/// The sequences of `request` in the order that `order` (one of order_choices) names. Ids given twice stay twice.
std::vector<int64_t> ordered_ids(const sdk::EpochRequest& request, const std::string& order);

/// What the error for `too_long` (ids, not empty) of `total` sequences says; fits the ABI's message.
std::string explain_over_long(std::span<const int64_t> too_long, size_t total, std::span<const int32_t> lengths,
                              int64_t max_tokens);

/// Takes sequences above `max_tokens` out of `ids`: throws for over_long "error", drops them with `reason` for "drop".
void take_out_over_long(std::vector<int64_t>& ids, std::span<const int32_t> lengths, int64_t max_tokens,
                        const std::string& over_long, int32_t reason, sdk::EpochRows& rows);

/// Drops the rows at the end that do not fill a batch. Throws when not one batch is full; `advice` says what would
/// help.
void drop_incomplete_batch(sdk::EpochRows& rows, int64_t rows_per_batch, int32_t reason, const std::string& advice);

/// Writes the state of a sampler. All it decides follows from its options and the request, so the options are its
/// state: a resumed job that has other ones would not see the same batches.
void save_options(const sdk::Writer& out, const std::string& tag, const std::string& options);

/// Accepts what save_options wrote for the same options; PLIANT_DATA_LOSS for foreign or damaged bytes.
void load_options(const sdk::Reader& in, const std::string& tag, const std::string& options);

}  // namespace pliant::sampler
