// TraceLog: what one worker does, as it does it, in a file that it maps: when it is killed, what it had is there. The
// agent makes a TraceFile of the logs of all workers when the job is over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/durable_file.hpp"
#include "base/result.hpp"
#include "sharded/trace/trace_file.hpp"

namespace pliant::sharded {

/// What a generation begins with, on one rank.
struct TracedGroup {
  int64_t generation = 0;
  int32_t rank = 0;
  int32_t world_size = 1;
  const ModelTables* model = nullptr;  ///< NULL: the job is not sharded, and the rest says nothing
  std::string coordinator{};
  uint64_t budget = 0;
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  bool host_visible = true;  ///< the memory of its device is the CPU's; TraceRecorder says so
};

/// Of the process that works. One thread at a time. No call waits for another process; one that finds the log full, or
/// no room for more on the disk, leaves out what it was given, and so does every later one.
class TraceLog {
 public:
  /// Of a file: some hundred steps of a model of a thousand modules.
  static constexpr uint64_t kMostBytes = uint64_t{128} << 20U;

  /// Writes `file` anew, which does not grow above `most_bytes`.
  static Result<TraceLog> create(const std::filesystem::path& file, uint64_t most_bytes = kMostBytes);
  TraceLog(TraceLog&& other) noexcept;
  TraceLog& operator=(TraceLog&&) = delete;
  ~TraceLog();

  /// What is added from now on is of this group. O(modules + parameters). Throws std::bad_alloc.
  void begin(const TracedGroup& group);
  void add(const TracedCall& call) noexcept;
  void add(const TracedTransfer& transfer) noexcept;
  void add(const TracedWait& wait) noexcept;
  [[nodiscard]] bool is_full() const { return is_full_; }

 private:
  struct Head;
  TraceLog() = default;
  /// A record is there as a whole once commit() has returned.
  void put(const void* bytes, size_t count) noexcept;
  void commit() noexcept;
  [[nodiscard]] bool map_next() noexcept;
  template <class Record>
  void begin_record(uint32_t kind, const Record& record, size_t more) noexcept;

  FileDescriptor file_;
  uint64_t most_bytes_ = 0;
  Head* head_ = nullptr;
  char* window_ = nullptr;  ///< the part of the file that is written now
  uint64_t window_end_ = 0;
  uint64_t at_ = 0;  ///< where the next byte goes
  bool is_full_ = false;
  uint64_t model_digest_ = 0;  ///< of the last that was written
};

/// The log of worker `worker`, maybe while it is written; times are those of the machine's clock, and what came after
/// the last call that ended is left out. Its model is that of the worker's last group. kNotFound; kDataLoss for what is
/// no log.
Result<TraceFile> read_trace_log(const std::filesystem::path& file, int64_t worker);

}  // namespace pliant::sharded
