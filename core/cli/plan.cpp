// pliant plan
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "actions.hpp"
#include "output.hpp"
#include "pliant/error.hpp"
#include "pliant/plan.hpp"

namespace pliant::cli {

namespace {

constexpr int64_t kMostListed = 1000;  // world sizes that are listed one by one in JSON
constexpr size_t kLineWidth = 90;

/// Micro-batches of the rank with the largest share, which is rank 0.
int64_t accumulation_steps(const Plan& plan, int64_t world_size) {
  const RowRange share = share_of(plan.global_batch, plan.granule, world_size, 0);
  return static_cast<int64_t>(micro_batches(share, plan.micro_batch).size());
}

std::string as_json(const Plan& plan, int64_t world_size, const Config& config) {
  nlohmann::ordered_json json;
  json["schema"] = "pliant.plan/1";
  json["policy"] = config.use("elasticity");
  json["global_batch"] = plan.global_batch;
  json["world_size"] = world_size;
  json["micro_batch"] = plan.micro_batch;
  json["gradient_accumulation_steps"] = accumulation_steps(plan, world_size);
  json["granule"] = plan.granule;
  json["model_parallel_size"] = plan.model_parallel_size;
  json["world_size_count"] = plan.count();
  auto ranges = nlohmann::ordered_json::array();
  auto sizes = nlohmann::ordered_json::array();
  for (const WorldRange& range : plan.world_sizes) {
    ranges.push_back({range.first, range.last});
    for (int64_t size = range.first; plan.count() <= kMostListed && size <= range.last; ++size) sizes.push_back(size);
  }
  json["world_sizes"] = plan.count() <= kMostListed ? sizes : nlohmann::ordered_json(nullptr);
  json["world_size_ranges"] = std::move(ranges);
  return json.dump() + "\n";
}

/// "1-4, 6, 8" in lines that fit beside a label of `indent` columns.
std::string sizes_text(const Plan& plan, size_t indent) {
  std::string text;
  std::string line;
  for (const WorldRange& range : plan.world_sizes) {
    const std::string one =
        range.first == range.last ? fmt::format("{}", range.first) : fmt::format("{}-{}", range.first, range.last);
    if (!line.empty() && indent + line.size() + one.size() + 2 > kLineWidth) {
      text += line + ",\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : ", ") + one;
  }
  return text + line;
}

std::string rows_text(int64_t rows) {
  return fmt::format("{} {}", rows, rows == 1 ? "row" : "rows");
}

std::string as_text(const Plan& plan, int64_t world_size, const Config& config) {
  constexpr size_t kIndent = 22;
  std::vector<std::vector<std::string>> rows;
  rows.push_back({"policy", config.use("elasticity")});
  rows.push_back({"global batch", rows_text(plan.global_batch)});
  rows.push_back({"micro-batch", fmt::format("{} at world size {}, {} a step", rows_text(plan.micro_batch), world_size,
                                             accumulation_steps(plan, world_size))});
  rows.push_back({"granule", rows_text(plan.granule)});
  if (plan.model_parallel_size > 1) {
    rows.push_back({"model parallel size", fmt::format("{} devices behind each rank", plan.model_parallel_size)});
  }
  rows.push_back({"valid world sizes", fmt::format("{}", plan.count())});
  rows.push_back({"", sizes_text(plan, kIndent)});
  for (auto& row : rows) row.front().resize(kIndent - 2, ' ');
  return table(rows);
}

/// The plan at `world_size`, or, when that is 0, at a size worth showing, which it is set to: what `[run] workers`
/// starts, else the largest valid one.
Plan plan_to_show(const Config& config, int64_t& world_size) {
  if (world_size > 0) return make_plan(config, world_size);
  if (config.has("run")) {
    try {
      world_size = config.run().workers;
      return make_plan(config, world_size);
    } catch (const Error& error) {
      if (error.status() != Status::kIncompatibleWorldSize) throw;
    }
  }
  const Plan any = make_plan(config);
  const int64_t started = config.has("run") ? any.largest_valid(config.run().workers) : 0;
  world_size = started > 0 ? started : any.world_sizes.back().last;
  return make_plan(config, world_size);
}

}  // namespace

int show_plan(const Invocation& invocation, const std::filesystem::path& file, int64_t world_size) {
  ConfigNeeds needs;
  needs.elasticity = true;
  const Config config = Config::open(file, needs, invocation.overrides);
  const Plan plan = plan_to_show(config, world_size);
  return emit(invocation.json ? as_json(plan, world_size, config) : as_text(plan, world_size, config));
}

}  // namespace pliant::cli
