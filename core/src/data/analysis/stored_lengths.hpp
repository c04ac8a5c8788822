// Stored lengths: the .npy of a finished analysis, and the .origin.json beside it that says what was measured.
#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "data/analysis/partial_lengths.hpp"

namespace pliant::data {

/// Whether `file` is there, with its origin, and holds what was measured as `measure`. False: neither is there to be
/// used. kFailedPrecondition (kInput): it is of another identity, or has no origin, or is no file; kDataLoss: damaged.
Result<bool> stored_already(const std::filesystem::path& file, const Measure& measure);

/// For the process that holds `partial` open. Writes the origin, then `file` from a `partial` with all chunks. On disk
/// when it returns, whole or not at all.
Result<> store(const std::filesystem::path& file, const Measure& measure, const PartialLengths& partial);

}  // namespace pliant::data
