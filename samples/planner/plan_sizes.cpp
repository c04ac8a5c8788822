// The planner alone, for a scheduler: which cluster sizes a job can use, and what each gives it.
#include <iostream>
#include <pliant/plan.hpp>

int main() {
  const auto config = pliant::Config::parse(R"(
    config_version = 1
    [elasticity]
    use = "exact"
    [elasticity.exact]
    max_train_batch_size = 2000
    micro_batch_sizes = [2, 4, 6]
    max_gpus = 64
  )",
                                            {"elasticity"});
  const pliant::Planner planner(config);  // any thread may ask it; it prints nothing and reads no environment
  for (const int64_t ranks : {3, 5, 7, 64}) {
    const pliant::Plan plan = planner.plan(ranks);
    const int64_t slowest = pliant::share_of(plan.global_batch, plan.granule, ranks, 0).count;
    std::cout << ranks << " ranks: global batch " << plan.global_batch << ", at most " << slowest << " rows a rank, "
              << plan.micro_batch << " at once\n";
  }
  std::cout << "digest " << planner.digest() << '\n';
}
