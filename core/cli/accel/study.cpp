// Asks a group what a benchmark wants to know, and makes medians of its answers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "accel/bench.hpp"
#include "accel/worker.hpp"
#include "accel/worker_group.hpp"
#include "pliant/error.hpp"

namespace pliant::cli {

namespace {

using Json = WorkerGroup::Json;

constexpr int64_t kFewest = 5;
constexpr int64_t kMost = 2000;
/// For so long the ranks copy memory at once: many turns of the scheduler, and long beside the time in which they set
/// out.
constexpr double kLimitLoopSeconds = 0.02;
/// A collective and its limit are measured by turns, so that what else the machine does meanwhile slows both.
constexpr int64_t kTurns = 5;

struct Item {
  BenchWork what;
  uint64_t bytes = 0;  ///< 0: has no size
};

std::vector<BenchWork> reductions() {
  std::vector<BenchWork> all;
  const auto sum = [&](int32_t sources, DType dtype) { all.push_back({"reduce", "sum", sources, dtype, dtype}); };
  const auto cast = [&](DType from, DType to) { all.push_back({"reduce", "cast", 0, from, to}); };
  for (const int32_t sources : {2, 4, 8}) sum(sources, DType::kF32);
  sum(4, DType::kBF16);
  for (const DType narrow : {DType::kBF16, DType::kF16}) {
    cast(DType::kF32, narrow);
    cast(narrow, DType::kF32);
  }
  return all;
}

std::vector<BenchWork> collectives() {
  std::vector<BenchWork> all;
  for (const bool windows : {false, true}) {
    for (const char* const name : {"all_gather", "reduce_scatter", "all_reduce", "broadcast", "barrier"}) {
      if (!windows || std::string(name) != "barrier") {
        all.push_back({.section = "collectives", .name = name, .windows = windows});
      }
    }
  }
  return all;
}

std::vector<BenchWork> parts_of(const std::string& section) {
  if (section == "reduce") return reductions();
  if (section == "collectives") return collectives();
  if (section == "overlap") return {BenchWork{.section = section, .name = kGatherBesideCompute}};
  static const std::vector<std::string> kCopy{"host_to_device", "device_to_host", "device_to_device", "duplex"};
  static const std::vector<std::string> kLatency{
      "enqueue",           "enqueue_to_end",     "synchronize_idle", "event_record", "event_record_to_end",
      "stream_wait_event", "event_cross_stream", "thread_and_back"};
  static const std::vector<std::string> kAlloc{"device", "pinned", "in_stream_order"};
  std::vector<BenchWork> all;
  for (const std::string& name : section == "copy" ? kCopy : section == "latency" ? kLatency : kAlloc) {
    all.push_back({.section = section, .name = name});
  }
  return all;
}

std::vector<Item> items_of(const std::string& section, const std::vector<uint64_t>& sizes) {
  std::vector<Item> items;
  for (const BenchWork& what : parts_of(section)) {
    if (section == "latency" || what.name == "barrier") {
      items.push_back({what, 0});
      continue;
    }
    for (const uint64_t bytes : sizes) items.push_back({what, bytes});
  }
  return items;
}

Spread spread_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](size_t quarter) { return seconds[(seconds.size() - 1) * quarter / 4]; };
  return {at(2), at(1), at(3), static_cast<int64_t>(seconds.size())};
}

/// Bytes that a memcpy moves which reads and writes together as many as one rank must at least: its input and its
/// result, and the parts of others' inputs or results that it needs.
uint64_t least_copy(const std::string& what, uint64_t bytes, int32_t ranks) {
  const uint64_t part = bytes / static_cast<uint64_t>(ranks);
  if (what == "all_gather") return bytes;                   // reads a part of every rank, writes all
  if (what == "reduce_scatter") return (bytes + part) / 2;  // reads a part of every rank's input, writes one
  if (what == "all_reduce") return (bytes + part + 2 * (bytes - part)) / 2;  // and then the other parts
  return bytes;
}

int64_t slowest(const std::vector<Json>& answers, size_t repetition) {
  int64_t most = 0;
  for (const Json& answer : answers) most = std::max(most, answer.at("times_ns").at(repetition).get<int64_t>());
  return most;
}

/// From the first rank's begin to the last one's end: all of them have one clock.
int64_t first_to_last(const std::vector<Json>& answers, size_t repetition) {
  int64_t first = INT64_MAX;
  int64_t last = INT64_MIN;
  for (const Json& answer : answers) {
    const auto begin = answer.at("begins_ns").at(repetition).get<int64_t>();
    first = std::min(first, begin);
    last = std::max(last, begin + answer.at("times_ns").at(repetition).get<int64_t>());
  }
  return last - first;
}

class Measuring {
 public:
  Measuring(WorkerGroup& group, const BenchQuestion& question) : group_(group), question_(question) {}

