// Reads costs from flags and from a benchmark.
#include "coordinator/costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json_depth.hpp"
#include "base/printable.hpp"
#include "base/result.hpp"
#include "config/values/source.hpp"
#include "pliant/error.hpp"
#include "units.hpp"

namespace pliant::cli {

namespace {

using BenchJson = nlohmann::json;

constexpr const char* kBenchSchema = "pliant.accel_bench/1";
constexpr int kDeepestBench = 16;
constexpr double kLeastFlops = 1e6;  // less is a number whose unit was forgotten

struct TimedSize {
  double bytes = 0;
  double seconds = 0;
};

struct Line {
  double start_s = 0;
  double byte_s = 0;
};

/// The line that comes nearest to what was measured, in relation to each time, with neither part below zero.
Line fitted(const std::vector<TimedSize>& measured) {
  if (measured.empty()) return {};
  double w = 0;
  double wx = 0;
  double wy = 0;
  double wxx = 0;
  double wxy = 0;
  for (const auto& [bytes, seconds] : measured) {
    const double weight = 1 / (seconds * seconds);
    w += weight;
    wx += weight * bytes;
    wy += weight * seconds;
    wxx += weight * bytes * bytes;
    wxy += weight * bytes * seconds;
  }
  const double spread = w * wxx - wx * wx;
  Line line;
  if (measured.size() > 1 && spread > 0) line.byte_s = (w * wxy - wx * wy) / spread;
  line.start_s = (wy - line.byte_s * wx) / w;
  if (measured.size() == 1 || line.start_s < 0) line = {0, wxx > 0 ? wxy / wxx : 0};
  if (line.byte_s < 0) line = {wy / w, 0};
  return line;
}

Error no_benchmark(const std::string& file, const std::string& why) {
  return {Status::kInvalidArgument,
          fmt::format("--costs: {} {}; give a file written by `pliant accel bench NAME --json`", file, why),
          Origin::kInput};
}

/// The last line: what a redirected command has before it is no part of the result.
std::string_view last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const size_t end = text.rfind('\n');
  return end == std::string_view::npos ? text : text.substr(end + 1);
}

BenchJson read_benchmark(const std::string& file) {
  const Result<std::string> text = config::read_text(file);
  if (!text) throw text.error().with_message("--costs: " + text.error().message());
  if (nests_deeper(*text, kDeepestBench)) throw no_benchmark(file, "is not a benchmark");
  BenchJson json = BenchJson::parse(*text, nullptr, false);
  if (json.is_discarded()) json = BenchJson::parse(last_line(*text), nullptr, false);
  if (json.is_discarded()) throw no_benchmark(file, "is not JSON");
  const auto schema = json.is_object() ? json.find("schema") : json.end();
  if (schema == json.end() || !schema->is_string()) throw no_benchmark(file, "is not a benchmark");
  if (*schema != kBenchSchema) {
    throw no_benchmark(file, fmt::format("is \"{}\", not \"{}\"", printable(schema->get<std::string>()), kBenchSchema));
  }
  return json;
}

/// Sizes and times of one kind of work. Of collectives the time of one of several in a row, which is what a stream
/// takes for it; where that is missing the time of one, with the wait for its end.
std::vector<TimedSize> timed(const BenchJson& json, const char* part, const char* what, const std::string& file) {
  std::vector<TimedSize> found;
  try {
    const auto entries = json.find(part);
    if (entries == json.end() || entries->is_null()) return found;
    for (const BenchJson& one : *entries) {
      if (one.at("what") != what || one.at("bytes").is_null()) continue;
      const auto in_a_row = one.find("in_a_row");
      const bool has_row = in_a_row != one.end() && !in_a_row->is_null();
      const BenchJson& spread = has_row ? *in_a_row : one.at("time");
      const auto seconds = spread.at("median_s").get<double>();
      const auto bytes = one.at("bytes").get<double>();
      if (seconds > 0 && bytes > 0) found.push_back({bytes, seconds});
    }
  } catch (const BenchJson::exception& error) {
    throw no_benchmark(file, fmt::format("has an entry of \"{}\" that cannot be read ({})", part, error.what()));
  }
  return found;
}

/// A line of whole bytes at so many ranks, as the cost of those that each of them gets.
CollectiveCost cost_of_line(const Line& line, double ranks) {
  CollectiveCost made;
  made.start_ns = static_cast<uint64_t>(std::llround(line.start_s * 1e9));
  const double part = (ranks - 1) / ranks;
  made.bytes_per_s = line.byte_s > 0 ? part / line.byte_s : std::numeric_limits<double>::infinity();
  return made;
}

void take_benchmark(SimulationCosts& costs, const std::string& file) {
  const BenchJson json = read_benchmark(file);
  const std::vector<TimedSize> gathers = timed(json, "collectives", "all_gather", file);
  if (gathers.empty()) {
    throw Error(Status::kInvalidArgument,
                fmt::format("--costs: {} has no time of all_gather; measure the part \"collectives\" (--only "
                            "collectives), on an accelerator that has some",
                            file),
                Origin::kInput);
  }
  const auto ranks = json.find("ranks");
  const double count = ranks != json.end() && ranks->is_number() ? ranks->get<double>() : 0;
  if (count < 2) {
    throw Error(Status::kInvalidArgument,
                fmt::format("--costs: {} was measured with {} rank, where nothing passes between ranks; measure with "
                            "--ranks 2 or more",
                            file, count),
                Origin::kInput);
  }
  costs.gather = cost_of_line(fitted(gathers), count);
  const std::vector<TimedSize> reduces = timed(json, "collectives", "reduce_scatter", file);
  costs.reduce = reduces.empty() ? costs.gather : cost_of_line(fitted(reduces), count);
  // Its start has the wait of the host in it, which nothing on a stream waits for.
  const Line copy = fitted(timed(json, "copy", "device_to_device", file));
  if (copy.byte_s > 0) costs.memory_bytes_per_s = 2 / copy.byte_s;  // reads and writes
  costs.from = file;
}

}  // namespace

