// my-elasticity: a fixed global batch, shared out by every world size that divides it.
#include "pliant/sdk/elasticity_policy.hpp"

struct MyElasticity {
  int64_t global_batch = 64;

  static void options(pliant::sdk::Options<MyElasticity>& table) {
    table.add("global_batch", &MyElasticity::global_batch, "Rows of one step.").range(1, 1 << 20).unit("rows");
  }

  pliant::sdk::Plan plan(const pliant::sdk::PlanRequest& request) const {
    pliant::sdk::Plan plan;
    plan.global_batch = global_batch;
    for (int64_t size = 1; size <= global_batch; ++size) {
      if (global_batch % size == 0) plan.world_sizes.push_back({size, size});
    }
    if (request.world_size > 0) {
      if (global_batch % request.world_size != 0) {
        throw pliant::sdk::IncompatibleWorldSize("world size " + std::to_string(request.world_size) +
                                                 " does not divide the global batch of " +
                                                 std::to_string(global_batch));
      }
      plan.micro_batch = global_batch / request.world_size;
    }
    return plan;
  }
};

PLIANT_ELASTICITY_POLICY(MyElasticity, "my-elasticity", "0.1.0", "every world size that divides a fixed global batch")
