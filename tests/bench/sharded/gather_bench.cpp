// What a group of gathers or scatters costs: the thread that asks for it (memory, one collective, an event), and until
// it has ended; what visits of modules cost that thread with a coordinator, and what one stream's waiting for another
// adds; what a trace adds to a visit. Ranks are threads on `host`.
//
//   bench_gather [RANKS [PARAMETERS]] [--json]: only groups, and visits, of so many
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "bench/sharded/handovers.hpp"
#include "bench/sharded/times.hpp"
#include "bench/sharded/visits.hpp"
#include "pliant/accelerator.hpp"
#include "pliant/communicator.hpp"
#include "pliant/config.hpp"
#include "sharded/memory/whole_memory.hpp"
#include "sharded/shards/exchange.hpp"

using namespace pliant;

namespace {

using bench::kElements;

constexpr int32_t kChunksOfParameter = static_cast<int32_t>(kElements / sharded::FlatLayout::kSmallestChunk);
constexpr size_t kTimes = 400;

Accelerator open_host() {
  ConfigOverrides overrides;
  overrides.plugin_dirs = {PLIANT_PLUGIN_DIR};
  overrides.read_environment = false;
  return Accelerator(Config::parse("config_version = 1\n[accelerator]\nuse = \"host\"\n", {"accelerator"}, overrides));
}

/// What a rank asks for, and how chunks lie with their owners.
enum class Way { kGather, kGatherMoved, kScatterMoved };
constexpr Way kWays[] = {Way::kGather, Way::kGatherMoved, Way::kScatterMoved};

const char* name_of(Way way) {
  const char* const names[] = {"gather", "gather, moved", "scatter, moved"};
  return names[static_cast<size_t>(way)];
}

/// Dealt out parameter by parameter, or as after many moves: every other run of three chunks lies with another rank.
sharded::Ownership owners(Way way, int32_t chunks, int32_t world_size) {
  if (way == Way::kGather || world_size == 1) {
    std::vector<int32_t> ends;
    for (int32_t end = kChunksOfParameter; end < chunks; end += kChunksOfParameter) ends.push_back(end);
    ends.push_back(chunks);
    return or_throw(sharded::Ownership::deal(chunks, world_size, 0, ends));
  }
  std::vector<sharded::Ownership::Run> runs;
  for (int32_t chunk = 0; chunk < chunks; chunk += 3) {
    runs.push_back({std::min(3, chunks - chunk), (chunk / 3 * 7 + chunk / 9) % world_size});
  }
  return or_throw(sharded::Ownership::of_runs(runs, world_size, 1));
}

/// Of all ranks, us.
struct Group {
  bench::Spread thread;  ///< of the calling thread
  bench::Spread whole;   ///< until the group has ended
};

Group measure(const Accelerator& accelerator, Way way, int32_t world_size, size_t parameters) {
  std::vector<double> threads;
  std::vector<double> wholes;
  std::mutex mutex;
  bench::on_ranks(accelerator, world_size, [&](int32_t rank, Communicator& group, Stream& stream) {
    const int64_t total = kElements * static_cast<int64_t>(parameters);
    const auto layout = or_throw(sharded::FlatLayout::create(total));
    const auto ownership = owners(way, layout.chunks(), world_size);
    sharded::Exchange exchange(group, stream);
    std::vector<sharded::OwnersOfRange> ranges;
    for (size_t i = 0; i < parameters; ++i) {
      ranges.push_back(exchange.owners_of(layout, ownership, {static_cast<int64_t>(i) * kElements, kElements}));
    }
    const std::vector<float> shard(static_cast<size_t>(ownership.chunks_of(rank) * layout.chunk_elements()), 1.0F);
    const std::vector<bool> adds(static_cast<size_t>(world_size), true);
    sharded::WholeMemory memory(accelerator, 0, stream, 0);
    Event done(accelerator, 0);
    std::vector<double> thread;
    std::vector<double> until_end;
    for (size_t time = 0; time < kTimes; ++time) {
      const double wall_begin = bench::wall_micros();
      const double begin = bench::thread_micros();
      std::vector<sharded::WholePiece> whole;
      std::vector<sharded::GatherItem> gathers;
      std::vector<sharded::ScatterItem> scatters;
      for (const sharded::OwnersOfRange& one : ranges) {
        whole.push_back(memory.take(static_cast<uint64_t>(kElements) * sizeof(float), {"a parameter"}));
        gathers.push_back({&one, whole.back().floats()});
        if (way != Way::kScatterMoved) continue;
        const void* const addend = whole.back().floats();
        const uint64_t received = one.owned * static_cast<uint64_t>(world_size - 1) * sizeof(float);
        whole.push_back(memory.take(received, {"parts of a gradient"}));
        scatters.push_back({&one, addend, whole.back().floats()});
      }
      if (way == Way::kScatterMoved) {
        exchange.scatter(scatters, adds, DType::kF32);
      } else {
        exchange.gather(gathers, shard.data(), DType::kF32);
      }
      done.record(stream);
      thread.push_back(bench::thread_micros() - begin);
      done.synchronize();
      until_end.push_back(bench::wall_micros() - wall_begin);
    }
    const std::lock_guard lock(mutex);
    threads.insert(threads.end(), thread.begin() + kTimes / 10, thread.end());
    wholes.insert(wholes.end(), until_end.begin() + kTimes / 10, until_end.end());
  });
  return {bench::spread_of(std::move(threads)), bench::spread_of(std::move(wholes))};
}

/// What is asked for on the command line.
struct Asked {
  bool json = false;
  std::vector<uint64_t> numbers;  ///< ranks, parameters
  [[nodiscard]] bool has(int32_t ranks, size_t parameters) const {
    return (numbers.empty() || numbers[0] == static_cast<uint64_t>(ranks)) &&
           (numbers.size() < 2 || numbers[1] == parameters);
  }
};

/// Rows of one table, for people as they come or as JSON at the end.
class Rows {
 public:
  Rows(const Asked& asked, const char* name, const std::string& title)
      : asked_(asked), name_(name), rows_(nlohmann::json::array()) {
    if (!asked.json) fmt::print("{}\n", title);
  }
  void add(const std::string& line, nlohmann::json row) {
    if (!asked_.json) fmt::print("{}\n", line);
    rows_.push_back(std::move(row));
  }
  void move_to(nlohmann::json& all) {
    all[name_] = std::move(rows_);
    if (!asked_.json) fmt::print("\n");
  }

