// What pliant.deepspeed needs of core: configs of DeepSpeed as TOML, and policies in their own words.
#include "bindings.hpp"
#include "pliant/import.hpp"

namespace pliant::python {

void bind_deepspeed(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "_import_deepspeed",
      [](const std::string& json, const std::string& name) {
        return without_gil([&] { return import_deepspeed(json, name).toml; });
      },
      "json"_a, "name"_a);
  module.def(
      "_unchecked_plan",
      [](const PyPlanner& self, int64_t world_size, bool want_micro_batch,
         const std::optional<std::string>& world_size_text) {
        return without_gil([&] { return self.planner->unchecked(world_size, want_micro_batch, world_size_text); });
      },
      "planner"_a, "world_size"_a, "want_micro_batch"_a, "world_size_text"_a.none());
}

}  // namespace pliant::python
