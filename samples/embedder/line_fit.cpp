// line_fit: fits a line to points through a Session, on the CPU and without a framework. Start it with `pliant run`.
#include <pliant/session.hpp>
#include <vector>

class Line final : public pliant::TrainingState {  // y = weights[0] * x + weights[1]
 public:
  uint64_t gradient_size() const override { return weights.size(); }
  std::vector<pliant::StateArray> arrays() override {  // what workers that join copy, and snapshots keep
    return {{"weights", pliant::DType::kF32, {2}, weights.data()}};
  }
  std::vector<float> weights{0, 0};
};

void train(pliant::Session& session) {
  Line line;
  const std::vector<int32_t> lengths(2000, 1);  // each point is a sequence of one token
  session.start({lengths, {}, "points", 1}, line);
  while (pliant::Step* const step = session.next()) {
    for (const pliant::RowRange rows : step->micro_batches()) {
      double loss = 0;  // summed over the rows, as the gradient is
      std::vector<float> gradient(2);
      for (const int64_t id : step->batch().ids_of(rows)) {
        const float x = static_cast<float>(id % 101) / 50 - 1, y = 3 * x - 2;  // a point
        const float error = line.weights[0] * x + line.weights[1] - y;
        loss += error * error / 2;
        gradient[0] += error * x;
        gradient[1] += error;
      }
      step->add(rows, loss, gradient);
    }
    if (const auto committed = step->commit()) {  // the mean gradient, the same on every rank
      const auto rate = static_cast<float>(step->learning_rate());
      for (size_t i = 0; i < 2; ++i) line.weights[i] -= rate * committed->gradient()[i];
    }
  }
}

int main() {
  return pliant::run_worker("line_fit", train);
}
