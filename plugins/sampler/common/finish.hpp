// From packs of items to the rows of an epoch: sequences for items, packs that are too small, the last batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cost_windows.hpp"
#include "equal_batches.hpp"
#include "items.hpp"
#include "pack_options.hpp"
#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// rows.ids, which number items, become sequences and pieces of them.
void name_sequences(const Items& items, sdk::EpochRows& rows);

void write_ids_out(sdk::EpochRows& rows);

/// Whether finish_rows has anything to do but pad_last_batch.
bool changes_rows(const PackOptions& options);

/// Applies min_sequences, same_sequences, tail but for "pad", and cost_window to packs that name sequences of
/// `request`.
void finish_rows(const PackOptions& options, const sdk::EpochRequest& request, sdk::EpochRows& rows);

}  // namespace pliant::sampler
