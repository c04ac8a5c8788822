// Balancers and assignments for Python.
#include "pliant/balancer.hpp"

#include "arrays.hpp"
#include "bindings.hpp"
#include "failure.hpp"

namespace pliant::python {

namespace {

struct PyBalancer : Serial {
  static constexpr const char* kName = "Balancer";
  explicit PyBalancer(const Config& config) : balancer(std::make_shared<const Balancer>(config)) {}
  FreedWithoutGil<const Balancer> balancer;
};

Sharing sharing_of(int64_t world_size, int64_t micro_batch, int64_t granule, bool deterministic, bool in_turn) {
  return {positive(world_size, "world_size"), positive(micro_batch, "micro_batch"), positive(granule, "granule"),
          deterministic, in_turn};
}

nb::list blocks_of(const Assignment& self, int64_t rank) {
  if (rank < 0 || rank >= self.world_size())
    throw nb::index_error(("rank " + std::to_string(rank) + " of " + std::to_string(self.world_size())).c_str());
  nb::list made;
  for (const RowRange& block : self.of(rank)) made.append(nb::make_tuple(block.first, block.count));
  return made;
}

}  // namespace

void bind_balancer(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Waiting>(module, "Waiting")
      .def_ro("work", &Waiting::work)
      .def_ro("per_step", &Waiting::per_step)
      .def_ro("per_micro_batch", &Waiting::per_micro_batch)
      .def("lost_per_step", &Waiting::lost_per_step)
      .def("lost_per_micro_batch", &Waiting::lost_per_micro_batch);
  nb::class_<Assignment>(module, "Assignment")
      .def_prop_ro("world_size", &Assignment::world_size)
      .def("of", &blocks_of, "rank"_a)
      .def(
          "__eq__", [](const Assignment& self, const Assignment& other) { return self == other; }, nb::is_operator())
      .def("__hash__", [](const Assignment& self) { return static_cast<int64_t>(self.blocks.size()); });
  nb::class_<PyBalancer>(module, "Balancer")
      .def(
          "__init__",
          [](PyBalancer* self, const PyConfig& config) { without_gil([&] { new (self) PyBalancer(*config.config); }); },
          "config"_a)
      .def_prop_ro("name", [](const PyBalancer& self) { return self.balancer->name(); })
      .def_prop_ro("rates",
                   [](const PyBalancer& self) {
                     const CostRates rates = self.balancer->rates();
                     return std::make_tuple(rates.per_token, rates.per_square);
                   })
      .def(
          "assign",
          [](PyBalancer& self, const AnyArray& row_costs, int64_t world_size, int64_t micro_batch, int64_t granule,
             bool deterministic, bool in_turn) {
            const std::vector<int64_t> costs = integers_from(row_costs, "row_costs");
            const Sharing how = sharing_of(world_size, micro_batch, granule, deterministic, in_turn);
            return without_gil([&] {
              const Turn turn(self, PyBalancer::kName);
              return self.balancer->assign(costs, how);
            });
          },
          "row_costs"_a, nb::kw_only(), "world_size"_a, "micro_batch"_a = 1, "granule"_a = 1, "deterministic"_a = false,
          "in_turn"_a = false)
      .def(
          "predict",
          [](PyBalancer& self, const AnyArray& row_costs, int64_t world_size, int64_t micro_batch, int64_t granule,
             bool deterministic, bool in_turn) {
            const std::vector<int64_t> costs = integers_from(row_costs, "row_costs");
            const Sharing how = sharing_of(world_size, micro_batch, granule, deterministic, in_turn);
            return without_gil([&] {
              const Turn turn(self, PyBalancer::kName);
              return self.balancer->predict(costs, how);
            });
          },
          "row_costs"_a, nb::kw_only(), "world_size"_a, "micro_batch"_a = 1, "granule"_a = 1, "deterministic"_a = false,
          "in_turn"_a = false);
  module.def(
      "row_costs",
      [](const PyBatch& batch, int64_t per_token, int64_t per_square) {
        return array_of(without_gil([&] {
          return row_costs(*batch.batch, batch.dataset->get(), {per_token, per_square});
        }));
      },
      "batch"_a, "per_token"_a = 1, "per_square"_a = 0);
  module.def(
      "share_out",
      [](int64_t rows, int64_t world_size, int64_t micro_batch, int64_t granule, bool deterministic, bool in_turn) {
        const Sharing how = sharing_of(world_size, micro_batch, granule, deterministic, in_turn);
        return without_gil([&] { return share_out(rows, how); });
      },
      "rows"_a, nb::kw_only(), "world_size"_a, "micro_batch"_a = 1, "granule"_a = 1, "deterministic"_a = false,
      "in_turn"_a = false);
  module.def(
      "waiting",
      [](const AnyArray& row_costs, const Assignment& assignment) {
        const std::vector<int64_t> costs = integers_from(row_costs, "row_costs");
        return without_gil([&] { return waiting(costs, assignment); });
      },
      "row_costs"_a, "assignment"_a);
}

}  // namespace pliant::python
