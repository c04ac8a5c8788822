// TraceFile: what every rank of a job visited, what its coordinator answered, what was moved and who waited, in one
// JSON file that Perfetto opens ("Trace Event Format" of Chrome, the object form) and `pliant trace`, `pliant plan
// --memory` and `pliant coordinator simulate` read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "pliant/abi/coordinator.h"
#include "pliant/communicator.hpp"
#include "pliant/sharded.hpp"
#include "sharded/model_tables.hpp"

namespace pliant::sharded {

inline constexpr const char* kTraceSchema = "pliant.trace/1";

/// A call of the program, in the order in which it came. Times are microseconds of the machine's monotonic clock since
/// the first event of the file.
struct TracedCall {
  enum class Kind { kBeginPass, kBeginEvaluation, kEnter, kLeave, kEndPass, kEndStep, kByHand };
  Kind kind = Kind::kBeginPass;
  std::optional<uint32_t> module;  ///< entered or left
  Direction direction = Direction::kForward;
  int64_t step = 0;  ///< that the call belongs to, as the ledger counts
  double began = 0;
  double ended = 0;
  std::vector<pliant_action> actions;  ///< the coordinator's answer
  uint64_t live_bytes = 0;             ///< of the arena, when it ended
};

/// A collective on the stream that ranks exchange on.
struct TracedTransfer {
  enum class Kind { kGather, kReduce };
  Kind kind = Kind::kGather;
  std::vector<uint32_t> parameters;
  uint64_t bytes = 0;  ///< of these, whole
  bool is_ahead = false;
  size_t call = 0;  ///< of the rank's calls: the one in which it was enqueued
  double began = 0;
  double ended = 0;  ///< by the device's clock
};

/// The program, or its stream, stood still until a parameter was whole.
struct TracedWait {
  uint32_t parameter = 0;
  size_t call = 0;  ///< of the rank's calls: the enter that waited
  double began = 0;
  double ended = 0;
};

/// One process in one generation.
struct TracedRank {
  int32_t rank = 0;
  int64_t worker = 0;
  int64_t generation = 0;
  int32_t world_size = 1;
  std::vector<TracedCall> calls;
  std::vector<TracedTransfer> transfers;
  std::vector<TracedWait> waits;
};

struct TraceFile {
  std::string run;          ///< its id
  std::string coordinator;  ///< its plugin; empty: the job is not sharded
  uint64_t budget = 0;      ///< bytes, 0: none
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  std::optional<ModelTables> model;  ///< none where the job is not sharded
  std::vector<TracedRank> ranks;     ///< by generation, then by rank
};

/// Writes beside it and renames, so that `file` is whole or as it was.
Result<> write_trace(const TraceFile& trace, const std::filesystem::path& file);

/// Throws nothing. kNotFound; kDataLoss for what is no such file or is cut off, with the place; kUnimplemented for one
/// of another version.
Result<TraceFile> read_trace(const std::filesystem::path& file);

}  // namespace pliant::sharded