  Measured measure(const Item& item) {
    Measured made;
    made.section = item.what.section;
    made.what = item.what.label();
    if (made.section == "overlap") return measure_overlap(item, std::move(made));
    const bool together = item.what.section == "collectives";
    std::vector<Series> all{series(item.what, item.bytes, 1, &made)};
    if (together) all.push_back(series(item.what, item.bytes, kCallsInARow, nullptr));
    if (together && made.bytes != 0) {
      made.limit_bytes = least_copy(item.what.name, made.bytes, group_.ranks());
      all.push_back(limit(made.limit_bytes));
    }
    repeat(all);
    made.time = spread_of(all[0].seconds);
    if (all.size() > 1) made.in_a_row = spread_of(all[1].seconds);
    if (all.size() > 2) made.limit = spread_of(all[2].seconds);
    return made;
  }

 private:
  /// The computation is as long as the gather took in a trial.
  Measured measure_overlap(const Item& item, Measured made) {
    const auto part = [&](const char* name, double seconds) {
      BenchWork what = item.what;
      what.name = name;
      what.spent_ns = static_cast<uint64_t>(std::llround(seconds * 1e9));
      return what;
    };
    const double once = spread_of(ask(part(kGather, 0), item.bytes, 1, 2, kFewest, &made)).median_s;
    std::vector<Series> all{series(part(kGatherBesideCompute, once), item.bytes, 1, nullptr),
                            series(part(kGather, 0), item.bytes, 1, nullptr),
                            series(part(kCompute, once), item.bytes, 1, nullptr)};
    repeat(all);
    made.time = spread_of(all[0].seconds);
    made.gather = spread_of(all[1].seconds);
    made.compute = spread_of(all[2].seconds);
    return made;
  }

  /// What is to be repeated, and what each repetition took for one of its calls.
  struct Series {
    BenchWork what;
    uint64_t bytes = 0;
    int64_t calls = 1;
    int64_t repetitions = 0;
    std::vector<double> seconds = {};
  };

  /// Repeated so often that it takes the time that was asked for.
  Series series(const BenchWork& what, uint64_t bytes, int64_t calls, Measured* told) {
    const std::vector<double> trial = ask(what, bytes, calls, 2, 3, told);
    const double once = *std::min_element(trial.begin(), trial.end()) * static_cast<double>(calls);
    const auto fill = static_cast<int64_t>(std::clamp(question_.min_time_s / std::max(once, 1e-9), 1.0, 1e6));
    return {what, bytes, calls, question_.repetitions > 0 ? question_.repetitions : std::clamp(fill, kFewest, kMost)};
  }

  /// Short copies would run one after the other, not at once: the ranks do not come out of a barrier together.
  Series limit(uint64_t bytes) {
    const BenchWork copy{.section = "collectives", .name = kMemoryCopy};
    const std::vector<double> trial = ask(copy, bytes, 1, 2, 5, nullptr);
    const double loops = std::ceil(kLimitLoopSeconds / std::max(spread_of(trial).median_s, 1e-9));
    return series(copy, bytes, static_cast<int64_t>(std::clamp(loops, 1.0, 1e6)), nullptr);
  }

  void repeat(std::vector<Series>& all) {
    const int64_t turns = all.size() == 1 ? 1 : kTurns;
    for (int64_t turn = 0; turn < turns; ++turn) {
      for (Series& one : all) {
        const int64_t share = one.repetitions * (turn + 1) / turns - one.repetitions * turn / turns;
        if (share == 0) continue;
        const std::vector<double> more = ask(one.what, one.bytes, one.calls, 1, share, nullptr);
        one.seconds.insert(one.seconds.end(), more.begin(), more.end());
      }
    }
  }

  std::vector<double> ask(const BenchWork& what, uint64_t bytes, int64_t calls, int64_t warm, int64_t repetitions,
                          Measured* told) {
    const Json question{{"do", "time"},   {"what", json_of(what)}, {"bytes", bytes},
                        {"calls", calls}, {"warm", warm},          {"repetitions", repetitions}};
    const std::string name = is_together(what.section) ? what.label() : what.section + "/" + what.label();
    const std::string task = bytes == 0 ? name : fmt::format("{} of {}", name, size_text(bytes));
    const std::vector<Json> answers = group_.ask(question, task);
    if (told != nullptr) {
      told->bytes = answers.front().at("bytes").get<uint64_t>();
      told->moved = answers.front().at("moved").get<uint64_t>();
    }
    std::vector<double> times;
    for (size_t i = 0; i < static_cast<size_t>(repetitions); ++i) {
      const int64_t ns = what.name == kMemoryCopy ? first_to_last(answers, i) : slowest(answers, i);
      times.push_back(static_cast<double>(ns) * 1e-9 / static_cast<double>(calls));
    }
    return times;
  }

