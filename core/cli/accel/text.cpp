// A benchmark as tables.
#include <fmt/format.h>

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
  const char* const whose = study.seen.own_collectives ? "" : "generic ";
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
    return "Host memory is pinned. duplex: one copy each way at once, on two streams; GB/s of both.\n";
  if (section == "latency") {
    return "enqueue, event record, stream wait event: the call alone. to end: and the wait for its end. event cross "
           "stream:\na copy on one stream, recorded there, awaited by another, until that one has ended. thread and "
           "back: what\nwaking a thread and its answer take on this machine, without an accelerator.\n";
  }
  if (section == "alloc")
    return "alloc and free; pages that nothing touched. in stream order: the two calls, of memory that is kept.\n";
  if (section == "reduce") return "size: of one source. GB/s: bytes read and written.\n";
  if (section == "overlap") {
    return "time of the slowest rank by the device's clock, f32. gather: an all-gather alone, on a stream of its own. "
           "compute: a stream\nthat is busy for as long. both: at once. hidden: the part of the gather that takes no "
           "time beside the computation.\n";
  }
  return fmt::format(
      "time of the slowest rank, f32. size: all_gather's result, reduce_scatter's and all_reduce's input of one rank.\n"
      "in a row: per call, {} calls enqueued at once. limit: a {} by every rank at once that reads and writes as many\n"
      "bytes as a rank must at least.{}\n",
      kCallsInARow, study.seen.host_visible ? "memcpy" : "device-to-device copy",
      study.seen.window_memory ? " windows: all buffers lie in memory that the communicator knows beforehand." : "");
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
      text += fmt::format("\n{}: none, accelerator '{}' does not have " PLIANT_COLLECTIVES
                          ", and accelerator '{}', which carries generic ones, was not found\n",
                          section, study.accelerator, collectives::CollectivesOf::kCarrier);
      continue;
    }
    const Rows rows = section == "overlap" ? overlap_rows(study) : rows_of(study, section);
    text += "\n" + table(rows, 1) + explanation(section, study);
  }
  return text;
}

}  // namespace pliant::cli
