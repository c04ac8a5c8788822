// Plans for Python.
#include <tuple>

#include "bindings.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

using Ranges = std::vector<std::tuple<int64_t, int64_t, int64_t>>;
using PickledPlan = std::tuple<std::tuple<int64_t, int64_t, int64_t, int64_t>, std::tuple<int64_t, int64_t, int64_t>,
                               Ranges, std::vector<std::string>>;

PickledPlan pickled(const Plan& plan) {
  Ranges ranges;
  for (const WorldRange& range : plan.world_sizes) ranges.emplace_back(range.first, range.last, range.step);
  return {{plan.global_batch, plan.micro_batch, plan.granule, plan.model_parallel_size},
          {plan.devices_per_node, plan.min_resize_interval_s, plan.largest_counted},
          ranges,
          plan.warnings};
}

Plan unpickled(const PickledPlan& state) {
  const auto& [rows, cluster, ranges, warnings] = state;
  Plan plan;
  std::tie(plan.global_batch, plan.micro_batch, plan.granule, plan.model_parallel_size) = rows;
  std::tie(plan.devices_per_node, plan.min_resize_interval_s, plan.largest_counted) = cluster;
  for (const auto& [first, last, step] : ranges) plan.world_sizes.push_back({first, last, step});
  plan.warnings = warnings;
  return plan;
}

/// As Python's own ranges, which know their length and what is in them.
nb::list world_sizes(const Plan& plan) {
  nb::list made;
  const nb::object range = nb::borrow(reinterpret_cast<PyObject*>(&PyRange_Type));
  for (const WorldRange& sizes : plan.world_sizes) made.append(range(sizes.first, sizes.last + 1, sizes.step));
  return made;
}

int64_t world_size_or_none(int64_t world_size) {
  if (world_size < 0) throw wrong("a world size of " + std::to_string(world_size));
  return world_size;
}

}  // namespace

void bind_plan(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Plan>(module, "Plan")
      .def_ro("global_batch", &Plan::global_batch)
      .def_ro("micro_batch", &Plan::micro_batch)
      .def_ro("granule", &Plan::granule)
      .def_ro("model_parallel_size", &Plan::model_parallel_size)
      .def_ro("devices_per_node", &Plan::devices_per_node)
      .def_ro("min_resize_interval_s", &Plan::min_resize_interval_s)
      .def_ro("largest_counted", &Plan::largest_counted)
      .def_prop_ro("warnings", [](const Plan& self) { return self.warnings; })
      .def_prop_ro("world_sizes", &world_sizes)
      .def("valid", &Plan::valid, "world_size"_a)
      .def("__contains__", &Plan::valid, "world_size"_a)
      .def("largest_valid", &Plan::largest_valid, "at_most"_a)
      .def("smallest_valid", &Plan::smallest_valid, "at_least"_a)
      .def("count", &Plan::count)
      .def("explain_invalid", &Plan::explain_invalid, "world_size"_a)
      .def("__repr__",
           [](const Plan& self) {
             return "<pliant.Plan: " + std::to_string(self.global_batch) + " rows a step, " +
                    std::to_string(self.count()) + " world sizes>";
           })
      .def("__getstate__", &pickled)
      .def("__setstate__", [](Plan& self, const PickledPlan& state) { new (&self) Plan(unpickled(state)); });
  nb::class_<PyPlanner>(module, "Planner")
      .def(
          "__init__",
          [](PyPlanner* self, const PyConfig& config) { without_gil([&] { new (self) PyPlanner(*config.config); }); },
          "config"_a)
      .def(
          "plan",
          [](const PyPlanner& self, int64_t world_size) {
            return without_gil([&] { return self.planner->plan(world_size_or_none(world_size)); });
          },
          "world_size"_a = 0)
      .def_prop_ro("policy", [](const PyPlanner& self) { return self.planner->policy(); })
      .def_prop_ro("block", [](const PyPlanner& self) { return self.planner->block(); })
      .def_prop_ro("digest", [](const PyPlanner& self) { return self.planner->digest(); });
  module.def(
      "make_plan",
      [](const PyConfig& config, int64_t world_size) {
        return without_gil([&] { return make_plan(*config.config, world_size_or_none(world_size)); });
      },
      "config"_a, "world_size"_a = 0);
  module.def(
      "share_of",
      [](int64_t rows, int64_t granule, int64_t world_size, int64_t rank) {
        const RowRange share = share_of(rows, granule, world_size, rank);
        return std::make_tuple(share.first, share.count);
      },
      "rows"_a, "granule"_a, "world_size"_a, "rank"_a);
}

}  // namespace pliant::python
