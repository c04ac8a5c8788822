// A benchmark as tables, and what its views have in common.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "accel/bench.hpp"
#include "collectives/collectives_of.hpp"
#include "output.hpp"

namespace pliant::cli {

std::string name_text(std::string what) {
  for (char& c : what) {
    if (c == '_') c = ' ';
  }
  return what;
}

bool is_together(const std::string& section) {
  return section == "collectives" || section == "overlap";
}

double Measured::hidden() const {
  if (!gather || !compute || !(gather->median_s > 0)) return 0;
  return std::clamp((gather->median_s + compute->median_s - time.median_s) / gather->median_s, 0.0, 1.0);
}

namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string time_text(double seconds) {
  for (const auto& [least, unit] :
       {std::pair<double, const char*>{1, "s"}, std::pair<double, const char*>{1e-3, "ms"}, {1e-6, "us"}}) {
    if (seconds < least) continue;
    const double number = seconds / least;
    return fmt::format("{:.{}f} {}", number, number < 10 ? 2 : number < 100 ? 1 : 0, unit);
  }
  return fmt::format("{:.0f} ns", seconds * 1e9);
}

std::string rate_text(const Measured& one) {
  if (one.moved == 0) return "-";
  const double rate = static_cast<double>(one.moved) / one.time.median_s / 1e9;
  return fmt::format("{:.{}f}", rate, rate < 10 ? 2 : 1);
}

std::string ranks_text(const BenchStudy& study) {
  return fmt::format("{} rank{}", study.ranks, study.ranks == 1 ? "" : "s");
}

Rows rows_of(const BenchStudy& study, const std::string& section) {
  const bool collectives = section == "collectives";
  const char* const whose = study.seen.native_collectives ? "" : "generic ";
  Rows rows{{collectives ? fmt::format("{}{}, {}", whose, section, ranks_text(study)) : section, "size", "median",
             "quartiles", "", "GB/s"}};
  if (collectives) rows.front().insert(rows.front().end(), {"in a row", "limit", "of limit"});
  rows.front().emplace_back("n");
  for (const Measured& one : study.measured) {
    if (one.section != section) continue;
    std::vector<std::string> row{"  " + name_text(one.what),   one.bytes == 0 ? "-" : size_text(one.bytes),
                                 time_text(one.time.median_s), time_text(one.time.low_s),
                                 time_text(one.time.high_s),   rate_text(one)};
    if (collectives) {
      row.push_back(one.in_a_row ? time_text(one.in_a_row->median_s) : "-");
      row.push_back(one.limit ? time_text(one.limit->median_s) : "-");
      row.push_back(one.limit ? fmt::format("{:.1f} %", 100 * one.limit->median_s / one.time.median_s) : "-");
    }
    row.push_back(std::to_string(one.time.repetitions));
    rows.push_back(std::move(row));
  }
  return rows;
}

Rows overlap_rows(const BenchStudy& study) {
  Rows rows{{fmt::format("overlap, {}", ranks_text(study)), "size", "both", "quartiles", "", "gather", "compute",
             "hidden", "n"}};
  for (const Measured& one : study.measured) {
    if (one.section != "overlap") continue;
    rows.push_back({"  " + name_text(one.what), size_text(one.bytes), time_text(one.time.median_s),
                    time_text(one.time.low_s), time_text(one.time.high_s), time_text(one.gather->median_s),
                    time_text(one.compute->median_s), fmt::format("{:.0f} %", 100 * one.hidden()),
                    std::to_string(one.time.repetitions)});
  }
  return rows;
}

std::string explanation(const std::string& section, const BenchStudy& study) {
  if (section == "copy")
    return "Host memory is pinned. duplex: one copy in each direction at once, on two streams; GB/s is the sum of "
           "both.\n";
  if (section == "latency") {
    return "enqueue, event record, stream wait event: the call alone. to end: the call and the wait until its work has "
           "ended. event cross\nstream: a copy and an event on one stream; a second stream waits for the event; time "
           "until the second stream is idle.\nthread and back: the time to wake a thread and to get its answer on this "
           "machine, without an accelerator.\n";
  }
  if (section == "alloc")
    return "alloc and free: their pages are not touched. in stream order: the two calls, served from memory kept for "
           "reuse.\n";
  if (section == "reduce") return "size: bytes of one source. GB/s: counts bytes read and written.\n";
  if (section == "overlap") {
    return "Times of the slowest rank by the device's clock, f32. gather: an all-gather alone, on its own stream. "
           "compute: a stream that\nis busy for the same time. both: gather and compute at once. hidden: the part of "
           "the gather that overlaps with compute.\n";
  }
  return fmt::format(
      "Times of the slowest rank, f32. size: result of all_gather; input of one rank of reduce_scatter and "
      "all_reduce.\nin a row: time per call when {} calls are enqueued at once. limit: a {} by every rank at once of "
      "the fewest bytes\nthat a rank must read and write.{}\n",
      kCallsInARow, study.seen.host_visible ? "memcpy" : "device-to-device copy",
      study.seen.window_memory ? " windows: all buffers lie in memory that was registered with the communicator." : "");
}

}  // namespace

std::string size_text(uint64_t bytes) {
  const char* unit = "B";
  auto number = static_cast<double>(bytes);
  for (const char* larger : {"KiB", "MiB", "GiB"}) {
    if (number < 1024) break;
    number /= 1024;
    unit = larger;
  }
  return fmt::format("{} {}", std::round(number * 10) / 10, unit);
}

std::string bench_text(const BenchStudy& study) {
  std::string text = fmt::format("{} {}, device {} of {}: {}, {}\n", study.accelerator, study.version, study.device,
                                 study.devices, study.seen.name, size_text(study.seen.memory_bytes));
  for (const std::string& section : study.sections) {
    if (is_together(section) && !study.seen.collectives) {
      text += fmt::format("\n{}: not measured: accelerator '{}' lacks " PLIANT_COLLECTIVES
                          ", and accelerator '{}', which generic collectives need, was not found\n",
                          section, study.accelerator, collectives::CollectivesOf::kCarrier);
      continue;
    }
    const Rows rows = section == "overlap" ? overlap_rows(study) : rows_of(study, section);
    text += "\n" + table(rows, 1) + explanation(section, study);
  }
  return text;
}

}  // namespace pliant::cli
