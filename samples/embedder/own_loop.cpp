// own_loop: a training loop of one's own that takes the plan, the batches and the learning rate from Pliant, without
// agent and Session. Here one process computes the rows of all ranks in turn; in yours each rank computes its own.
#include <cmath>
#include <iostream>
#include <pliant/batches.hpp>
#include <pliant/learning_rate.hpp>
#include <pliant/plan.hpp>
#include <vector>

int main() {
  const auto config = pliant::Config::parse(R"(
    config_version = 1
    [run]
    epochs = 2
    [elasticity]
    use = "exact"
    [elasticity.exact]
    max_train_batch_size = 48
    micro_batch_sizes = [2, 4]
    [lr]
    use = "none"
    base_lr = 0.5
  )",
                                            {"elasticity", "sampler", "lr"});
  const pliant::Planner planner(config);
  pliant::Batches batches(config, planner.plan(), {std::vector<int32_t>(2000, 1), {}});  // 2,000 sequences of one token
  pliant::LearningRate rates(config, batches.epoch(0).mean_batch());

  double weight = 0;
  std::vector<int> used(2000);
  while (const auto batch = batches.next()) {  // the same batches whatever the world size
    const int64_t step = batches.next_step() - 1;
    const int64_t world_size = step < 20 ? 3 : 5;  // what your launcher says: it may change between two steps
    const pliant::Plan plan = planner.plan(world_size);
    double gradient = 0;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const pliant::RowRange share = pliant::share_of(batch->size.rows, plan.granule, world_size, rank);
      for (const pliant::RowRange rows : pliant::micro_batches(share, plan.micro_batch)) {
        for (const int64_t id : batch->ids_of(rows)) {
          gradient += weight - 3;  // of the loss (weight - 3)^2 / 2
          ++used[static_cast<size_t>(id)];
        }
      }
    }
    gradient /= static_cast<double>(batch->size.loss_tokens);  // your all-reduce: sum over ranks, divided once
    weight -= rates.at(step, batch->size) * gradient;
    rates.commit(step, batch->size);  // for rules that have a state
    // For a checkpoint: batches.save() and rates.save(); load() goes on at any other world size.
  }
  int64_t once_an_epoch = 0;
  for (const int uses : used) once_an_epoch += uses == 2 ? 1 : 0;
  std::cout << once_an_epoch << " of " << used.size() << " sequences were used once in each of 2 epochs, weight "
            << std::round(1000 * weight) / 1000 << '\n';
}
