// Worker: what one process of a benchmark does. The questions are those of study.cpp.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "accel/bench.hpp"
#include "accel/seen.hpp"
#include "pliant/communicator.hpp"

namespace pliant::cli {

/// Something to time.
struct Work {
  std::function<void()> run;     ///< what is timed
  std::function<void()> settle;  ///< after every run, not timed; may be empty
  /// After every run: what it took by the device's clock, seconds; empty: by this process's.
  std::function<double()> seconds;
  std::function<void()> check;  ///< at the end; throws Error when the result is wrong; may be empty
  uint64_t bytes = 0;           ///< the size that was possible: the wanted one in whole elements
  uint64_t moved = 0;           ///< bytes that count for bandwidth; 0: it has none
  int64_t calls = 1;            ///< calls that one run makes
};

/// A device, two streams and buffers that grow with the sizes asked for.
class Bench {
 public:
  Bench(const Accelerator& accelerator, int32_t device);

  [[nodiscard]] const Accelerator& accelerator() const { return accelerator_; }
  [[nodiscard]] int32_t device() const { return device_; }
  [[nodiscard]] Stream& stream() { return stream_; }
  [[nodiscard]] Stream& other_stream() { return other_stream_; }
  /// Memory number `index` of `kind` with at least `bytes`, all of them kFill since it was made.
  void* memory(MemoryKind kind, size_t index, uint64_t bytes);
  /// The last `bytes` of what a device buffer holds in its first `size` bytes.
  void read_back(void* to, const void* buffer, uint64_t size, uint64_t bytes);

  /// As float: the value of every element that was not computed.
  static constexpr uint8_t kFill = 0x3f;

 private:
  const Accelerator accelerator_;
  const int32_t device_;
  Stream stream_;
  Stream other_stream_;
  std::map<std::pair<MemoryKind, size_t>, Buffer> buffers_;
};

/// The ranks of a communicator, as one of them sees it.
struct Team {
  std::vector<Buffer> windows = {};  ///< of the communicator, all bytes Bench::kFill; goes after it
  Communicator comm;
  int32_t rank = 0;
  int32_t ranks = 1;
};

/// The work of section collectives that is their limit.
inline constexpr const char* kMemoryCopy = "memory_copy";

/// What sections copy, latency, alloc and reduce are made of.
Work work_alone(Bench& bench, const BenchWork& what, uint64_t bytes);
/// Of section collectives: a collective `calls` times in a row, or kMemoryCopy.
Work work_together(Bench& bench, Team& team, const BenchWork& what, uint64_t bytes, int64_t calls);
/// The works of section overlap.
inline constexpr const char* kGather = "gather";    ///< alone
inline constexpr const char* kCompute = "compute";  ///< alone
inline constexpr const char* kGatherBesideCompute = "gather_beside_compute";
Work work_beside(Bench& bench, Team& team, const BenchWork& what, uint64_t bytes);

/// As a question to a worker says it.
nlohmann::ordered_json json_of(const BenchWork& what);

class Worker {
 public:
  using Json = nlohmann::ordered_json;
  Worker(Config config, int32_t rank, int32_t ranks) : config_(std::move(config)), rank_(rank), ranks_(ranks) {}
  Json answer(const Json& question);

 private:
  Json open(const Json& question);
  Json join(const Json& question);
  Json time(const Json& question);
  void begin_together();

  const Config config_;
  const int32_t rank_;
  const int32_t ranks_;
  std::unique_ptr<Bench> bench_;
  std::optional<Team> team_;
};

}  // namespace pliant::cli