SimulationCosts costs_of(const CostArguments& arguments) {
  SimulationCosts costs;
  if (!arguments.bench_file.empty()) take_benchmark(costs, arguments.bench_file);
  if (!arguments.latency.empty()) {
    costs.gather.start_ns = costs.reduce.start_ns = nanoseconds_in("--latency", arguments.latency);
  }
  if (!arguments.bandwidth.empty()) {
    costs.gather.bytes_per_s = costs.reduce.bytes_per_s = bytes_per_second_in("--bandwidth", arguments.bandwidth);
  }
  if (!arguments.launch.empty()) costs.launch_ns = nanoseconds_in("--launch", arguments.launch);
  if (!arguments.memory_bandwidth.empty()) {
    costs.memory_bytes_per_s = bytes_per_second_in("--memory-bandwidth", arguments.memory_bandwidth);
  }
  if (!arguments.flops.empty()) costs.flops = number_in("--flops", arguments.flops);
  if (costs.flops < kLeastFlops) {
    throw Error(Status::kInvalidArgument,
                fmt::format("--flops '{}': give operations per second with G, T or P, e.g. 100T", arguments.flops),
                Origin::kInput);
  }
  if (!arguments.tokens.empty()) costs.tokens = number_in("--tokens", arguments.tokens);
  return costs;
}

sharded::StepCosts step_costs(const SimulationCosts& costs) {
  sharded::StepCosts made;
  made.gather = {costs.gather.start_ns, costs.gather.bytes_per_s / 1e9};
  made.reduce = {costs.reduce.start_ns, costs.reduce.bytes_per_s / 1e9};
  made.local = {costs.launch_ns, costs.memory_bytes_per_s / 1e9};
  return made;
}

ComputeTimes::ComputeTimes(const sharded::ModelTables& model, const SimulationCosts& costs) {
  constexpr double kOperations = 2;  // a product and a sum for each element and token
  const double element_ns = kOperations * costs.tokens / costs.flops * 1e9;
  for (const sharded::ModuleRow& module : model.modules()) {
    double elements = 0;
    for (const uint32_t parameter : module.used) elements += static_cast<double>(model.parameter(parameter).elements);
    forward_ns_.push_back(static_cast<uint64_t>(std::llround(std::min(elements * element_ns, 1e15))));
  }
}

}  // namespace pliant::cli
