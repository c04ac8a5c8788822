// squared_norms of a device, for those who have another way where it has none.
#pragma once

#include <cstdint>

#include "pliant/accelerator.hpp"

namespace pliant::detail {

/// As pliant::squared_norms, but only enqueued, never through the host; false, and nothing was enqueued, where the
/// accelerator or the device cannot.
[[nodiscard]] bool squared_norms_there(Stream& stream, double* to, const float* from, uint64_t count);

}  // namespace pliant::detail