  WorkerGroup& group_;
  const BenchQuestion& question_;
};

std::unique_ptr<WorkerGroup> group_of(const Config& config, int32_t ranks) {
  return std::make_unique<WorkerGroup>(ranks, [&config, ranks](int32_t rank) -> WorkerGroup::Answer {
    const auto worker = std::make_shared<Worker>(config, rank, ranks);
    return [worker](const Json& question) { return worker->answer(question); };
  });
}

void open_device(WorkerGroup& group, const Config& config, const BenchQuestion& question, BenchStudy& study) {
  const Json seen = group.ask({{"do", "open"}, {"device", question.device}}, "opening the device").front();
  study.devices = seen.at("devices").get<int32_t>();
  const std::string& name = config.use("accelerator");
  if (study.devices < 1) {
    const auto missing = seen.at("missing").get<std::string>();
    throw Error(Status::kNotFound, fmt::format("accelerator '{}' finds no device on this machine{}", name,
                                               missing.empty() ? "" : ": " + missing));
  }
  if (question.device >= study.devices) {
    throw Error(Status::kInvalidArgument,
                fmt::format("--device {}: accelerator '{}' has {} on this machine: 0{}", question.device, name,
                            study.devices == 1 ? "one device" : fmt::format("{} devices", study.devices),
                            study.devices == 1 ? "" : fmt::format(" to {}", study.devices - 1)),
                Origin::kInput)
        .about_device(question.device);
  }
  study.seen = {
      {seen.at("name").get<std::string>(), seen.at("memory_bytes").get<uint64_t>(), seen.at("host_visible").get<bool>(),
       seen.at("fixed_order").get<bool>(), seen.at("shared_memory").get<bool>(), seen.at("exchange_memory").get<bool>(),
       seen.at("window_memory").get<bool>()},
      seen.at("native_collectives").get<bool>(),
      seen.at("collectives").get<bool>()};
  study.version = seen.at("version").get<std::string>();
}

/// Of each window: the largest buffer; 0 where the device has none.
uint64_t window_bytes(const BenchQuestion& question, const BenchStudy& study) {
  if (!study.seen.window_memory || question.sizes.empty()) return 0;
  constexpr uint64_t kPage = 4096;
  const uint64_t most = *std::max_element(question.sizes.begin(), question.sizes.end());
  return (std::max(most, kPage * static_cast<uint64_t>(study.ranks)) + kPage - 1) / kPage * kPage;
}

/// A device that is no processor is not shared by ranks unless somebody asks for that.
int32_t ranks_for(const BenchQuestion& question, const BenchStudy& study) {
  if (question.ranks > 0) return question.ranks;
  return study.seen.host_visible ? 4 : std::min(4, study.devices);
}

}  // namespace

std::string BenchWork::label() const {
  const auto type = [](DType dtype) { return dtype == DType::kF32 ? "f32" : dtype == DType::kBF16 ? "bf16" : "f16"; };
  if (name == "sum") return fmt::format("sum of {} {}", sources, type(from));
  if (name == "cast") return fmt::format("cast {} to {}", type(from), type(to));
  return windows ? name + ", windows" : name;
}

BenchStudy study_accelerator(const Config& config, const BenchQuestion& question, ProgressLine& progress) {
  BenchStudy study;
  study.accelerator = config.use("accelerator");
  study.device = question.device;
  study.min_time_s = question.repetitions > 0 ? 0 : question.min_time_s;
  study.sections = question.sections;
  std::unique_ptr<WorkerGroup> group = group_of(config, 1);
  open_device(*group, config, question, study);
  study.ranks = ranks_for(question, study);
  std::vector<Item> items;
  for (const std::string& section : question.sections) {
    if (is_together(section) && !study.seen.collectives) continue;
    for (Item& item : items_of(section, question.sizes)) {
      if (study.seen.window_memory || !item.what.windows) items.push_back(std::move(item));
    }
  }
  bool joined = false;
  for (size_t i = 0; i < items.size(); ++i) {
    progress.show(fmt::format("{} {}", items[i].what.section, items[i].what.label()),
                  static_cast<double>(i) / static_cast<double>(items.size()));
    if (is_together(items[i].what.section) && !joined) {
      group = nullptr;  // gives its memory back
      group = group_of(config, study.ranks);
      group->ask({{"do", "open"}, {"device", question.device}}, "opening the device");
      const Json id = group->ask_one(0, {{"do", "make_id"}}, "creating a communicator id");
      group->ask({{"do", "join"}, {"id", id.at("id")}, {"window_bytes", window_bytes(question, study)}},
                 "joining the communicator");
      joined = true;
    }
    study.measured.push_back(Measuring(*group, question).measure(items[i]));
  }
  return study;
}

}  // namespace pliant::cli