 private:
  const Asked& asked_;
  const char* name_;
  nlohmann::json rows_;
};

constexpr const char* kGroupLine = "{:>14}  {:>5}  {:>10}  {:>5}  {:>24}  {:>28}";

void measure_groups(const Accelerator& accelerator, const Asked& asked, nlohmann::json& all) {
  Rows rows(asked, "groups",
            fmt::format("a group of parameters of {} elements; us, medians (quartiles)\n", kElements) +
                fmt::format(kGroupLine, "", "ranks", "parameters", "n", "of the calling thread", "until it has ended"));
  for (const Way way : kWays) {
    for (const int32_t ranks : {1, 2, 4}) {
      for (const size_t parameters : {size_t{1}, size_t{4}, size_t{16}}) {
        if (!asked.has(ranks, parameters)) continue;
        const Group found = measure(accelerator, way, ranks, parameters);
        rows.add(fmt::format(kGroupLine, name_of(way), ranks, parameters, found.thread.n, bench::shown(found.thread),
                             bench::shown(found.whole)),
                 {{"group", name_of(way)},
                  {"ranks", ranks},
                  {"parameters", parameters},
                  {"thread_us", bench::json_of(found.thread)},
                  {"whole_us", bench::json_of(found.whole)}});
      }
    }
  }
  rows.move_to(all);
}

void measure_traces(const Accelerator& accelerator, const Asked& asked, nlohmann::json& all) {
  constexpr const char* kLine = "{:>11}  {:>5}  {:>10}  {:>5}  {:>24}  {:>24}  {:>22}";
  Rows rows(asked, "traces",
            "what a trace adds to a visit, entered and left; us of the calling thread, means of a step's visits, "
            "medians (quartiles)\n" +
                fmt::format(kLine, "coordinator", "ranks", "parameters", "n", "without", "with", "added"));
  constexpr int32_t kRanks = 2;
  for (const char* const coordinator : {"zero3", "planned"}) {
    for (const size_t parameters : {size_t{1}, size_t{4}, size_t{16}}) {
      if (!asked.has(kRanks, parameters)) continue;
      const bench::TracedVisits found = bench::measure_traced_visits(accelerator, coordinator, kRanks, parameters);
      rows.add(fmt::format(kLine, coordinator, kRanks, parameters, found.added.n, bench::shown(found.plain),
                           bench::shown(found.traced), bench::shown(found.added)),
               {{"coordinator", coordinator},
                {"ranks", kRanks},
                {"parameters", parameters},
                {"plain_us", bench::json_of(found.plain)},
                {"traced_us", bench::json_of(found.traced)},
                {"added_us", bench::json_of(found.added)}});
    }
  }
  rows.move_to(all);
}

constexpr const char* kVisitLine = "{:>11}  {:>8}  {:>5}  {:>10}  {:>6}  {:>5}  {:>24}  {:>28}  {:>20}  {:>5}  {}";

void measure_visits(const Accelerator& accelerator, const Asked& asked, nlohmann::json& all) {
  Rows rows(asked, "visits",
            fmt::format("a visit of a module with parameters of {} elements, entered and left; us, medians "
                        "(quartiles)\n",
                        kElements) +
                fmt::format(kVisitLine, "coordinator", "", "ranks", "parameters", "groups", "n",
                            "of the calling thread", "by the clock", "decision", "share", "bounds"));
  constexpr int32_t kRanks = 2;
  for (const char* const coordinator : {"eager", "zero3", "planned"}) {
    for (const size_t parameters : {size_t{1}, size_t{4}, size_t{16}}) {
      if (!asked.has(kRanks, parameters)) continue;
      const bench::VisitsOfPass pass = bench::measure_visits(accelerator, coordinator, kRanks, parameters);
      for (const bool is_forward : {true, false}) {
        const bench::Visits& found = is_forward ? pass.forward : pass.backward;
        const char* const direction = is_forward ? "forward" : "backward";
        rows.add(
            fmt::format(kVisitLine, coordinator, direction, kRanks, parameters, fmt::format("{:.2f}", found.groups),
                        found.thread.n, bench::shown(found.thread), bench::shown(found.whole),
                        bench::shown(found.decision), fmt::format("{:.0f} %", 100 * found.share()), found.bounds),
            {{"coordinator", coordinator},
             {"direction", direction},
             {"ranks", kRanks},
             {"parameters", parameters},
             {"groups_a_visit", found.groups},
             {"thread_us", bench::json_of(found.thread)},
             {"whole_us", bench::json_of(found.whole)},
             {"decision_us", bench::json_of(found.decision)},
             {"decision_share", found.share()},
             {"bounds", found.bounds}});
      }
    }
  }
  rows.move_to(all);
}

void measure_handovers(const Accelerator& accelerator, const Asked& asked, nlohmann::json& all) {
  Rows rows(asked, "handovers",
            fmt::format("from stream to stream, a copy of 4 KiB; us by the clock, medians (quartiles)\n{:>52}  {:>5}",
                        "", "n"));
  for (const bench::Handover& one : bench::measure_handovers(accelerator)) {
    rows.add(fmt::format("{:>52}  {:>5}  {}", one.what, one.us.n, bench::shown(one.us)),
             {{"what", one.what}, {"us", bench::json_of(one.us)}});
  }
  rows.move_to(all);
}

}  // namespace

int main(int count, char** arguments) {
  Asked asked;
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) == "--json") {
      asked.json = true;
    } else {
      asked.numbers.push_back(std::strtoull(arguments[i], nullptr, 10));
    }
  }
  const Accelerator accelerator = open_host();
  nlohmann::json all;
  measure_groups(accelerator, asked, all);
  measure_visits(accelerator, asked, all);
  measure_traces(accelerator, asked, all);
  measure_handovers(accelerator, asked, all);
  if (asked.json) fmt::print("{}\n", all.dump(2));
  return EXIT_SUCCESS;
}
