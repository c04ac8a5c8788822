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
#include "sharded/shards/model_tables.hpp"

namespace pliant::sharded {

inline constexpr const char* kTraceSchema = "pliant.trace/1";
/// Of a pass; more are refused.
inline constexpr uint32_t kMostMicroBatches = uint32_t{1} << 20U;

/// A call of the program, in the order in which it came. Times are microseconds of the machine's monotonic clock since
/// the first event of the file, in whole nanoseconds: what is finer is rounded when it is written. A pass that was
/// given up has no kEndPass. kEndStep: what gradients came to, which ranks exchange; also what was whole was given up,
/// before a parameter was moved by hand or updated. Where the job is not sharded it is the whole reduction, and there
/// are no other calls.
struct TracedCall {
  enum class Kind { kBeginPass, kBeginEvaluation, kEnter, kLeave, kEndPass, kEndStep, kByHand };
  Kind kind = Kind::kBeginPass;
  std::optional<uint32_t> module;  ///< entered or left
  Direction direction = Direction::kForward;
  int64_t step = 0;            ///< that the call belongs to, as the ledger counts
  uint32_t micro_batches = 1;  ///< of kBeginPass: that the pass is over
  double began = 0;
  double ended = 0;
  std::vector<pliant_action> actions;  ///< the coordinator's answer; of kByHand, what was done
  uint64_t live_bytes = 0;             ///< of the arena, when it ended
  uint64_t most_bytes = 0;             ///< the most of it since the call before it ended
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

/// The program, or its stream, stood still for a microsecond or more until a parameter was whole, or until a gradient
/// had arrived and made room.
struct TracedWait {
  TracedTransfer::Kind of = TracedTransfer::Kind::kGather;  ///< what it waited for
  uint32_t parameter = 0;
  size_t call = 0;  ///< of the rank's calls: the one that waited
  double began = 0;
  double ended = 0;
};

/// One process in one generation.
struct TracedRank {
  int32_t rank = 0;
  int64_t worker = 0;
  int64_t generation = 0;
  int32_t world_size = 1;
  bool is_cut = false;  ///< it went on when its part of the trace was full (TraceLog::kMostBytes)
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
  /// Whether the memory of the devices is the CPU's, which computes then, so that the time between two calls is that of
  /// the computation. False: a device computed beside the host. None: an older file, which does not say.
  std::optional<bool> host_visible;
  std::optional<ModelTables> model;  ///< as the last generation began with it; none where the job is not sharded
  std::vector<TracedRank> ranks;     ///< by generation, then by rank
};

/// Writes beside it and renames, so that `file` is whole or as it was. O(modules + parameters + events); what is in
/// memory beside `trace` does not grow with it. Errors as of write_whole.
Result<> write_trace(const TraceFile& trace, const std::filesystem::path& file);

/// Throws nothing. kNotFound; kDataLoss for what is no such file or is cut off, with the place; kUnimplemented for one
/// of another version; kResourceExhausted. O(bytes). What it returns is whole: calls name modules of the model,
/// actions that move a parameter, transfers and waits its parameters, transfers and waits calls of their rank. Keys and
/// events that it does not know are left out.
Result<TraceFile> read_trace(const std::filesystem::path& file);

}  // namespace pliant::sharded
