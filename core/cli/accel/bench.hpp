// What `pliant accel bench` is asked, what came out, and the views of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "accel/seen.hpp"
#include "pliant/config.hpp"
#include "progress.hpp"

namespace pliant::cli {

/// The parts of a benchmark, in the order in which they run.
inline constexpr const char* kBenchSections[] = {"copy", "latency", "alloc", "reduce", "collectives", "overlap"};
/// All ranks take part in it, not one alone.
bool is_together(const std::string& section);

struct BenchQuestion {
  int32_t device = 0;
  int32_t ranks = 0;                                                      ///< 0: as many as suit the device
  std::vector<uint64_t> sizes{4096, 65536, 1 << 20, 16 << 20, 64 << 20};  ///< bytes, ascending
  std::vector<std::string> sections;                                      ///< of kBenchSections
  int64_t repetitions = 0;                                                ///< 0: as many as fill min_time_s
  double min_time_s = 0.1;                                                ///< of each measurement
};

/// One thing that is timed. People see its label; programs read the fields.
struct BenchWork {
  std::string section;       ///< of kBenchSections
  std::string name;          ///< "host_to_device", "sum", "all_gather", ...
  int32_t sources = 0;       ///< of a sum
  DType from = DType::kF32;  ///< of a sum or a cast
  DType to = DType::kF32;    ///< of a cast
  bool windows = false;      ///< of a collective: its buffers are windows
  uint64_t spent_ns = 0;     ///< of overlap: how long the computation is; 0: there is none
  [[nodiscard]] std::string label() const;
};

/// Seconds.
struct Spread {
  double median_s = 0;
  double low_s = 0;   ///< first quartile
  double high_s = 0;  ///< third quartile
  int64_t repetitions = 0;
};

struct Measured {
  std::string section;
  std::string what;
  uint64_t bytes = 0;              ///< the size; 0: has none
  uint64_t moved = 0;              ///< bytes that count for bandwidth; 0: it has none
  Spread time;                     ///< one call and the wait for its end; of the slowest rank
  std::optional<Spread> in_a_row;  ///< per call, of kCallsInARow enqueued at once
  uint64_t limit_bytes = 0;        ///< of the copies that `limit` timed
  std::optional<Spread> limit;     ///< as many processes copy as much memory as the collective must at least move
  std::optional<Spread> gather;    ///< of overlap: the gather alone
  std::optional<Spread> compute;   ///< of overlap: the computation alone
  /// Of overlap: the part of the gather that takes no time beside the computation, 0 to 1.
  [[nodiscard]] double hidden() const;
};

/// Collectives that are enqueued one after the other before the wait, for Measured::in_a_row.
inline constexpr int64_t kCallsInARow = 8;

struct BenchStudy {
  std::string accelerator;
  std::string version;
  int32_t device = 0;
  int32_t devices = 0;
  DeviceSeen seen;
  int32_t ranks = 1;  ///< of the collectives
  double min_time_s = 0;
  std::vector<std::string> sections;
  std::vector<Measured> measured;
};

/// Measures in child processes, one for each rank, and ends them. Throws Error: a device that is not there, what a
/// rank reports, or that it died; StoppedBySignal when a signal came and StopSignals lives.
BenchStudy study_accelerator(const Config& config, const BenchQuestion& question, ProgressLine& progress);

std::string bench_text(const BenchStudy& study);
std::string bench_json(const BenchStudy& study);
/// SVG: bandwidth by size.
std::string bench_figure(const BenchStudy& study);

/// 4096 as "4 KiB".
std::string size_text(uint64_t bytes);
/// Measured::what for people: "all gather".
std::string name_text(std::string what);

}  // namespace pliant::cli
