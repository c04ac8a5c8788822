// even: one fixed number of rows per step, shared out by every world size that divides it.
#include <pliant/sdk/elasticity_policy.hpp>
using namespace pliant::sdk;
struct Even {
  int64_t rows = 12;
  static void options(Options<Even>& o) { o.add("rows", &Even::rows, "Rows of one step.").range(1, 4096).unit("rows"); }
  Plan plan(const PlanRequest& asked) const {
    const int64_t left = asked.world_size > 0 ? rows % asked.world_size : 0;
    if (left > 0) throw IncompatibleWorldSize(std::to_string(left) + " of the rows would be left over");
    Plan plan{rows, asked.world_size > 0 ? rows / asked.world_size : 0, 1, 1, {}};
    for (int64_t size = 1; size <= rows; ++size)
      if (rows % size == 0) plan.world_sizes.push_back({size, size});
    return plan;
  }
};
PLIANT_ELASTICITY_POLICY(Even, "even", "0.1.0", "a fixed batch, every world size that divides it")
