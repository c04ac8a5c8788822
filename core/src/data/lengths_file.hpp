// The lengths file: a Dataset in a run directory, so that the agent and all workers plan from the same numbers.
//
// Little-endian: "PLIANTDS", u32 version 3, u32 0, u64 N sequences, u64 M loss token counts (0 or N), u64 content,
// int32 length[N], int32 loss_tokens[M], u32 CRC-32 (ISO-HDLC) of all bytes before it. With rows or costs version 4:
// behind content u64 O offsets of rows, u64 I ids of rows and u64 C costs (0 or N); behind the loss tokens four bytes
// of 0 where N + M is odd, int64 offset[O], int64 id[I], int64 cost[C].
#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "pliant/batches.hpp"

namespace pliant::data {

/// Writes `dataset` to `file` unless that is there; then it must hold the same (kFailedPrecondition if not). Atomic:
/// any number of processes may do it at once, and readers see nothing or all of it. On disk when it returns.
Result<> write_dataset_once(const std::filesystem::path& file, const Dataset& dataset);

/// kNotFound: no such file; kDataLoss: truncated, damaged, or not a lengths file; kUnimplemented: of a later version.
Result<Dataset> read_dataset(const std::filesystem::path& file);

}  // namespace pliant::data
