// Puts rows of an epoch, or parts of rows, into another order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "pliant/sdk/batch_sampler.hpp"

namespace pliant::sampler {

/// Entries [begin, end) of an epoch.
struct RowPart {
  uint64_t begin = 0;
  uint64_t end = 0;
  [[nodiscard]] uint64_t count() const { return end - begin; }
};

/// `parts`, which cover every entry once and are not empty, become the rows. The ids of `rows` are written out.
void rows_from_parts(std::span<const RowPart> parts, sdk::EpochRows& rows);

}  // namespace pliant::sampler
